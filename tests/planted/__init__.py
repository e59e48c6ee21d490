"""Mistakes to plant in a right candidate, as data: what the proof is scored with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deliralike.conformance.subject import Subject


@dataclass(frozen=True)
class Mistake:
    """One mistake, and what a proof should say of it.

    Attributes:
        name: In a few words: ``"batch norm: eps 2e-5"``.
        group: What it is about: ``"batch norm"``, ``"optimizer"`` …
        plant: From a right candidate to one with this mistake.
        place: Texts of which one must stand in a finding's place, kind or what, for it to count as
            located.
        cause: Texts of which one must stand in the explanation's cause, for it to count as
            explained.
        fixture: The name of the subject that it is planted in; see
            `tests.planted.fixtures`.
        needs: Capabilities of a backend without which it cannot be expressed.
    """

    name: str
    group: str
    plant: Callable[[Subject], Subject]
    place: tuple[str, ...]
    cause: tuple[str, ...]
    fixture: str = "convolutional"
    needs: tuple[str, ...] = ()
