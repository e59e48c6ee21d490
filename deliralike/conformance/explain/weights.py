"""Why weights differ: another layout, another order, another scale, or another start."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.explain import arrays
from deliralike.conformance.explain.arrays import Array, Way
from deliralike.conformance.explain.relations import nearest
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Arrays


def explain_weights(reference: Arrays, candidate: Arrays) -> list[tuple[str, Explanation]]:
    """What was done to each tensor that differs.

    Args:
        reference, candidate: Weights by the same names; tensors that one of them lacks are left
            out.

    Returns:
        Names and explanations, in the reference's order; a cause that cannot be told is not known.

    Example:
        >>> weight = np.arange(6.0).reshape(2, 3)
        >>> [(name, why.cause) for name, why in explain_weights({"fc.weight": weight}, {"fc.weight": -weight})]
        [('fc.weight', 'negated (the sign)')]
    """
    mine = {name: _numbers(value) for name, value in reference.items()}
    both = only(mine, candidate).items()
    wrong = [name for name, value in both if relative_difference(value, candidate[name]) > LIMIT]
    return [(name, _explained(name, mine, _numbers(candidate[name]), wrong)) for name in wrong]


def _numbers(value: Array) -> Array:
    """A mask's truth values as numbers."""
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def _explained(
    name: str,
    reference: Arrays,
    came: Array,
    wrong: list[str],
) -> Explanation:
    """What was done to one tensor.

    Args:
        name: Of the tensor.
        reference: All tensors as they are to be.
        came: What is in its place.
        wrong: The names of those that differ.
    """
    value = np.asarray(reference[name], np.float64)
    apart = min(relative_difference(value, came), 1e300)
    limit = min(MATCH, 1e-3 * apart)
    found = arrays.met(_ways(name, reference, came, wrong), came, limit)
    if found is not None:
        return Explanation(found.cause, found.match, apart)
    general = nearest(value, came)
    if general is not None and general.distance <= limit:
        return Explanation(general.cause, general.distance, apart)
    found = arrays.met(_fitted(value, came), came, limit)
    if found is not None:
        return Explanation(found.cause, found.match, apart)
    return arrays.compared(value, came)


def _ways(name: str, reference: Arrays, came: Array, wrong: list[str]) -> Iterator[Way]:
    """Those without a number."""
    value = np.asarray(reference[name], np.float64)
    if (came != came.flat[:1]).any():
        for words, other in arrays.exchanged(name, reference, came.shape):
            how = "exchanged" if words.removeprefix("holds ") in wrong else "a copy of the other"
            yield f"{words} ({how})", other
    if came.size > 1:
        yield from arrays.layouts(value)
    if value.shape == came.shape:
        yield from arrays.blocks(value, name)
    yield from arrays.split(value, came)


def _fitted(value: Array, came: Array) -> Iterator[Way]:
    """Those with numbers that are read off the candidate: fewer than it has elements."""
    if value.shape != came.shape:
        return
    if value.ndim == 1 and len(value) % 4 == 0 and len(value) > 4:
        gates = ("block i", "forget gate's bias", "block g", "block o")
        for place, part in enumerate(np.split(came - value, 4)):
            shift = float(part.mean())
            added = np.repeat(np.arange(4) == place, len(value) // 4) * shift
            yield f"{gates[place]} plus {shift:.6g}", value + added
