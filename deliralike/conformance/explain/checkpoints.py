"""Why a tensor comes back from a file changed: the known ways, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain import arrays
from deliralike.conformance.explain.arrays import Array, Way
from deliralike.conformance.findings import MATCH, Explanation

Arrays = Mapping[str, Array]


def tensor(name: str, wanted: Arrays, came: Arrays, before: Arrays, limit: float) -> Explanation:
    """What became of one tensor.

    Args:
        wanted: All tensors as they were sent.
        came: As they arrived.
        before: What the receiver had before.
        limit: Up to here two tensors count as equal.
    """
    if name not in came or name not in wanted:
        said = "is missing" if name not in came else "should not be there"
        return Explanation.seen(f"{name} {said}")
    y, kind = np.asarray(came[name], np.float64), came[name].dtype
    dtypes = f"dtype {kind} instead of {wanted[name].dtype}"
    found = arrays.met(_ways(name, wanted, before, y), y, max(limit, np.finfo(float).eps))
    if found is None:
        away = relative_difference(wanted[name], y)
        found = arrays.met(_fitted(np.asarray(wanted[name], np.float64), y), y, MATCH)
        if found is None:
            return Explanation(f"{dtypes}, apart by {away:.0e} of its size", np.inf)
    cause = found.cause
    if cause == "as it was":
        cause = dtypes
    elif y.ndim and kind != wanted[name].dtype and kind.kind == "f":
        cause = f"{cause} ({dtypes})"
    return replace(found, cause=cause)


def _ways(name: str, wanted: Arrays, before: Arrays, y: Array) -> Iterator[Way]:
    """Known ways in which a tensor is changed, simple ones first."""
    x = np.asarray(wanted[name], np.float64)
    yield "as it was", x
    for words, made in arrays.roundings(x):
        yield f"{words} on the way", made
    if name in before:
        yield "not restored: the value from before", np.asarray(before[name], np.float64)
    for by in (1, -1) if not x.ndim else ():
        yield f"counted by {by:+d}", x + by
    for words, made in arrays.constants(x):
        yield f"lost: {words}", made
    yield from arrays.layouts(x)
    for words, made in arrays.exchanged(name, wanted, y.shape):
        yield words.replace("holds", "exchanged with"), made
    yield from arrays.functions(x)
    yield from arrays.blocks(x, name)
    if x.ndim:
        yield "rows reversed", np.flip(x, 0)


def _fitted(x: Array, y: Array) -> Iterator[Way]:
    """One number, of more than two."""
    if x.shape == y.shape and x.size > 2 and x.any():
        scale = float((x * y).sum() / (x * x).sum())
        yield f"scaled by {scale:.6g}", scale * x
        shift = float((y - x).mean())
        yield f"shifted by {shift:.6g}", x + shift
