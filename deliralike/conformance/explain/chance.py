"""Conventions of dropout: the outputs show what is dropped and how the rest is scaled."""

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
        np.asarray(one)
        for one in (accused.args[0], accused.candidate.outputs, accused.reference.outputs)
    )
    if x.shape != wanted.shape:
        return
    yield Variant(
        "gradient of what is dropped too",
        lambda call: _open_gradient(call, usual, 1.0 / (1.0 - p) if p < 1 else 0.0),
    )
    yield Variant(
        "gradient of the identity: of what is dropped too",
        lambda call: _open_gradient(call, usual, 1.0),
    )
    yield Variant(
        "gradient without the scale 1 / (1 - p)", lambda call: _unscaled_gradient(call, usual, p)
    )
    yield from _filled(x, wanted, usual, p)
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
        return (
            "dropout off in training"
            if close(1.0)
            else f"nothing dropped (a mask of the whole batch), but scaled by {number(round(scale, 9))}"
        )
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
    shared = [
        axis
        for axis in range(kept.ndim)
        if kept.shape[axis] > 1 and (kept == kept.take([0], axis)).all()
    ]
    return f"the same along axes {shared}" if shared else "element by element"


def _masked(call: Call, kept: np.ndarray, scale: float) -> Any:
    return call.args[0] * call.nn.constant(kept * scale, like=call.args[0])


def _open_gradient(call: Call, usual: np.ndarray, scale: float) -> Any:
    """The right outputs with the gradient of a scaled input."""
    x, nn = call.args[0], call.nn
    return nn.constant(usual, like=x) + x * scale - nn.stop_gradient(x * scale)


def _unscaled_gradient(call: Call, usual: np.ndarray, p: float) -> Any:
    x, nn = call.args[0], call.nn
    kept = x * nn.constant((usual != 0.0) * 1.0, like=x)
    return nn.constant(usual, like=x) + kept - nn.stop_gradient(kept)


def _filled(x: np.ndarray, wanted: np.ndarray, usual: np.ndarray, p: float) -> Iterator[Variant]:
    """What is dropped holds the mean of all instead of zero."""
    kept = np.where(x == 0.0, wanted == 0.0, usual != 0.0) * 1.0
    for scale, word in ((1.0, "unscaled"), (1.0 / (1.0 - p) if p < 1 else 0.0, "scaled")):
        yield Variant(
            f"what is dropped holds the mean instead of zero, the rest {word}",
            lambda call, scale=scale: _with_mean(call, kept, scale),
        )


def _with_mean(call: Call, kept: np.ndarray, scale: float) -> Any:
    x, nn = call.args[0], call.nn
    return x * nn.constant(kept * scale, like=x) + nn.mean(x) * nn.constant(1.0 - kept, like=x)
