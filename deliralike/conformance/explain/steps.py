"""Which step of each sequence is handed on: padded sequences end at different ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.causes import Cause
from deliralike.conformance.explain.wiring import Wiring
from deliralike.conformance.findings import MATCH, Explanation, is_floating

_CLOSE = 1e-9  # of one step, relative to the largest number
_FEW = 2  # so many sequences and steps tell something


def explain(wiring: Wiring) -> Explanation | None:
    """The steps that a candidate takes of the states of a sequence, and the reference's.

    Args:
        wiring: Its array is of shape ``(batch, width)``; some of its columns are states.
    """
    mine, theirs = wiring.reference, wiring.candidate
    if not is_floating(mine) or mine.ndim != 2 or np.shape(theirs) != mine.shape:
        return None
    for name, states, columns in _states(wiring.sources, mine):
        usual, came = _steps(states, mine[:, columns]), _steps(states, theirs[:, columns])
        if usual is None or came is None or np.array_equal(usual, came):
            continue
        lengths = (usual + 1) / np.maximum(came + 1, 1)
        for beside, factor in (("", 1.0), (", and means over as many", lengths[:, None])):
            made = mine * factor
            made[:, columns] = states[np.arange(len(states)), came]
            match = relative_difference(made, theirs)
            if match <= MATCH:
                said = _words(came, usual, states.shape[1]) + beside
                cause = Cause(f"steps that are taken of {name}:", said, f"{usual.tolist()}")
                return Explanation.of([cause], match, relative_difference(mine, theirs))
    return None


def _states(
    sources: Mapping[Any, np.ndarray], array: np.ndarray
) -> Iterator[tuple[Any, np.ndarray, slice]]:
    """Sequences ``(batch, steps, width)`` with the columns that one step of each may fill."""
    for name, states in sources.items():
        if states.ndim != 3 or len(states) != len(array) or min(states.shape[:2]) < _FEW:
            continue
        for first in range(array.shape[1] - states.shape[2] + 1):
            yield name, states, slice(first, first + states.shape[2])


def _steps(states: np.ndarray, rows: np.ndarray) -> np.ndarray | None:
    """The step of each sequence that is its row; None where one has none."""
    apart = np.abs(states - rows[:, None]).max(-1)
    steps = apart.argmin(1)
    nearest = apart[np.arange(len(states)), steps]
    return steps if nearest.max() <= _CLOSE * np.abs(states).max() else None


def _words(came: np.ndarray, usual: np.ndarray, count: int) -> str:
    shift = came - usual
    if not came.any():
        return f"the first of each, {came.tolist()}"
    if (came == count - 1).all():
        return f"the last one of all, after the padding, {came.tolist()}"
    if (shift == shift[0]).all():
        side = "before" if shift[0] < 0 else "after"
        return f"{abs(shift[0])} {side} the last one of each length, {came.tolist()}"
    return f"{came.tolist()}"
