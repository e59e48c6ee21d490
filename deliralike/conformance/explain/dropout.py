"""Conventions of dropout: the outputs show what is dropped and how the rest is scaled."""

from __future__ import annotations

import numpy as np

from deliralike.conformance.causes import number
from deliralike.conformance.explain.convention import Arguments, Formula, Known, instead

_TOLERANCE = 1e-9


def dropout(given: Arguments) -> Known:
    """The candidate's mask and scale, read off its outputs and held against the reference's."""
    x, p, training, wanted = (given[name] for name in ("x", "p", "training", "wanted"))
    kept = (given["usual"] != 0.0) | (x == 0.0)
    formula = _masked(kept / (1.0 - p) if training and p < 1.0 else kept * 1.0)
    if wanted is None or wanted.shape != x.shape:
        return formula, []
    its = (wanted != 0.0) | (x == 0.0)
    shown = its & (x != 0.0)
    ratios = wanted[shown] / x[shown]
    scale = float(np.median(ratios)) if ratios.size else 1.0
    if np.abs(ratios - scale).max(initial=0.0) > _TOLERANCE * max(1.0, abs(scale)):
        return formula, []
    words = _in_training(p, scale, its) if training else _in_evaluation(scale, its)
    if training and not np.array_equal(its, kept) and not its.all():
        words += f"; another mask, {its.mean():.0%} kept"
    return formula, [instead("", {words: _masked(its * scale)})]


def _in_evaluation(scale: float, kept: np.ndarray) -> str:
    if kept.all():
        return f"outputs of evaluation scaled by {_short(scale)}"
    return f"dropout on in evaluation, scaled by {_short(scale)}"


def _in_training(p: float, scale: float, kept: np.ndarray) -> str:
    """What a mask and its scale mean."""
    keep, is_whole = 1.0 - p, abs(scale - 1.0) < _TOLERANCE
    if kept.all():
        return (
            "dropout off in training"
            if is_whole
            else f"nothing dropped, scaled by {scale:g}"
        )
    if is_whole:
        return f"dropout unscaled: what is kept is not divided by {number(keep)}"
    if abs(scale - keep) < _TOLERANCE:
        return f"dropout multiplied with {number(keep)} instead of divided by it"
    if abs(scale * p - 1.0) < _TOLERANCE:
        return f"p and keep swapped: p={number(keep)} instead of {number(p)}"
    return f"p={_short(1.0 - 1.0 / (scale or 1.0))} instead of {number(p)}"


def _short(value: float) -> str:
    return number(round(value, 9))


def _masked(factors: np.ndarray) -> Formula:
    return lambda nn, given: given["x"] * nn.constant(factors, like=given["x"])
