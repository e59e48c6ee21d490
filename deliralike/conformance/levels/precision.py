"""How exact a candidate is in float32, in a sentence: information, and no verdict.

The measure is the reference in float64. Two right networks may differ much in float32, where sums
cancel or are computed in another order.
"""

from __future__ import annotations

import numpy as np

from deliralike.conformance.agreement import largest_difference
from deliralike.conformance.findings import short
from deliralike.conformance.kinds import Batch
from deliralike.conformance.loss_tracing import first_call
from deliralike.conformance.matching.aligning import align
from deliralike.conformance.subject import Subject

_ALIKE = 2.0  # times the error: that is said as "as exact"
_SMALLEST = (
    float(np.finfo(np.float32).eps) / 4
)  # no result in float32 can be asked for more


def in_words(reference: Subject, candidate: Subject, batch: Batch) -> str:
    """Say how exact a candidate's outputs in evaluation are in float32, beside the reference's.

    Args:
        reference, candidate: In float64, with weights that float32 holds, as the batch does.
    """
    sides = reference, reference.in_dtype("float32"), candidate.in_dtype("float32")
    with np.errstate(all="ignore"):  # an overflow is said below
        exact, expected, actual = (first_call(side, batch) for side in sides)
    usual = largest_difference(exact, expected)
    other = largest_difference(exact, align(exact, actual).back(actual, exact))
    if np.isfinite(usual) and not np.isfinite(other):
        return "Float32 outputs are not finite, other than the reference's."
    sizes = short(f"({other:.0e}, {usual:.0e})")
    times = other / max(usual, _SMALLEST)
    if times <= _ALIKE:
        return f"Float32 outputs are as exact as the reference's {sizes}."
    return f"Float32 outputs are {times:.0f} times less exact than the reference's {sizes}."
