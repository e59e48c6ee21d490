"""Tables, such as encodings of positions, that the reference computed in float32."""

from __future__ import annotations

import numpy as np

from deliralike.conformance.explain.glue import Glue
from deliralike.conformance.findings import Explanation, is_array
from deliralike.conformance.last_bit import fits

_BITS = 24  # of the significand of float32
_REACH = 1e-4  # of the largest number of a table: how far computing it in float32 may bring others
_NOISE = 1e-14  # of numbers in float64
_ENOUGH = 16  # so many differences are not the same in all samples by chance


def explain(glue: Glue) -> Explanation | None:
    """Return the table that is another one in float64, where it is added.

    A buffer that was computed in float32 stays as it is in a copy in float64. A port that computes
    it in float64 differs from that by little, and by the same numbers in all samples.
    """
    mine, theirs = glue.reference, glue.candidate
    if not (is_array(mine) and is_array(theirs)) or mine.shape != theirs.shape:
        return None
    if mine.dtype.kind != "f" or not np.isfinite(mine).all():
        return None
    noise = _NOISE * np.abs(mine).max(initial=0.0)
    for name, table in glue.tables.items():
        part = _added(table, mine.shape)
        if part is None or not fits(part, _BITS).all():
            continue
        apart = (theirs - mine).reshape(-1, *part.shape)
        largest = np.abs(apart).max()
        is_alike = len(apart) > 1 and np.abs(apart - apart[0]).max() <= noise
        is_enough = (np.abs(apart[0]) > noise).sum() >= _ENOUGH
        if is_alike and is_enough and largest <= _REACH * np.abs(part).max():
            return Explanation.seen(
                f"{name} being computed in float32, which holds its numbers: the rest is at most "
                f"{largest:.1e}, and the same in all samples"
            )
    return None


def _added(table: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return what is added of a table to an array: its beginning, where it is longer."""
    while table.ndim and table.shape[0] == 1:
        table = table[0]
    if table.dtype.kind != "f" or not 0 < table.ndim < len(shape):
        return None
    wanted = shape[len(shape) - table.ndim :]
    part = table[: wanted[0]]
    return part if part.shape == wanted else None
