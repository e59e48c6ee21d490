"""A rendezvous of replicas that run in threads: each gives a value, and all get all values."""

from __future__ import annotations

import threading
from typing import Any

from deliralike.errors import ReplicaError


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
            self._drop_rounds_before(number - 1)
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

    def _drop_rounds_before(self, number: int) -> None:
        """Drop rounds that every party has read."""
        for old in list(self._rounds):
            if old < number:
                del self._rounds[old]


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
