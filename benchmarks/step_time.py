"""A model of how long a training step takes: ranks, bytes, latency and bandwidth.

It consists of pure functions; no message is sent.

Times are in seconds, sizes in bytes, bandwidths in bytes a second. A message of s bytes takes
``latency + s/bandwidth``, and each rank sends and receives one at a time, both at once. What a rank
computes takes the same time on each, and does not slow its messages down.

Sources: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations
in MPICH" (recursive doubling, trees, and when which is faster); Patarasuk and Yuan 2009, "Bandwidth
Optimal All-reduce Algorithms for Clusters of Workstations" (the ring); Li et al. 2020, "PyTorch
Distributed" (buckets during backward); Stich 2019, "Local SGD Converges Fast and Communicates
Little"; Coquelin et al. 2021, "Accelerating Neural Network Training with the Distributed
Asynchronous and Selective Optimization (DASO) Method".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from deliralike.errors import SettingError

Reduce = Callable[
    [float], float
]  # from bytes to the seconds after which every rank has their sum

BUCKET = 25 * 2**20  # bytes, PyTorch's default


@dataclass(frozen=True)
class Link:
    """A connection of two ranks.

    Attributes:
        latency: Seconds until the first byte has arrived.
        bandwidth: Bytes a second from then on.

    Raises:
        SettingError: The latency is negative, or the bandwidth not positive.
    """

    latency: float
    bandwidth: float

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise SettingError(
                f"a link of {self.latency} s and {self.bandwidth} bytes/s: wanted a latency of "
                "zero or more, and a bandwidth above zero"
            )

    def message(self, size: float) -> float:
        """Return the seconds that a message of so many bytes takes."""
        return self.latency + size / self.bandwidth


@dataclass(frozen=True)
class Work:
    """The work of a rank in a step: seconds of forward, backward and update, bytes of gradients."""

    forward: float
    backward: float
    update: float
    size: float

    @property
    def compute(self) -> float:
        """Seconds of a step without any message."""
        return self.forward + self.backward + self.update

    @property
    def buckets(self) -> int:
        """The number of buckets of PyTorch's default size that hold the gradients."""
        return max(1, math.ceil(self.size / BUCKET))


@dataclass(frozen=True)
class Cluster:
    """Nodes of equally many members.

    Attributes:
        members: The ranks of a node.
        inside: The link between two members of a node.
        across: The link to other nodes, which all members of a node share.
    """

    members: int
    inside: Link
    across: Link


# Collectives
# ------------------------------------------------------------


def ring_all_reduce(ranks: int, size: float, link: Link) -> float:
    """Return the seconds of an all-reduce by a ring.

    There are 2(n-1) rounds, in each of which every rank passes an n-th on: ``2(n-1)·latency +
    2(n-1)/n·size/bandwidth``. No algorithm sends fewer bytes (Patarasuk and Yuan 2009).

    Raises:
        SettingError: There is no rank.

    Example:
        >>> ring_all_reduce(4, 1_000_000, Link(latency=0.5, bandwidth=1e6))
        4.5
    """
    rounds = 2 * (_positive("ranks", ranks) - 1)
    return rounds * link.message(size / ranks)


def recursive_doubling(ranks: int, size: float, link: Link) -> float:
    """Return the seconds of an all-reduce by recursive doubling: few messages, many bytes.

    Each rank exchanges everything with a partner at distance 1, 2, 4 …: ``log2(n)·(latency +
    size/bandwidth)`` (Thakur et al. 2005). Where n is no power of two, the ranks above the largest
    one send theirs to a partner first, and get the sum from it in the end: two more rounds.

    Raises:
        SettingError: There is no rank.
    """
    rounds = _positive("ranks", ranks).bit_length() - 1
    if ranks != 2**rounds:
        rounds += 2
    return rounds * link.message(size)


def all_reduce(ranks: int, size: float, link: Link) -> float:
    """Return the seconds of an all-reduce by the faster of the two algorithms.

    That is recursive doubling for small messages, and the ring for large ones.
    """
    return min(
        ring_all_reduce(ranks, size, link), recursive_doubling(ranks, size, link)
    )


def hierarchical_all_reduce(nodes: int, size: float, cluster: Cluster) -> float:
    """Return the seconds of an all-reduce inside nodes and across them.

    The first half of a ring inside each node leaves every member with a part; members with the same
    part add it up across nodes, all of them at once through the link that they share; the second
    half of the ring brings the parts together.
    """
    inside = ring_all_reduce(cluster.members, size, cluster.inside)
    return inside + all_reduce(nodes, size, cluster.across)


