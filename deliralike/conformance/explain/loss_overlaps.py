"""Losses of overlaps: Dice, Jaccard and Tversky under other axes, settings and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain.loss_judge import Known
from deliralike.conformance.explain.variant import number

SMOOTH = 1e-5
_SMOOTHS = (1e-5, 1e-2, 1.0, 1e-7)


def dice(
    p: np.ndarray,
    target: np.ndarray,
    smooth: float = SMOOTH,
    below: float | None = None,
    *,
    dims: tuple[int, ...] | None = None,
    top: float = 2.0,
    power: int = 1,
    background: bool = True,
) -> np.ndarray:
    """The soft Dice coefficient of each sample and class.

    Args:
        p: Probabilities ``(batch, classes, ...)``, complex ones too.
        target: One-hot labels of that shape.
        smooth: Added to the numerator.
        below: Added to the denominator; `smooth` when None.
        dims: Which axes are summed over; those after the second when None.
        top: The factor of the overlap.
        power: Of probabilities and labels in the denominator.
        background: Whether channel 0 counts.
    """
    dims = tuple(range(2, p.ndim)) if dims is None else dims
    if not background:
        p, target = p[:, 1:], target[:, 1:]
    total = (p**power).sum(dims) + (target**power).sum(dims)
    return (top * (p * target).sum(dims) + smooth) / (total + (smooth if below is None else below))


def tversky(
    p: np.ndarray, target: np.ndarray, alpha: float, beta: float, smooth: float
) -> np.ndarray:
    """The Tversky index of each sample and class; of ones it is the Jaccard index."""
    dims = tuple(range(2, p.ndim))
    overlap = (p * target).sum(dims)
    return (overlap + smooth) / (
        overlap
        + alpha * (p * (1 - target)).sum(dims)
        + beta * ((1 - p) * target).sum(dims)
        + smooth
    )


def hard(p: np.ndarray) -> np.ndarray:
    """One-hot arrays of the most likely classes, which take no gradient."""
    return np.moveaxis(np.eye(p.shape[1])[np.argmax(p.real, 1)], -1, 1)


_FINISHES: dict[str, Callable[[np.ndarray], Any]] = {
    "": lambda found: (1.0 - found).mean(),
    "sum instead of mean": lambda found: (1.0 - found).sum(),
    "negative coefficient instead of one minus it": lambda found: -found.mean(),
    "the coefficient itself instead of one minus it": lambda found: found.mean(),
    "logarithm: -log of the coefficient": lambda found: -np.log(found).mean(),
    "logarithm: -log of the mean coefficient": lambda found: -np.log(found.mean()),
    "sum over classes, mean over the batch": lambda found: (1.0 - found).sum(-1).mean(),
    "mean over classes, sum over the batch": lambda found: (1.0 - found).mean(-1).sum(),
    "squared: (1 - coefficient) to the power of 2": lambda found: ((1.0 - found) ** 2).mean(),
    "root of 1 - coefficient": lambda found: np.sqrt(1.0 - found).mean(),
    "maximum over samples and classes instead of mean": lambda found: (1.0 - found).flat[
        np.argmin(found.real)
    ],
}


def overlaps(target: np.ndarray, settings: Mapping[str, Any]) -> Iterator[Known]:
    """Yield the known overlap losses; the first is the Dice loss with the reference's settings."""
    smooth = float(settings.get("smooth", SMOOTH))
    background = bool(settings.get("include_background", True))
    usual = partial(dice, target=target, smooth=smooth, background=background)

    def made(finish: str = "", **how: Any) -> Callable[[np.ndarray], Any]:
        return lambda p: _FINISHES[finish](usual(p, **how))

    for finish in _FINISHES:
        yield Known(finish or "the Dice loss", made(finish))
    spatial = tuple(range(2, target.ndim))
    regions = {
        "over the whole batch": (0, *spatial),
        "over the classes too": (1, *spatial),
        "over batch and classes (one coefficient)": (0, 1, *spatial),
    }
    sizes: dict[str, dict[str, Any]] = {
        "squares in the denominator": {"power": 2},
        "no factor of two for the overlap": {"top": 1.0},
        f"the background (channel 0) {'left out' if background else 'counted'}": {
            "background": not background
        },
        "smooth missing in the denominator": {"below": 0.0},
        "smooth missing in the numerator": {"smooth": 0.0, "below": smooth},
        **{f"overlap and sizes {words}": {"dims": dims} for words, dims in regions.items()},
    }
    for words, how in sizes.items():
        for finish in ("", "sum instead of mean", "negative coefficient instead of one minus it"):
            yield Known(", ".join(word for word in (words, finish) if word), made(finish, **how))
    yield Known("of the most likely classes (hard, without a gradient)", lambda p: made()(hard(p)))
    yield Known(
        "of the labels and the labels: the prediction is not used",
        lambda p: made()(target + 0.0 * p.real),
    )
    yield from _with_smooth(target, smooth, made)
    yield from _of_indices(target, smooth)


