"""Why a network over replicas differs from one on the whole batch: known ways of going wrong, tried one by one."""

from __future__ import annotations

from typing import Any

from deliralike.conformance.findings import Explanation
from deliralike.conformance.one_step import Step
from deliralike.conformance.subject import Subject


class Explanations:
    """What explains each kind of tensor that differs."""

    def __init__(self, reference: Subject, batch: tuple[Any, ...], count: int, wanted: Step, came: Step) -> None:
        """For one number of replicas; nothing is computed yet."""
        self.reference, self.batch, self.count, self.wanted, self.came = reference, batch, count, wanted, came

    def of(self, kind: str) -> Explanation | None:
        """The nearest way of going wrong."""
        return None
