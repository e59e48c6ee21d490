"""Why weights differ: another layout, another order, another scale, or another start.

A change is executed on the reference's array and compared with the candidate's; the number of a
report is that difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.explain.relations import nearest
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Arrays

Array = np.ndarray
Way = tuple[str, Array]  # what a report says, and what the reference's array becomes
_MANY = 32  # elements from which on a spread says something


def explain_weights(
    reference: Arrays, candidate: Arrays
) -> list[tuple[str, Explanation]]:
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
    expected = {
        name: np.asarray(value, np.float64) for name, value in reference.items()
    }
    actual = {name: np.asarray(value, np.float64) for name, value in candidate.items()}
    both = only(expected, actual).items()
    wrong = [
        name for name, value in both if relative_difference(value, actual[name]) > LIMIT
    ]
    return [(name, _explained(name, expected, actual[name], wrong)) for name in wrong]


def _explained(
    name: str, reference: Arrays, came: Array, wrong: list[str]
) -> Explanation:
    """What was done to one tensor; `came` is in its place, and `wrong` all that differ."""
    value = reference[name]
    apart = min(relative_difference(value, came), 1e300)
    limit = min(MATCH, 1e-3 * apart)
    for cause, other in _ways(name, reference, came, wrong):
        distance = relative_difference(other, came)
        if distance <= limit:
            return Explanation(cause, distance, apart)
    found = nearest(value, came)
    if found is not None and found.distance <= limit:
        return Explanation(found.cause, found.distance, apart)
    return compared(value, came)


def _ways(name: str, reference: Arrays, came: Array, wrong: list[str]) -> Iterator[Way]:
    """What the tensor may have become, the simple things first."""
    value = reference[name]
    if (came != came.flat[:1]).any():
        for other, array in reference.items():
            if other != name and array.shape == came.shape:
                how = "exchanged" if other in wrong else "a copy of the other"
                yield f"holds {other} ({how})", array
    if value.ndim > 2:
        yield "kernel flipped", np.flip(value, tuple(range(2, value.ndim)))


def compared(wanted: Array, came: Array) -> Explanation:
    """What there is to look at where nothing is known: where they are farthest apart, how alike."""
    if wanted.shape != came.shape:
        return Explanation(f"shape {came.shape} instead of {wanted.shape}", np.inf)
    if not np.isfinite(came).all():
        return Explanation.from_observation(
            f"{int((~np.isfinite(came)).sum())} values that are not finite"
        )
    apart = came - wanted
    place = np.unravel_index(int(np.argmax(np.abs(apart))), wanted.shape)
    at = ", ".join(map(str, map(int, place)))
    text = f"[{at}] is {came[place]:.9g} instead of {wanted[place]:.9g}"
    if wanted.size >= _MANY:
        text += f"; spread {came.std():.3g} instead of {wanted.std():.3g}"
    return Explanation(text, np.inf)
