"""Conventions of dropout: what is dropped shows in the outputs, and so does what the rest is scaled with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deliralike.conformance.explain.variant import Call, Variant, number
from deliralike.conformance.findings import Accused

TOLERANCE = 1e-9


def dropout(accused: Accused, p: float) -> Iterator[Variant]:
    """The candidate's mask and scale, read off its outputs and held against the reference's."""
    x, wanted, usual = (
        np.asarray(one) for one in (accused.args[0], accused.candidate.outputs, accused.reference.outputs)
    )
    if x.shape != wanted.shape:
        return
    kept = (wanted != 0.0) | (x == 0.0)
    told = kept & (x != 0.0)
    ratios = wanted[told] / x[told]
    scale = float(np.median(ratios)) if ratios.size else 1.0
    if ratios.size and np.abs(ratios - scale).max() > TOLERANCE * max(1.0, abs(scale)):
        return
    same = bool((kept == ((usual != 0.0) | (x == 0.0))).all())
    cause = _cause(accused.training, p, scale, kept, same)
    exact = _exact(scale, p)
    yield Variant(cause, lambda call: _masked(call, kept, exact))


def _exact(scale: float, p: float) -> float:
    """The scale without rounding, where it is one that dropout may have."""
    likely = [1.0, *(one for value in (p, 1.0 - p) if value for one in (1.0 / value, value))]
    plain = 1.0 / round(1.0 / scale, 9) if scale else scale
    return next((one for one in [*likely, plain] if abs(one - scale) < TOLERANCE), scale)


def _cause(training: bool, p: float, scale: float, kept: np.ndarray, same: bool) -> str:
    def close(value: float) -> bool:
        return abs(scale - value) < TOLERANCE

    everything, share = bool(kept.all()), float(kept.mean())
    if not training:
        if everything:
            return f"outputs of evaluation scaled by {number(round(scale, 9))} (dropout without scaling in training)"
        return (
            f"dropout on in evaluation (p={number(round(1.0 - 1.0 / scale, 9))})"
            if scale > 1.0
            else ("dropout on in evaluation, unscaled")
        )
    if everything:
        return "dropout off in training" if close(1.0) else f"nothing dropped, but scaled by {number(round(scale, 9))}"
    where = "" if same else f"; another mask, {share:.0%} kept"
    if close(1.0):
        return f"dropout unscaled: what is kept is not divided by {number(1.0 - p)}{where}"
    if p and close(1.0 / p) and p != 0.5:
        return f"p and keep swapped: p={number(1.0 - p)} instead of {number(p)}, scaled by 1/{number(p)}{where}"
    if close(1.0 - p):
        return f"dropout multiplied with {number(1.0 - p)} instead of divided by it{where}"
    if close(1.0 / (1.0 - p)) if p < 1.0 else False:
        return f"another mask of dropout, scaled as it should be ({_structure(kept)}, {share:.0%} kept)"
    other = round(1.0 - 1.0 / scale, 9) if scale else 1.0
    return f"p={number(other)} instead of {number(p)} (scaled by {number(round(scale, 9))}{where})"


def _structure(kept: np.ndarray) -> str:
    """Along which axes the mask is the same."""
    shared = [axis for axis in range(kept.ndim) if kept.shape[axis] > 1 and (kept == kept.take([0], axis)).all()]
    return f"the same along axes {shared}" if shared else "element by element"


def _masked(call: Call, kept: np.ndarray, scale: float) -> Any:
    return call.args[0] * call.nn.constant(kept * scale, like=call.args[0])
