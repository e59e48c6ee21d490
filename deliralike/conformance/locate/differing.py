"""What differs between two runs of a unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deliralike.conformance.agreement import differences
from deliralike.conformance.by_name import only
from deliralike.conformance.findings import LIMIT, Observed, is_array
from deliralike.conformance.locate.place import Allowed
from deliralike.conformance.observe.units import Recording
from deliralike.conformance.places import Quantity, arguments, named
from deliralike.conformance.ulp import EPS
from deliralike.weights.matching.distance import norm


def first_difference(
    reference: Observed, candidate: Observed, allowed: Allowed | None = None
) -> tuple[Quantity | None, float]:
    """Return what differs first, forward before backward, and its distance; None if nothing does.

    What one side lacks is left out.

    Args:
        allowed: What may differ by more than the usual limit, and by how much.
    """
    return first_of(all_differences(reference, candidate), allowed or {})


def first_of(
    distances: Mapping[Quantity, float], allowed: Allowed
) -> tuple[Quantity | None, float]:
    """The first distance above what is allowed."""
    for name, distance in distances.items():
        if distance > max(LIMIT, allowed.get(name, 0.0)):
            return name, distance
    return None, 0.0


def all_differences(
    reference: Observed, candidate: Observed, cotangent: Sequence[Any] = ()
) -> dict[Quantity, float]:
    """Of each array that both sides have, forward before backward.

    Args:
        cotangent: The arrays that the gradients come from, where it is known. A gradient in which
            they cancel out is rounding on both sides, which does not count.
    """
    expected, actual = reference.gradients(), candidate.gradients()
    backward = _of_shared(expected, actual)
    noise = EPS * sum(
        float(np.abs(array).sum()) for array in cotangent if is_array(array)
    )
    for name in backward:
        if np.isfinite(noise) and _are_within(noise, expected[name], actual[name]):
            backward[name] = 0.0
    return forward_differences(reference, candidate) | backward


def forward_differences(
    reference: Observed, candidate: Observed
) -> dict[Quantity, float]:
    """Of each array of the forward pass that both sides have."""
    return _of_shared(reference.values(), candidate.values())


def _are_within(distance: float, one: Any, two: Any) -> bool:
    """Whether two arrays of one shape are no farther from each other."""
    if not (is_array(one) and is_array(two)) or one.shape != two.shape:
        return False
    with np.errstate(invalid="ignore"):  # an infinity minus itself
        return norm(one - two) <= distance


def _of_shared(
    expected: Mapping[Quantity, Any], actual: Mapping[Quantity, Any]
) -> dict[Quantity, float]:
    shared = only(expected, actual)
    return differences(shared, only(actual, shared))


def agrees(recording: Recording, free: Observed | None) -> bool:
    """Whether a unit gives at equal inputs what the reference's unit gives."""
    if free is None:
        return False
    gradients = named(arguments(recording.inputs, {}), recording.inputs)
    expected = Observed(
        recording.output, gradients, recording.parameters, recording.state
    )
    return bool(free.values()) and first_difference(expected, free)[0] is None