def _with_smooth(target: np.ndarray, smooth: float, made: Callable[..., Any]) -> Iterator[Known]:
    """Another number in the numerator, in the denominator or in both."""
    forms: dict[str, Callable[[float], dict[str, float]]] = {
        f"smooth={{}} instead of {number(smooth)}": lambda s: {"smooth": s},
        f"smooth={{}} in the denominator alone, instead of {number(smooth)} in both": lambda s: {
            "smooth": 0.0,
            "below": s,
        },
        f"smooth={{}} in the numerator alone, instead of {number(smooth)} in both": lambda s: {
            "smooth": s,
            "below": 0.0,
        },
        f"smooth={{}} in the denominator instead of {number(smooth)}": lambda s: {
            "smooth": smooth,
            "below": s,
        },
        f"smooth={{}} in the numerator instead of {number(smooth)}": lambda s: {
            "smooth": s,
            "below": smooth,
        },
    }
    batch = (0, *range(2, target.ndim))
    extras: dict[str, dict[str, Any]] = {
        "": {},
        "; squares in the denominator": {"power": 2},
        "; over the whole batch": {"dims": batch},
        "; no factor of two": {"top": 1.0},
    }
    for more, how in extras.items():
        for words, settings in forms.items():
            loss = partial(_smoothed, made, settings, how)
            yield Known(words + more, loss, _SMOOTHS, 0.0)
    yield Known(
        "factor {} of the overlap instead of 2", lambda p, top: made(top=top)(p), (1.0, 3.0)
    )


def _smoothed(
    made: Callable[..., Any],
    settings: Callable[[float], dict[str, float]],
    how: dict[str, Any],
    p: np.ndarray,
    s: float,
) -> Any:
    return made(**{**how, **settings(s)})(p)


def _of_indices(target: np.ndarray, smooth: float) -> Iterator[Known]:
    def index(p: np.ndarray, alpha: float, beta: float) -> Any:
        return tversky(p, target, alpha, beta, smooth)

    yield Known("Jaccard index (IoU) instead of Dice", lambda p: (1.0 - index(p, 1.0, 1.0)).mean())
    yield Known(
        "Jaccard index (IoU) instead of Dice, -log of it",
        lambda p: -np.log(index(p, 1.0, 1.0)).mean(),
    )
    yield Known(
        "Jaccard index (IoU) instead of Dice, smooth={}",
        lambda p, s: (1.0 - tversky(p, target, 1.0, 1.0, s)).mean(),
        _SMOOTHS,
        0.0,
    )
    yield Known(
        "Tversky index with alpha={} and beta=1 - alpha",
        lambda p, a: (1.0 - index(p, a, 1.0 - a)).mean(),
        (0.3, 0.7),
        0.0,
    )
    yield Known(
        "focal: 1 - coefficient to the power of {}",
        lambda p, g: ((1.0 - dice(p, target, smooth)) ** g).mean(),
        (0.75, 2.0),
        0.0,
    )
    yield Known("squared error instead", lambda p: ((p - target) ** 2).mean())
    yield Known(
        "cross-entropy of the probabilities instead", lambda p: -(target * np.log(p)).sum(1).mean()
    )
