"""Conventions of dropout: the outputs show what is dropped and how the rest is scaled."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike.conformance.causes import number
from deliralike.conformance.explain.convention import Arguments, Convention, Formula, instead

TOLERANCE = 1e-9


def dropout(given: Arguments) -> tuple[Formula, list[Convention]]:
    """The candidate's mask and scale, read off its outputs and held against the reference's."""
    x, p, training = given["x"], given["p"], given["training"]
    usual, wanted = given["usual"], given["wanted"]
    kept = (usual != 0.0) | (x == 0.0)
    scale = 1.0 / (1.0 - p) if training and p < 1.0 else 1.0
    formula = _masked(kept * scale)
    if wanted is None or wanted.shape != x.shape:
        return formula, []
    found = []
    if training:
        gradients = {
            "of what is dropped too": _straight(usual, np.full(x.shape, scale)),
            "of the identity: of what is dropped too": _straight(usual, np.ones(x.shape)),
            "without the scale 1 / (1 - p)": _straight(usual, kept * 1.0),
        }
        found.append(instead("gradient", gradients))
    shown = _shown(x, wanted)
    if shown is not None:
        its, factor = shown
        words = _words(training, p, factor, its, bool((its == kept).all()))
        found.append(instead("", {words: _masked(its * _exact(factor, p))}))
    return formula, found


def _shown(x: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, float] | None:
    """What is kept, and the one factor of that; None where there is no such factor."""
    kept = (wanted != 0.0) | (x == 0.0)
    told = kept & (x != 0.0)
    ratios = wanted[told] / x[told]
    scale = float(np.median(ratios)) if ratios.size else 1.0
    if ratios.size and np.abs(ratios - scale).max() > TOLERANCE * max(1.0, abs(scale)):
        return None
    return kept, scale


def _exact(scale: float, p: float) -> float:
    """The scale without rounding, where it is one that dropout may have."""
    likely = [1.0, *(one for value in (p, 1.0 - p) if value for one in (1.0 / value, value))]
    plain = 1.0 / round(1.0 / scale, 9) if scale else scale
    return next((one for one in [*likely, plain] if abs(one - scale) < TOLERANCE), scale)


def _words(training: bool, p: float, scale: float, kept: np.ndarray, same: bool) -> str:
    """What a mask and its scale mean."""

    def is_near(value: float) -> bool:
        return abs(scale - value) < TOLERANCE

    everything, share = bool(kept.all()), f"{kept.mean():.0%} kept"
    shown = number(round(scale, 9))
    other = number(round(1.0 - 1.0 / scale, 9) if scale else 1.0)
    if not training and everything:
        return f"outputs of evaluation scaled by {shown} (dropout without scaling in training)"
    if not training:
        how = f" (p={other})" if scale > 1.0 else ", unscaled"
        return f"dropout on in evaluation{how}"
    if everything and is_near(1.0):
        return "dropout off in training"
    if everything:
        return f"nothing dropped (a mask of the whole batch), but scaled by {shown}"
    where = "" if same else f"; another mask, {share}"
    if is_near(1.0):
        return f"dropout unscaled: what is kept is not divided by {number(1.0 - p)}{where}"
    if p and is_near(1.0 / p) and p != 0.5:
        swapped = f"p={number(1.0 - p)} instead of {number(p)}"
        return f"p and keep swapped: {swapped}, scaled by 1/{number(p)}{where}"
    if is_near(1.0 - p):
        return f"dropout multiplied with {number(1.0 - p)} instead of divided by it{where}"
    if p < 1.0 and is_near(1.0 / (1.0 - p)):
        return f"another mask of dropout, scaled as it should be ({_structure(kept)}, {share})"
    return f"p={other} instead of {number(p)} (scaled by {shown}{where})"


def _structure(kept: np.ndarray) -> str:
    """Along which axes the mask is the same."""
    shared = [
        axis
        for axis in range(kept.ndim)
        if kept.shape[axis] > 1 and (kept == kept.take([0], axis)).all()
    ]
    return f"the same along axes {shared}" if shared else "element by element"


def _masked(factors: np.ndarray) -> Formula:
    return lambda nn, given: given["x"] * nn.constant(factors, like=given["x"])


def _straight(outputs: np.ndarray, factors: np.ndarray) -> Formula:
    """The right outputs with the gradient of a masked input."""

    def formula(nn: Any, given: Arguments) -> Any:
        x = given["x"]
        masked = x * nn.constant(factors, like=x)
        return nn.constant(outputs, like=x) + masked - nn.stop_gradient(masked)

    return formula
