"""Known changes of an array as a table: rounded, turned, in other blocks, exchanged.

Weights, checkpoints and samples share it. A change is executed on the reference's array and
compared with the candidate's; the number of a report is that difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.enumeration import divisors, other_orders
from deliralike.conformance.findings import MATCH, Explanation
from deliralike.conformance.kinds import Arrays, Shape

Array = np.ndarray
Way = tuple[str, Array]  # what a report says, and what the reference's array becomes
_MANY = 32  # elements from which on a spread says something
_FEW = 8  # ways to split an axis that are tried
_SMALL = 2**16  # elements; more are not tried in every order


def met(ways: Iterable[Way], came: Array, limit: float) -> Explanation | None:
    """The first way that gives the candidate's array; None where none does.

    Args:
        ways: The simple ones first.
        came: The candidate's array.
        limit: Up to here two arrays count as equal.
    """
    nearest = np.inf
    for cause, made in ways:
        away = relative_difference(made, came)
        if away <= limit:
            return Explanation(cause, away, nearest, max(limit, MATCH))
        nearest = min(nearest, away)
    return None


def compared(wanted: Array, came: Array) -> Explanation:
    """What there is to look at where nothing is known: where they are farthest apart, how alike."""
    if wanted.shape != came.shape:
        return Explanation(f"shape {came.shape} instead of {wanted.shape}", np.inf)
    if not np.isfinite(came).all():
        return Explanation.seen(f"{int((~np.isfinite(came)).sum())} values that are not finite")
    apart = came - wanted
    place = np.unravel_index(int(np.argmax(np.abs(apart))), wanted.shape)
    at = ", ".join(map(str, map(int, place)))
    said = f"[{at}] is {came[place]:.9g} instead of {wanted[place]:.9g}"
    if wanted.size < _MANY:
        return Explanation(said, np.inf)
    said += f"; spread {came.std():.3g} instead of {wanted.std():.3g}"
    noise = f"{apart.std() / (wanted.std() or 1.0):.0e} of the spread, with mean {apart.mean():.1e}"
    if wanted.std() and came.std():
        said += f", correlation {np.corrcoef(wanted.ravel(), came.ravel())[0, 1]:.3f}"
    return Explanation(f"{said}; the difference (noise?) is {noise}", np.inf)


def layouts(x: Array) -> Iterator[Way]:
    """Kernels flipped, axes in another order, with and without a reshape to the old shape."""
    if x.ndim > 2:
        yield "kernel flipped", np.flip(x, tuple(range(2, x.ndim)))
    named = {
        (1, 0): "transposed",
        (2, 3, 1, 0): "HWIO instead of OIHW",
        (0, 2, 3, 1): "OHWI instead of OIHW",
        (1, 0, 2, 3): "IOHW instead of OIHW (input and output channels exchanged)",
        (0, 1, 3, 2): "kernel transposed (height and width exchanged)",
    }
    for order in other_orders(x.ndim):
        words = named.get(order, f"transposed: axes in the order {list(order)}")
        moved = x.transpose(order)
        yield words, moved
        yield f"{words}, reshaped", moved.reshape(x.shape)
    if x.ndim > 3:
        flipped = np.flip(x, tuple(range(2, x.ndim))).swapaxes(0, 1)
        yield "kernel flipped, input and output channels exchanged", flipped
    if x.ndim > 1:
        yield "written in Fortran's order and read in C's", x.ravel("F").reshape(x.shape)


def blocks(x: Array, name: str) -> Iterator[Way]:
    """Blocks of rows in another order: gates of an LSTM or GRU, or queries, keys and values."""
    of_three = "rzn" if "_ih" in name or "_hh" in name else "qkv"
    for letters in ("ifgo", of_three, "ab"):
        count = len(letters)
        if not x.ndim or len(x) % count or len(x) == count:
            continue
        parts = np.split(x, count)
        for order in other_orders(count):
            words = ", ".join(letters[place] for place in order)
            moved = np.concatenate([parts[place] for place in order])
            yield f"blocks in the order {words} instead of {', '.join(letters)}", moved
        yield f"the {count} blocks interleaved", np.stack(parts, 1).reshape(x.shape)


def exchanged(name: str, others: Arrays, shape: Shape) -> Iterator[Way]:
    """The values of another tensor."""
    for other, value in others.items():
        if other != name and value.shape == shape:
            yield f"holds {other}", np.asarray(value, np.float64)


def split(x: Array, came: Array) -> Iterator[Way]:
    """Both axes of a matrix split into two, permuted and joined again, as by a wrong reshape."""
    if x.ndim != 2 or x.size != came.size or x.size > _SMALL:
        return
    for first in divisors(x.shape[0])[:_FEW]:
        for second in divisors(x.shape[1])[:_FEW]:
            shape = (first, x.shape[0] // first, second, x.shape[1] // second)
            if sum(size > 1 for size in shape) < 3:
                continue
            for order in other_orders(4):
                words = f"reshaped to {shape}, axes permuted to {order}, and reshaped back"
                yield words, x.reshape(shape).transpose(order).reshape(came.shape)