def broadcast(ranks: int, size: float, link: Link) -> float:
    """Return the seconds of a broadcast by a binomial tree.

    ``ceil(log2 n)·(latency + size/bandwidth)`` (Thakur et al. 2005).

    Raises:
        SettingError: There is no rank.
    """
    rounds = (_positive("ranks", ranks) - 1).bit_length()
    return rounds * link.message(size)


# Steps
# ------------------------------------------------------------


def synchronous(work: Work, reduce: Reduce, buckets: int = 1) -> float:
    """Return the seconds of a step whose gradients are added, in buckets, during backward.

    Buckets are of one size, and become ready at equal times during backward; they are added one
    after the other. Either the first one is waited for and all others wait in line, or backward is
    the slower of the two and the last bucket is added after it (Li et al. 2020). One bucket is
    added after backward.

    Args:
        reduce: Seconds of a sum of so many bytes.

    Raises:
        SettingError: There is no bucket.

    Example:
        >>> work = Work(forward=0.1, backward=0.2, update=0.0, size=1e7)
        >>> after = synchronous(work, lambda size: size / 1e8)
        >>> during = synchronous(work, lambda size: size / 1e8, buckets=4)
        >>> print(f"{after:.3f} {during:.3f}")
        0.400 0.325
    """
    compute = work.backward / _positive(
        "buckets", buckets
    )  # seconds until a bucket is ready
    exchange = reduce(work.size / buckets)  # seconds to add a bucket
    backward = max(compute + buckets * exchange, buckets * compute + exchange)
    return work.forward + backward + work.update


def local_sgd(work: Work, reduce: Reduce, every: int) -> float:
    """Return the mean seconds of a step of local SGD: parameters are averaged every `every` steps.

    Args:
        reduce: Seconds of a sum of so many bytes.

    Raises:
        SettingError: `every` is less than one.
    """
    return work.compute + reduce(work.size) / _positive("every", every)


def daso(
    work: Work,
    nodes: int,
    cluster: Cluster,
    *,
    between: int = 4,
    wait: int = 1,
    local: int = 1,
    buckets: int = 1,
) -> float:
    """Return the mean seconds of a step of DASO while it cycles.

    Inside a node gradients are added in every `local` batches. After `between` batches one member
    of each node sends its parameters across; `wait` batches later, during which training goes on,
    the sum is waited for, merged, and broadcast inside the node (Coquelin et al. 2021). With
    ``wait=0`` it is a blocking average. One node by itself sends nothing.

    Raises:
        SettingError: `between`, `local` or `buckets` is less than one, or `wait` negative or above
            `between`.
    """
    if not 0 <= wait <= _positive("between", between):
        raise SettingError(
            f"wait={wait}: wanted from 0 to between={between}, as one sending ends before the next"
        )

    def reduce_inside(size: float) -> float:
        return ring_all_reduce(cluster.members, size, cluster.inside)

    inside = synchronous(work, reduce_inside, buckets)
    step = work.compute + (inside - work.compute) / _positive("local", local)
    late = max(0.0, all_reduce(nodes, work.size, cluster.across) - wait * step)
    if nodes > 1:
        late += broadcast(cluster.members, work.size, cluster.inside)
    return step + late / between


def predicted(
    work: Work,
    ranks: int,
    cluster: Cluster,
    *,
    every: int = 8,
    between: int = 4,
    wait: int = 1,
) -> dict:
    """Return the seconds of a step on full nodes of a cluster, for each way of training.

    Returns:
        ``"synchronous"``, ``"local SGD"`` and ``"DASO"``.

    Raises:
        SettingError: They fill no whole number of nodes.
    """
    nodes, rest = divmod(_positive("ranks", ranks), cluster.members)
    if rest:
        raise SettingError(
            f"{ranks} ranks on nodes of {cluster.members}: wanted a multiple"
        )

    def reduce(size: float) -> float:
        return hierarchical_all_reduce(nodes, size, cluster)

    return {
        "synchronous": synchronous(work, reduce, work.buckets),
        "local SGD": local_sgd(work, reduce, every),
        "DASO": daso(
            work, nodes, cluster, between=between, wait=wait, buckets=work.buckets
        ),
    }


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise SettingError(f"{name}={value}: wanted one at least")
    return value
