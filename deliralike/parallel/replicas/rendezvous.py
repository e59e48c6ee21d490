"""A rendezvous of replicas that run side by side: each gives a value, and all get all of them."""

from __future__ import annotations

import threading
from typing import Any

from deliralike.errors import ReplicaError


class ReplicaStopped(BaseException):
    """Raised in a replica to end it because another one failed; never reaches the user."""


class Rendezvous:
    """Rounds of exchange between a fixed number of parties.

    Every party must come to the same rounds in the same order. A party that fails or ends early
    ends the others at once: nobody waits for someone who does not come.
    """

    def __init__(self, parties: int) -> None:
        """Open the rendezvous."""
        self.parties = parties
        self._changed = threading.Condition()
        self._rounds: dict[int, dict[int, tuple[str, Any]]] = {}
        self._visits = [0] * parties
        self._left: set[int] = set()
        self._stopped = False

    def exchange(self, index: int, topic: str, value: Any) -> list[Any]:
        """Give a value and wait for the others'; the values in the order of parties.

        Args:
            topic: What the value is; all parties must name the same.

        Raises:
            ReplicaError: Another party came with another topic, or ended without coming.
            ReplicaStopped: The rendezvous was stopped.
        """
        with self._changed:
            number = self._visits[index]
            self._visits[index] += 1
            present = self._rounds.setdefault(number, {})
            present[index] = (topic, value)
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._stopped or len(present) == self.parties or bool(self._absent(number))
            )
            if self._stopped:
                raise ReplicaStopped
            self._refuse_absent(index, topic, number, present)
            self._forget(number)
        self._refuse_other_topics(index, topic, present)
        return [present[party][1] for party in range(self.parties)]

    def leave(self, index: int) -> None:
        """Say that a party has ended and comes no more."""
        with self._changed:
            self._left.add(index)
            self._changed.notify_all()

    def stop(self) -> None:
        """End every exchange, those that wait and those to come."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _absent(self, number: int) -> list[int]:
        """Who ended without coming to a round."""
        return sorted(party for party in self._left if self._visits[party] <= number)

    def _refuse_absent(self, index: int, topic: str, number: int, present: dict[int, Any]) -> None:
        if len(present) < self.parties and (absent := self._absent(number)):
            raise ReplicaError(
                f"replica {index} waits for the others at {topic}, but replica {absent[0]} ended "
                "without coming there: every replica must run the same layers"
            )

    def _refuse_other_topics(
        self, index: int, topic: str, present: dict[int, tuple[str, Any]]
    ) -> None:
        for party, (other, _) in sorted(present.items()):
            if other != topic:
                raise ReplicaError(
                    f"replica {index} is at {topic} while replica {party} is at {other}: "
                    f"every replica must run the same layers in the same order"
                )

    def _forget(self, number: int) -> None:
        """Drop a round that every party has read."""
        for old in [old for old in self._rounds if old < number - 1]:
            del self._rounds[old]
