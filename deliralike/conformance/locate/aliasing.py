"""Layers that write over their input, where that is read again: a meaning that a port has not."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.levels import semantics
from deliralike.conformance.running import Running
from deliralike.conformance.subject import Subject


def of_aliasing(running: Running) -> list[Finding]:
    """The layers of one side whose writing in place is all that makes the sides differ.

    Both sides agree when none of them writes in place, and differ when one alone does.
    """
    name, mode = next(
        (name, mode) for name, mode in running.modes.items() if not mode.agrees
    )
    for side in ("reference", "candidate"):
        subject: Subject = getattr(running, side)
        writers = _writers(subject)
        if not writers:
            continue
        match = _difference(running, side, name, writers)
        if match > LIMIT:
            continue
        found = []
        for path, block in writers.items():
            others = [other for other in writers if other != path]
            if _difference(running, side, name, others) <= LIMIT:
                continue
            kind, whose = (
                type(block).__name__,
                "" if side == "reference" else " of the candidate",
            )
            cause = (
                f"{kind} in place{whose}: it writes over its input, which is read again"
            )
            why = Explanation(cause, match)
            found.append(
                Finding("L3", path, "output", mode.worst, kind, name, explanation=why)
            )
        return found
    return []


def _writers(subject: Subject) -> dict[str, Any]:
    """The blocks of a network that are asked to write in place, by path."""
    blocks = subject.network.named_blocks()
    return {
        path: block for path, block in blocks if getattr(block, "inplace", None) is True
    }


@contextmanager
def _out_of_place(subject: Subject, paths: Collection[str]) -> Iterator[None]:
    """Let some blocks leave their input as it is."""
    blocks = [block for path, block in _writers(subject).items() if path in paths]
    for block in blocks:
        block.inplace = False
    try:
        yield
    finally:
        for block in blocks:
            block.inplace = True


def _difference(
    running: Running, side: str, name: str, paths: Collection[str]
) -> float:
    """How far outputs and losses are when some blocks of one side leave their input as it is."""
    subject: Subject = getattr(running, side)
    sides = {
        side_: getattr(running.modes[name], side_)
        for side_ in ("reference", "candidate")
    }
    with _out_of_place(subject, paths):
        training = semantics.MODES[name]
        sides[side] = semantics.look(subject, running.batch, training, running.elements)
    if sides["reference"].error or sides["candidate"].error:
        return float("inf")
    found = semantics.compared(
        **sides, correspondence=running.correspondence
    ).differences
    return max(found["output"].difference, found["loss"].difference)
