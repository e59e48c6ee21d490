"""Why a tensor comes back from a file changed: the known ways, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import Explanation

Arrays = Mapping[str, np.ndarray]


def tensor(name: str, wanted: Arrays, came: Arrays, before: Arrays, limit: float) -> Explanation:
    """What became of one tensor.

    Args:
        wanted: All tensors as they were sent.
        came: As they arrived.
        before: What the receiver had before.
        limit: Up to here two tensors count as equal.
    """
    if name not in came:
        return Explanation(f"{name} is missing", 0.0)
    if name not in wanted:
        return Explanation(f"{name} should not be there", 0.0)
    y = np.asarray(came[name], np.float64)
    tried = [(relative_difference(x, y), cause) for cause, x in _ways(name, wanted, before, y)]
    tried = sorted(
        ((0.0 if far <= limit else far, cause) for far, cause in tried), key=lambda pair: pair[0]
    )
    (match, cause), *others = tried
    kind = came[name].dtype
    if match == 0.0 and cause == "as it was":
        cause = f"dtype {kind} instead of {wanted[name].dtype}"
    elif y.ndim and kind != wanted[name].dtype and kind.kind == "f":
        cause = f"{cause} (dtype {kind} instead of {wanted[name].dtype})"
    return Explanation(cause, match, next((far for far, _ in others if far > match), None))


def _ways(
    name: str, wanted: Arrays, before: Arrays, y: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Known ways in which a tensor is changed, simple ones first."""
    x = np.asarray(wanted[name], np.float64)
    yield "as it was", x
    yield from _roundings(x)
    if name in before:
        yield "not restored: the value from before", np.asarray(before[name], np.float64)
    yield "lost: zeros", np.zeros_like(x)
    if not x.ndim and not y.ndim:
        yield f"{'counted' if x == np.rint(x) else 'changed'} by {float(y - x):+g}", y
    yield "lost: ones", np.ones_like(x)
    yield from _turns(x)
    for other, value in wanted.items():
        if other != name and value.shape == y.shape:
            yield f"exchanged with {other}", np.asarray(value, np.float64)
    yield "the square root", np.sqrt(np.abs(x))
    yield "the square", x * x
    yield "the inverse", 1.0 / np.where(x == 0.0, 1.0, x)
    if x.shape == y.shape and x.any():
        scale = float((x * y).sum() / (x * x).sum())
        yield f"scaled by {scale:.6g}", scale * x
        yield f"shifted by {(y - x).mean():.6g}", x + (y - x).mean()


def _roundings(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    with np.errstate(over="ignore"):
        for kind in (np.float32, np.float16):
            yield f"rounded to {np.dtype(kind).name} on the way", x.astype(kind).astype(np.float64)
        bits = x.astype(np.float32).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    for words, short in (("rounded", nearest), ("cut", bits & 0xFFFF0000)):
        yield (
            f"{words} to bfloat16 on the way",
            short.astype(np.uint32).view(np.float32).astype(np.float64),
        )
    for decimals in range(2, 13):
        yield f"rounded to {decimals} decimals", np.round(x, decimals)
    yield "rounded to whole numbers", np.rint(x)


def _turns(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Other layouts, mirrored axes, blocks of rows in another order."""
    for order in list(permutations(range(x.ndim)))[1:]:
        words = "transposed" if order == (1, 0) else f"transposed: axes in the order {list(order)}"
        yield words, np.transpose(x, order)
        yield (
            f"reshaped in the place of a transpose to {list(order)}",
            np.transpose(x, order).reshape(x.shape),
        )
    if x.ndim:
        yield "rows reversed", np.flip(x, 0)
        yield "written in Fortran's order and read in C's", x.ravel("F").reshape(x.shape)
    if x.ndim > 2:
        yield "kernel flipped", np.flip(x, tuple(range(2, x.ndim)))
    for blocks in (2, 3, 4):
        if x.ndim and x.shape[0] % blocks == 0 and x.shape[0] > blocks:
            parts = np.split(x, blocks)
            for order in list(permutations(range(blocks)))[1:]:
                yield (
                    f"blocks of rows (gates) in the order {list(order)}",
                    np.concatenate([parts[i] for i in order]),
                )
            yield f"rows of {blocks} blocks interleaved", np.stack(parts, 1).reshape(x.shape)
