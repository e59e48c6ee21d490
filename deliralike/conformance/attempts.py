"""Attempts to match and to explain: one that fails is a line of the report, and never its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from deliralike.conformance.observe.raised import in_words

T = TypeVar("T")


class Attempts:
    """What was tried in one comparison.

    Attributes:
        notes: A sentence for each attempt that failed.
    """

    def __init__(self) -> None:
        """Nothing has been tried yet."""
        self.notes: list[str] = []

    def __call__(self, what: str, function: Callable[[], T], otherwise: T) -> T:
        """The function's result, or something else where it raises an error.

        Args:
            what: The attempt as the subject of a sentence: ``"Writing in place"``.
        """
        try:
            return function()
        except Exception as error:  # noqa: BLE001  # of whatever arrays strangers' networks make
            note = f"{what} failed and was left out: {in_words(error)}."
            if note not in self.notes:
                self.notes.append(note)
            return otherwise
