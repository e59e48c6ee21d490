"""The model of step time: limits, values computed by hand, and simulations that move numbers from
rank to rank."""

import math

import numpy as np
import pytest

from benchmarks.step_time import (
    BUCKET,
    Cluster,
    Link,
    Work,
    all_reduce,
    broadcast,
    daso,
    local_sgd,
    predicted,
    recursive_doubling,
    ring_all_reduce,
    synchronous,
)
from deliralike.errors import SettingError

LINK = Link(latency=0.025, bandwidth=12.5e6)
WORK = Work(forward=0.03, backward=0.07, update=0.01, size=3e6)
CLUSTER = Cluster(members=2, inside=Link(1e-4, 1e9), across=LINK)


# Simulations
# -----------------------------------------------------------------------------


class Ranks:
    """Ranks with a number for each chunk, which they send as soon as they have it, and receive one
    after the other."""

    def __init__(self, count, chunks, link):
        self.has = np.random.default_rng(count).normal(size=(count, chunks))
        self.wanted = self.has.sum(axis=0)
        self.since = np.zeros((count, chunks))  # when each has come to have what it has
        self.sends, self.receives = (
            np.zeros(count),
            np.zeros(count),
        )  # from when on each can do so again
        self.link = link

    def send(self, messages):
        """Messages of one round: who sends, to whom, which chunks, of how many bytes, and whether
        they are added."""
        arrivals = []
        for sender, receiver, chunks, size, added in messages:
            begin, takes = (
                max(self.sends[sender], self.since[sender, chunks].max()),
                size / self.link.bandwidth,
            )
            self.sends[sender] = begin + takes
            self.receives[receiver] = (
                max(begin + self.link.latency, self.receives[receiver]) + takes
            )
            arrivals.append(
                (
                    receiver,
                    chunks,
                    self.receives[receiver],
                    self.has[sender, chunks].copy(),
                    added,
                )
            )
        for receiver, chunks, when, values, added in arrivals:
            self.has[receiver, chunks] = values + added * self.has[receiver, chunks]
            self.since[receiver, chunks] = np.maximum(
                self.since[receiver, chunks], when
            )

    def finished(self):
        np.testing.assert_allclose(
            self.has, np.broadcast_to(self.wanted, self.has.shape), rtol=1e-12
        )
        return self.since.max()


def simulated_ring(count, size, link):
    ranks = Ranks(count, count, link)
    for half, added in enumerate((True, False)):
        for turn in range(count - 1):
            ranks.send(
                [
                    (
                        r,
                        (r + 1) % count,
                        [(r - turn + half) % count],
                        size / count,
                        added,
                    )
                    for r in range(count)
                ]
            )
    return ranks.finished()


def simulated_doubling(count, size, link):
    ranks, power = Ranks(count, 1, link), 2 ** int(math.log2(count))
    ranks.send([(r, r - power, [0], size, True) for r in range(power, count)])
    distance = 1
    while distance < power:
        ranks.send([(r, r ^ distance, [0], size, True) for r in range(power)])
        distance *= 2
    ranks.send([(r - power, r, [0], size, False) for r in range(power, count)])
    return ranks.finished()


def simulated_buckets(work, reduce, buckets):
    free = 0.0
    for bucket in range(1, buckets + 1):
        ready = work.forward + work.backward * bucket / buckets
        free = max(free, ready) + reduce(work.size / buckets)
    return free + work.update


def simulated_daso(work, inside, sent, shared, between, wait, local, batches):
    """The clock of one rank, batch by batch; a blocking average is waited for at once."""
    now, under_way = 0.0, None
    for batch in range(1, batches + 1):
        now += work.compute + (inside if batch % local == 0 else 0.0)
        if under_way is not None and batch == under_way[0]:
            now, under_way = max(now, under_way[1]) + shared, None
        if batch % between == 0:
            under_way = (batch + wait, now + sent)
            if not wait:
                now, under_way = now + sent + shared, None
    return now / batches


@pytest.mark.parametrize("size", [0.0, 1e3, 3e6])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 13])
def test_a_ring_takes_as_long_as_when_every_message_is_sent(count, size):
    assert ring_all_reduce(count, size, LINK) == pytest.approx(
        simulated_ring(count, size, LINK), abs=1e-12
    )


@pytest.mark.parametrize("size", [0.0, 1e3, 3e6])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 13])
def test_doubling_takes_as_long_as_when_every_message_is_sent(count, size):
    """Where n is no power of two, some ranks have a round less, and do not wait: the latency of two
    rounds at most."""
    late = recursive_doubling(count, size, LINK) - simulated_doubling(count, size, LINK)
    assert (
        -1e-12 <= late <= (1e-12 if count in (1, 2, 4, 8) else 2 * LINK.latency + 1e-12)
    )


@pytest.mark.parametrize("buckets", [1, 2, 5, 31])
@pytest.mark.parametrize("bandwidth", [1e6, 4.3e7, 1e9])
def test_buckets_take_as_long_as_when_they_wait_in_line(buckets, bandwidth):
    """Also where the messages are the slower part, and where backward is."""

    def reduce(size):
        return ring_all_reduce(3, size, Link(1e-4, bandwidth))

    wanted = simulated_buckets(WORK, reduce, buckets)
    assert synchronous(WORK, reduce, buckets) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("between", "wait", "local"),
    [(4, 1, 1), (8, 2, 2), (1, 1, 1), (4, 4, 1), (3, 0, 1)],
)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_daso_takes_as_long_as_batch_after_batch(between, wait, local, nodes):
    inside = ring_all_reduce(2, WORK.size, CLUSTER.inside)
    sent, shared = (
        all_reduce(nodes, WORK.size, LINK),
        (nodes > 1) * broadcast(2, WORK.size, CLUSTER.inside),
    )
    many = simulated_daso(
        WORK, inside, sent, shared, between, wait, local, batches=24_000
    )
    found = daso(WORK, nodes, CLUSTER, between=between, wait=wait, local=local)
    # the last one is under way in the end, and batches without a sum inside may be those that are
    # waited in
    assert found == pytest.approx(many, rel=1e-3 if local == 1 else 1e-2)


# By hand
# -----------------------------------------------------------------------------


def test_one_rank_takes_the_time_that_it_computes():
    alone = Cluster(1, LINK, LINK)
    assert predicted(WORK, 1, alone) == pytest.approx(
        dict.fromkeys(("synchronous", "local SGD", "DASO"), WORK.compute)
    )


def test_gradients_go_into_buckets_of_the_usual_size():
    assert [
        Work(1, 1, 1, size).buckets for size in (0, 1, BUCKET, BUCKET + 1, 4 * BUCKET)
    ] == [
        1,
        1,
        1,
        2,
        4,
    ]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Link(-1, 1), "a link of -1 s and 1 bytes/s"),
        (lambda: Link(0, 0), "a bandwidth above zero"),
        (lambda: ring_all_reduce(0, 1, LINK), "ranks=0: wanted one at least"),
        (lambda: broadcast(0, 1, LINK), "ranks=0"),
        (lambda: synchronous(WORK, float, 0), "buckets=0"),
        (lambda: local_sgd(WORK, float, 0), "every=0"),
        (
            lambda: daso(WORK, 2, CLUSTER, between=2, wait=3),
            "wait=3: wanted from 0 to between=2",
        ),
        (
            lambda: predicted(WORK, 9, CLUSTER),
            "9 ranks on nodes of 2: wanted a multiple",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, words):
    with pytest.raises(SettingError, match=words):
        call()
