"""Why a loss differs: every known loss of the same prediction and target, by value and gradient."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.loss_elements import binary, focal_losses, regression
from deliralike.conformance.explain.loss_judge import (
    Found,
    Judge,
    Known,
    factor_in_words,
    plain,
    scaled,
    sizes_in_words,
    tried,
)
from deliralike.conformance.explain.loss_labels import Labels, classification
from deliralike.conformance.explain.loss_overlaps import overlaps
from deliralike.conformance.explain.variant import number
from deliralike.conformance.findings import LIMIT, MATCH, Explanation

_OVERLAPS = ("dice_loss", "tversky_loss", "generalized_dice_loss")


def explain_loss(
    prediction: np.ndarray,
    target: np.ndarray,
    reference: tuple[float, np.ndarray | None],
    candidate: tuple[float, np.ndarray | None],
    settings: Mapping[str, Any] | None = None,
    kind: str = "",
) -> Explanation | None:
    """The most likely cause of another loss.

    Args:
        prediction: What both losses were given.
        target: Whole numbers for classification, floating ones of the prediction's shape for
            regression and binary targets.
        reference, candidate: The value of the loss, and its gradient with respect to the
            prediction; None where it is not known, and then a number that is searched for counts
            only if it has few digits.
        settings: The reference's, as `nn.cross_entropy` and its like take them.
        kind: The function of `nn` that the reference calls, where that is known.

    Returns:
        None where both agree.

    Example:
        >>> z, t = np.array([[1.0, -1.0], [0.5, 2.0]]), np.array([1.0, 2.0])
        >>> explain_loss(z[:, 0], t, (0.5 * 2.25, z[:, 0] - t), (2.25, 2 * (z[:, 0] - t))).cause
        'squared error, sum instead of mean'
    """
    prediction = np.asarray(prediction, np.float64)
    judge = Judge(prediction, candidate[1] is not None)
    usual, wanted = judge.seen(*reference), judge.seen(*candidate)
    apart = judge.distance(usual, wanted)
    if apart <= LIMIT:
        return None
    known = list(conventions(prediction, np.asarray(target), settings or {}, kind))
    return nearest(_candidates(judge, known, usual, wanted), apart)


def nearest(candidates: Found, apart: float) -> Explanation | None:
    """The nearest of some causes; None where it is no nearer than the reference."""
    best: tuple[float, str] = (np.inf, "")
    second = apart
    with np.errstate(all="ignore"):
        for cause, away in candidates:
            second = min(second, max(best[0], away))
            best = (away, cause) if away < best[0] else best
            if best[0] <= EXACT:
                break
    if not best[1] or (best[0] <= MATCH and best[0] > 1e-3 * apart):
        return None
    return Explanation(best[1], best[0], second if best[0] < second else None)


def _candidates(judge: Judge, known: list[Known], usual: np.ndarray, wanted: np.ndarray) -> Found:
    """Yield conventions without a free number first: with one, many things come near."""
    for one in sorted(known, key=lambda one: one.is_free):
        yield from tried(judge, one, wanted)
    yield from gradient_scaled(judge, usual, wanted, "loss", plain_ones=False)
    yield from halves(judge, [one for one in known if not one.is_free], usual, wanted)
    yield from between(judge, usual, wanted)
    for one in known if judge.with_gradient else ():
        if not one.is_free:
            yield from scaled(
                judge,
                judge.of(one.loss),
                wanted,
                one.cause,
                sizes_in_words(judge.point.shape),
                False,
            )


def between(judge: Judge, usual: np.ndarray, wanted: np.ndarray, name: str = "loss") -> Found:
    """Factors and terms between the two as they are."""
    names = sizes_in_words(judge.point.shape)
    yield from scaled(judge, usual, wanted, name, names)
    if not judge.with_gradient:
        return
    if np.linalg.norm(wanted[1:]) <= judge.least:
        yield (
            f"{name} without a gradient",
            judge.distance(np.concatenate([usual[:1], 0.0 * usual[1:]]), wanted),
        )
    shift = f"{name} plus {number(plain(wanted[0] - usual[0]))}, which does not depend on the prediction"
    yield shift, judge.distance(np.concatenate([wanted[:1], usual[1:]]), wanted)
    yield from gradient_scaled(judge, usual, wanted, name)


def gradient_scaled(
    judge: Judge, usual: np.ndarray, wanted: np.ndarray, name: str, plain_ones: bool = True
) -> Found:
    """A factor of the gradient alone; see `scaled`."""
    if not judge.with_gradient:
        return
    factor = float(usual[1:] @ wanted[1:]) / (float(usual[1:] @ usual[1:]) or 1.0)
    if (
        words := factor_in_words(factor, sizes_in_words(judge.point.shape), plain_ones)
    ) is not None:
        made = np.concatenate([usual[:1], factor * usual[1:]])
        yield (
            f"gradient of the {name} {words}, its value as it should be",
            judge.distance(made, wanted),
        )


def halves(judge: Judge, known: list[Known], usual: np.ndarray, wanted: np.ndarray) -> Found:
    """The value of one loss with the gradient of another, where one of the two is right."""
    same_value = np.isclose(usual[0], wanted[0], rtol=MATCH, atol=judge.least)
    same_gradient = (
        np.linalg.norm(usual[1:] - wanted[1:]) <= MATCH * np.linalg.norm(wanted[1:]) + judge.least
    )
    for one in known if judge.with_gradient and (same_value or same_gradient) else ():
        vector = judge.of(one.loss)
        mixed = np.concatenate([usual[:1], vector[1:]] if same_value else [vector[:1], usual[1:]])
        words = (
            "the value as it should be, the gradient that of"
            if same_value
            else "the gradient as it should be, the value that of"
        )
        yield f"{words}: {one.cause}", judge.distance(mixed, wanted)


def conventions(
    prediction: np.ndarray, target: np.ndarray, settings: Mapping[str, Any], kind: str = ""
) -> Iterator[Known]:
    """Yield all conventions for such a target, the likely ones first.

    The reference's own function is among them.
    """
    if kind in _OVERLAPS:
        yield from overlaps(target.astype(np.float64), settings)
    elif kind == "binary_focal_loss":
        yield from focal_losses(target.astype(np.float64), settings)
    elif target.dtype.kind in "iu" and prediction.ndim == target.ndim + 1:
        yield from classification(Labels.of(prediction, target, settings))
    elif target.shape == prediction.shape:
        target = target.astype(np.float64)
        if ((target >= 0) & (target <= 1)).all():
            yield from binary(target, settings)
        yield from regression(target)
