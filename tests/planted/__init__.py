"""Mistakes to plant in right optimizers, as data; networks are mutated by `tests.score`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deliralike.conformance.subject import Subject

Plant = Callable[[Subject], Subject]


@dataclass(frozen=True)
class Mistake:
    """One mistake, and what a proof should say of it.

    Attributes:
        name: In a few words: ``"adam: epsilon 3e-6"``.
        plant: From a right candidate to one with this mistake.
        place: Stands in a finding's place or what, for it to count as located.
        cause: Stands in the explanation's cause, for it to count as explained.
    """

    name: str
    plant: Plant
    place: str
    cause: str
