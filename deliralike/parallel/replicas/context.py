"""The replica context: the replica whose code runs, and what it may ask of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import Any

from deliralike import random
from deliralike.parallel.replicas.rendezvous import Rendezvous


@dataclass(frozen=True, eq=False)
class Replica:
    """One of several replicas that run side by side.

    Attributes:
        index: Its number; 0 is the root.
        device: Where it runs.
        sizes: The samples in each replica's share.
        rendezvous: Where the replicas exchange values.
        all_sum: The sum of an array over all replicas, differentiable; called with the array and a
            word for errors.
        synchronised: Whether batch normalisation takes its statistics from all replicas.
        seed: Keys the draws of native random layers, together with `index`.
        position: Its number among the replicas of this process; `index` where there is one process
            only.
    """

    index: int
    device: str
    sizes: tuple[int, ...]
    rendezvous: Rendezvous
    all_sum: Callable[[Any, str], Any]
    synchronised: bool = False
    seed: int = 0
    position: Any = (
        None  # a number; of replicas in a program of JAX's it may be traced, as the index may
    )

    def __post_init__(self) -> None:
        """One process has all replicas unless told otherwise."""
        if self.position is None:
            object.__setattr__(self, "position", self.index)

    @property
    def count(self) -> int:
        """How many replicas there are."""
        return len(self.sizes)

    @property
    def first_sample(self) -> int:
        """The index, within the whole batch, of this replica's first sample."""
        return sum(self.sizes[: self.index])

    def exchange(self, topic: str, value: Any) -> list[Any]:
        """Give a value to all replicas and take theirs, in the order of replicas."""
        return self.rendezvous.exchange(self.index, topic, value)

    def __str__(self) -> str:
        """``replica 1 of 3 on cpu``."""
        return f"replica {self.index} of {self.count} on {self.device}"


_current: ContextVar[Replica | None] = ContextVar("deliralike_replica", default=None)
# How many replicas are entered in all threads: a plain number, on which torch.compile can guard.
_entered = 0
_counting = Lock()


def current() -> Replica | None:
    """The replica whose code runs, or None outside of any."""
    return _current.get() if _entered else None


@contextmanager
def entered(replica: Replica) -> Iterator[Replica]:
    """Return a block that runs as this replica.

    Its samples continue the portable random stream where the others' end.
    """
    global _entered
    token = _current.set(replica)
    with _counting:
        _entered += 1
    try:
        with random.shifted(replica.first_sample):
            yield replica
    finally:
        with _counting:
            _entered -= 1
        with suppress(
            ValueError
        ):  # a replica that was stopped just here is left behind in another context
            _current.reset(token)
