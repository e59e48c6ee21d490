"""Layers that write over their input, where that is read again: a meaning that a port has not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.conformance.by_name import without
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.levels import semantics
from deliralike.conformance.running import Running


def of_aliasing(running: Running) -> list[Finding]:
    """The layers of one side whose writing in place is all that makes the sides differ.

    Both sides agree when none of them writes in place, and differ when one alone does.
    """
    modes = running.modes.items()
    name, mode = next((name, mode) for name, mode in modes if not mode.agrees)
    for side, whose in (("reference", ""), ("candidate", " of the candidate")):
        blocks = getattr(running, side).network.named_blocks()
        writers = {path: block for path, block in blocks if _writes(block)}
        match = _difference(running, side, name, writers) if writers else np.inf
        if match > LIMIT:
            continue
        found = []
        for path, block in writers.items():
            others = without(writers, [path])
            if _difference(running, side, name, others) > LIMIT:
                kind = type(block).__name__
                words = f"{kind} in place{whose}: it writes over its input, which is read again"
                why = Explanation(words, match)
                found.append(
                    Finding(
                        "L3", path, "output", mode.worst, kind, name, explanation=why
                    )
                )
        return found
    return []


def _writes(block: Any) -> bool:
    """Whether a block is asked to write in place."""
    return getattr(block, "inplace", None) is True


def _difference(
    running: Running, side: str, name: str, blocks: Mapping[str, Any]
) -> float:
    """How far outputs and losses are when some blocks of one side leave their input as it is."""
    mode = running.modes[name]
    looks = {"reference": mode.reference, "candidate": mode.candidate}
    for block in blocks.values():
        block.inplace = False
    try:
        training, subject = semantics.MODES[name], getattr(running, side)
        looks[side] = semantics.look(subject, running.batch, training, running.elements)
    finally:
        for block in blocks.values():
            block.inplace = True
    if any(look.error for look in looks.values()):
        return np.inf
    both = looks["reference"], looks["candidate"]
    found = semantics.compared(*both, running.correspondence).differences
    return max(found["output"].difference, found["loss"].difference)
