"""The variance behind a candidate's outputs: in one pass, E[x²] - E[x]², it has rounding errors.

These depend on the order of sums, which no other framework repeats, so that running the formula
does not give the candidate's numbers where the mean is far from zero. Their size is known, and with
them the outputs come out exactly.
"""

from __future__ import annotations

import numpy as np

from deliralike.conformance.explain.convention import Arguments, Convention, values

_ROUNDINGS = 64.0  # so many of the mean's square there may be
_PRECISIONS = {"": 2.0**-53, " in float32": 2.0**-24}
_FEW = 4  # so many numbers must tell of one variance


def conventions(given: Arguments) -> list[Convention]:
    """One pass with the errors that the outputs show, where those are of the size of rounding."""
    x, wanted = given["x"], given.get("wanted")
    shape = given.get("split", x.shape)
    if wanted is None or wanted.shape != x.shape:
        return []
    part, axes = x.reshape(shape), given["axes"]
    weight, bias = _learned(given, "weight", 1.0), _learned(given, "bias", 0.0)
    came = (wanted - bias).reshape(shape)
    mean, var = part.mean(axes, keepdims=True), part.var(axes, keepdims=True)
    scale = np.broadcast_to(weight, x.shape).reshape(shape)
    centred = (part - mean) * scale
    with np.errstate(all="ignore"):
        share = (came * centred).sum(axes, keepdims=True)
        share = share / np.square(centred).sum(axes, keepdims=True)
        error = 1.0 / np.square(share) - given["eps"] - var
    if error.size * _FEW > x.size:
        return []
    for words, precision in _PRECISIONS.items():
        if (np.abs(error) <= _ROUNDINGS * precision * (np.square(mean) + var)).all():
            known = f"one-pass variance E[x²] - E[x]²{words} (rounding errors of that size)"
            return [values("error", {known: error}, "computed with")]
    return []


def _learned(given: Arguments, name: str, usual: float) -> np.ndarray | float:
    """What is learned in the shape in which it is used, or the number that stands for none."""
    array = given.get(name)
    if array is None:
        return usual
    return array.reshape(given.get("learned") or -1) if array.ndim == 1 else array
