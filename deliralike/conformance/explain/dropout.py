"""Conventions of dropout: the outputs show what is dropped and how the rest is scaled."""

from __future__ import annotations

import numpy as np

from deliralike.conformance.causes import number
from deliralike.conformance.explain.convention import Arguments, Formula, Known, instead

TOLERANCE = 1e-9


def dropout(given: Arguments) -> Known:
    """The candidate's mask and scale, read off its outputs and held against the reference's."""
    x, p, training = given["x"], given["p"], given["training"]
    usual, wanted = given["usual"], given["wanted"]
    kept = (usual != 0.0) | (x == 0.0)
    scale = 1.0 / (1.0 - p) if training and p < 1.0 else 1.0
    formula = _masked(kept * scale)
    if wanted is None or wanted.shape != x.shape:
        return formula, []
    shown = _shown(x, wanted)
    if shown is None:
        return formula, []
    its, factor = shown
    words = _words(training, p, factor, its, bool((its == kept).all()))
    return formula, [instead("", {words: _masked(its * _exact(factor, p))})]


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
    likely = [1.0]
    for value in (p, 1.0 - p, round(1.0 / scale, 9) if scale else 0.0):
        if value:
            likely += [1.0 / value, value]
    return next((one for one in likely if abs(one - scale) < TOLERANCE), scale)


def _words(training: bool, p: float, scale: float, kept: np.ndarray, same: bool) -> str:
    """What a mask and its scale mean."""
    shown, keep = number(round(scale, 9)), 1.0 - p
    other = number(round(1.0 - 1.0 / scale, 9) if scale else 1.0)
    if not training:
        if kept.all():
            return f"outputs of evaluation scaled by {shown} (dropout without scaling in training)"
        how = f" (p={other})" if scale > 1.0 else ", unscaled"
        return f"dropout on in evaluation{how}"
    is_usual = abs(scale - 1.0) < TOLERANCE
    if kept.all():
        return "dropout off in training" if is_usual else f"nothing dropped, but scaled by {shown}"
    words = f"p={other} instead of {number(p)} (scaled by {shown})"
    if is_usual:
        words = f"dropout unscaled: what is kept is not divided by {number(keep)}"
    elif abs(scale - keep) < TOLERANCE:
        words = f"dropout multiplied with {number(keep)} instead of divided by it"
    elif abs(scale * p - 1.0) < TOLERANCE:
        words = (
            f"p and keep swapped: p={number(keep)} instead of {number(p)}, scaled by 1/{number(p)}"
        )
    elif abs(scale * keep - 1.0) < TOLERANCE:
        words = "another mask of dropout, scaled as it should be"
    return words if same else f"{words}; another mask, {kept.mean():.0%} kept"


def _masked(factors: np.ndarray) -> Formula:
    return lambda nn, given: given["x"] * nn.constant(factors, like=given["x"])
