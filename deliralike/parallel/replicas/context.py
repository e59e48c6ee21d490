"""The replica context: which replica runs, its exchanges with the others, the lock of its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from deliralike import random
from deliralike.errors import ReplicaError


@dataclass(frozen=True, eq=False)
class Replica:
    """One of several replicas of a network.

    Attributes:
        index: The number of the replica; 0 is the root.
        device: The device of the replica.
        sizes: The number of samples in each replica's share.
        rendezvous: The rendezvous in which the replicas exchange values.
        all_sum: A function that returns the sum of an array over all replicas, which is
            differentiable; its arguments are the array and a name for errors.
        synchronised: Whether batch normalisation takes its statistics from all replicas.
        seed: The key, together with `index`, of the draws of native random layers.
        position: The number of the replica among those of this process; `index` where there is one
            process only.
        stream: The portable random stream at the replica's samples, as it was when the run began;
            None where there is none.
    """

    index: int
    device: str
    sizes: tuple[int, ...]
    rendezvous: Rendezvous
    all_sum: Callable[[Any, str], Any]
    synchronised: bool = False
    seed: int = 0
    position: Any = None
    stream: random.Stream | None = field(init=False)

    def __post_init__(self) -> None:
        """Take `index` as the default of `position`; each replica counts its own draws."""
        if self.position is None:
            object.__setattr__(self, "position", self.index)
        stream = random.position()
        if stream is not None:
            stream = stream.later(self.first_sample)
        object.__setattr__(self, "stream", stream)

    @property
    def count(self) -> int:
        """The number of replicas."""
        return len(self.sizes)

    @property
    def first_sample(self) -> int:
        """The index, within the whole batch, of this replica's first sample."""
        return sum(self.sizes[: self.index])

    def exchange(self, topic: str, value: Any) -> list[Any]:
        """Give a value to all replicas; return all values in the order of replicas."""
        return self.rendezvous.exchange(self.index, topic, value)

    def __str__(self) -> str:
        """Return ``replica 1 of 3 on cpu``."""
        return f"replica {self.index} of {self.count} on {self.device}"


_current: ContextVar[Replica | None] = ContextVar("deliralike_replica", default=None)
# The number of replicas that run in all threads: a plain number, on which torch.compile can guard.
_entered = 0
_entered_lock = threading.Lock()


def current() -> Replica | None:
    """Return the replica whose code runs, or None outside of replicas."""
    if not _entered:
        return None
    return _current.get()


@contextmanager
def entered(replica: Replica) -> Iterator[Replica]:
    """Return a block that runs as this replica.

    Its samples are at their positions in the portable random stream of the whole batch.
    """
    global _entered
    token = _current.set(replica)
    with _entered_lock:
        _entered += 1
    try:
        with random.at(replica.stream):
            yield replica
    finally:
        with _entered_lock:
            _entered -= 1
        with suppress(
            ValueError
        ):  # a replica that is stopped just here ends in another context
            _current.reset(token)


class ReplicaStopped(BaseException):
    """An exception that ends a replica because another one failed; it never reaches the user."""


class Rendezvous:
    """Rounds of exchange between a fixed number of parties.

    Every party must make the same exchanges in the same order. A party that fails or ends early
    ends the others at once, as they would wait for it without end.
    """

    def __init__(self, parties: int) -> None:
        """Open a rendezvous for so many parties."""
        self.parties = parties
        self._changed = threading.Condition()
        self._rounds: dict[int, dict[int, tuple[str, Any]]] = {}
        self._visits = [0] * parties
        self._left: set[int] = set()
        self._stopped = False

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """Give a value and wait for the others; return all values in the order of parties.

        Args:
            topic: A name of the value, which must be the same for all parties.

        Raises:
            ReplicaError: Another party is at another topic, or ended without this exchange.
            ReplicaStopped: The rendezvous was stopped.
        """
        with self._changed:
            number = self._visits[index]
            self._visits[index] += 1
            entries = self._rounds.setdefault(number, {})
            entries[index] = (topic, value)
            self._changed.notify_all()

            def is_over() -> bool:
                return (
                    self._stopped
                    or len(entries) == self.parties
                    or bool(self._absent(number))
                )

            self._changed.wait_for(is_over)
            if self._stopped:
                raise ReplicaStopped
            if len(entries) < self.parties:
                raise ReplicaError(
                    f"replica {index} waits for the others at {topic}, but replica "
                    f"{self._absent(number)[0]} ended without coming there: every replica must run "
                    "the same layers"
                )
        _compare_topics(index, topic, entries)
        return [entries[party][1] for party in range(self.parties)]

    def leave(self, index: int) -> None:
        """Record that a party has ended and makes no more exchanges."""
        with self._changed:
            self._left.add(index)
            self._changed.notify_all()

    def stop(self) -> None:
        """End every exchange, present and future."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _absent(self, number: int) -> list[int]:
        """Return the parties that ended before a round."""
        return sorted(party for party in self._left if self._visits[party] <= number)


def _compare_topics(
    index: int, topic: str, entries: dict[int, tuple[str, Any]]
) -> None:
    """Check that all parties are at the same topic.

    Raises:
        ReplicaError: Another party is at another topic.
    """
    for party in sorted(entries):
        other, _ = entries[party]
        if other != topic:
            raise ReplicaError(
                f"replica {index} is at {topic} while replica {party} is at {other}: "
                f"every replica must run the same layers in the same order"
            )


_running: ContextVar[frozenset[int]] = ContextVar(
    "deliralike_calls_that_run", default=frozenset()
)


class CallLock:
    """A lock that lets the calls of one network run one after another, from whichever threads.

    A copy of a network has a lock of its own.
    """

    def __init__(self) -> None:
        """Create an open lock."""
        self._lock = threading.Lock()

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Wait for the calls of other threads, then run.

        Raises:
            ReplicaError: The caller is within such a call, which would wait for itself.
        """
        if id(self) in _running.get():
            raise ReplicaError(
                "a replica calls the replicated network that it belongs to: a loss in replicas "
                "computes with the network that it is given as its first argument"
            )
        with self._lock:
            token = _running.set(_running.get() | {id(self)})
            try:
                yield
            finally:
                _running.reset(token)

    def __reduce__(self) -> tuple:
        """Return what creates a new lock for a copy."""
        return CallLock, ()
