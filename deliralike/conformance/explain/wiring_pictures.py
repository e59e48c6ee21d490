"""Normalisation of inputs: each channel by another mean and deviation, or after other changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.wiring_made import Formula
from deliralike.conformance.findings import MATCH

_CHANNELS = 1  # the axis
_MOST_CHANNELS = 16
_EXACT = 1e-10  # a fitted number is known as well as this
_PER_CHANNEL = 8  # elements that there must be, so that two numbers do not fit by accident


@dataclass(frozen=True)
class Normalised:
    """A picture with each channel c as ``(picture[order[c]] - mean[c]) / std[c]``."""

    mean: np.ndarray
    std: np.ndarray
    order: tuple[int, ...]
    array: np.ndarray

    def __str__(self) -> str:
        """The numbers."""
        if _is_neutral(self):
            return "mean 0 and deviation 1 (not normalised)"
        return f"mean {_numbers(self.mean)} and deviation {_numbers(self.std)}"


def pictures(
    sources: Mapping[str, np.ndarray], reference: np.ndarray, candidate: np.ndarray, compared: bool
) -> Iterator[Formula]:
    """What could have been done to a source before it became the candidate's array.

    Args:
        sources: Pictures among other arrays, by name.
        reference, candidate: What each side made of one.
        compared: Whether only sources count that the reference normalises: to its mean and
            deviation are compared.
    """
    for name, picture in sources.items():
        if picture.dtype.kind != "f" or not _is_picture(picture) or not _is_picture(candidate):
            continue
        right = normalised(picture, reference) if reference.ndim == picture.ndim else None
        if (right is None or _is_neutral(right)) == compared:
            continue
        yield from _by_itself(name, picture, candidate)
        for words, change in _CHANGES.items():
            found = normalised(change(picture), candidate)
            if found is not None and (words or right is None or not _is_same(found, right)):
                yield Formula(f"{name}{words}{_compared(found, right)}", found.array)


def normalised(picture: np.ndarray, target: np.ndarray) -> Normalised | None:
    """Mean and deviation of each channel that give the target; None where there are none."""
    if picture.shape[0] != target.shape[0] or picture.shape[2:] != target.shape[2:]:
        return None
    if max(picture.shape[_CHANNELS], target.shape[_CHANNELS]) > _MOST_CHANNELS:
        return None
    if target[:, 0].size < _PER_CHANNEL or not np.isfinite(target).all():
        return None
    found = [
        _channel(picture, target[:, channel], channel) for channel in range(target.shape[_CHANNELS])
    ]
    if any(one is None for one in found):
        return None
    slopes, offsets, order = (
        np.array(column) for column in zip(*(one for one in found if one), strict=True)
    )
    array = np.stack(
        [a * picture[:, c] + b for a, b, c in zip(slopes, offsets, order, strict=True)], _CHANNELS
    )
    return Normalised(
        _round(-offsets / slopes), _round(1.0 / slopes), tuple(map(int, order)), array
    )


def _channel(
    picture: np.ndarray, target: np.ndarray, usual: int
) -> tuple[float, float, int] | None:
    """Return factor, offset and number of the channel that a target is made of.

    The channel of the target's own number is tried first.
    """
    numbers = sorted(range(picture.shape[_CHANNELS]), key=lambda number: number != usual)
    for number in numbers:
        x = picture[:, number]
        spread = x - x.mean()
        size = float(np.vdot(spread, spread))
        slope = float(np.vdot(spread, target - target.mean())) / size if size else 0.0
        offset = float(target.mean() - slope * x.mean())
        if slope and relative_difference(target, slope * x + offset) <= MATCH:
            return slope, offset, number
    return None


def _compared(found: Normalised, right: Normalised | None) -> str:
    """The numbers of a candidate beside those of the reference, and what they tell."""
    order = (
        ""
        if found.order == tuple(range(len(found.order)))
        else f", channels in the order {found.order}"
    )
    if found.order == tuple(reversed(range(len(found.order)))) and len(found.order) == 3:
        order += " (BGR instead of RGB)"
    if right is None:
        return f"{order}, each channel with {found}"
    if (
        all(_held(mine, its) for mine, its in ((found.mean, right.mean), (found.std, right.std)))
        and not order
    ):
        return f", normalised with {right} in float32"
    if _near(found.mean, right.mean) and _near(found.std, right.std):
        return f"{order}, normalised as it is to be"
    if (
        order
        and _near(found.mean, right.mean[list(found.order)])
        and _near(found.std, right.std[list(found.order)])
    ):
        return f" normalised as it is to be and then{order.removeprefix(',')}"
    hint = next(
        (
            words
            for words, (mean, std) in _variants(right).items()
            if _near(found.mean, mean) and _near(found.std, std)
        ),
        "",
    )
    hint = hint or _scaled(found, right)
    return f"{order}, normalised with {found} instead of {right}{f': {hint}' if hint else ''}"


def _is_same(found: Normalised, right: Normalised) -> bool:
    """Whether both are one normalisation, so that the difference lies elsewhere."""
    short = (
        np.abs(found.mean - right.mean).max() > _EXACT
        or np.abs(found.std / right.std - 1.0).max() > _EXACT
    )
    return (
        found.order == right.order
        and _near(found.mean, right.mean)
        and _near(found.std, right.std)
        and not short
    )


def _variants(right: Normalised) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    mean, std = right.mean, right.std
    zero, one = np.zeros_like(mean), np.ones_like(std)
    return {
        "not normalised": (zero, one),
        "the mean is not subtracted": (zero, std),
        "not divided by the deviation": (mean, one),
        "divided by the variance": (mean, std**2),
        "times the deviation": (mean, 1.0 / std),
        "divided by the deviation before the mean is subtracted, in the wrong order": (
            mean * std,
            std,
        ),
        "the mean is added": (-mean, std),
        "mean and deviation in the order of other channels (BGR)": (mean[::-1], std[::-1]),
        "the mean in the order of other channels (BGR)": (mean[::-1], std),
        "the deviation in the order of other channels (BGR)": (mean, std[::-1]),
        "normalised twice": (mean + mean * std, std**2),
        "from -1 to 1": (0.5 * one, 0.5 * one),
    }


def _scaled(found: Normalised, right: Normalised) -> str:
    """Pictures in other units: all numbers differ by one factor."""
    factors = right.std / found.std
    same = np.ptp(factors) <= 1e-8 * abs(factors[0])
    if same and _near(found.mean * factors, right.mean):
        return f"pictures at the scale of {factors[0]:.6g} times the reference's"
    if len(found.mean) > 1 and not np.ptp(found.mean) and _near(found.std, right.std):
        return "one mean for all channels"
    return ""


def _by_itself(name: str, picture: np.ndarray, target: np.ndarray) -> Iterator[Formula]:
    """Normalised by its own mean and deviation."""
    if picture.shape != target.shape:
        return
    spatial = tuple(range(2, picture.ndim))
    for axes, words in (
        (spatial, "of each channel"),
        ((1, *spatial), "of each sample"),
        ((0, *spatial), "of the batch"),
    ):
        for ddof in (0, 1):
            for eps in (0.0, 1e-8, 1e-6, 1e-5):
                var = picture.var(axes, keepdims=True, ddof=ddof) + eps
                if var.all():
                    array = (picture - picture.mean(axes, keepdims=True)) / np.sqrt(var)
                    with_eps = f" (variance + {eps:g})" if eps else ""
                    yield Formula(
                        f"{name} normalised by its own mean and deviation {words}{with_eps}", array
                    )
        low, high = picture.min(axes, keepdims=True), picture.max(axes, keepdims=True)
        if (high > low).all():
            yield Formula(
                f"{name} normalised by its own least and largest {words}",
                (picture - low) / (high - low),
            )


def _is_neutral(found: Normalised) -> bool:
    return not found.mean.any() and bool((found.std == 1.0).all())


def _is_picture(array: np.ndarray) -> bool:
    return array.ndim >= 4 and bool(np.isfinite(array).all())


def _round(numbers: np.ndarray) -> np.ndarray:
    return (
        np.where(np.abs(numbers - np.round(numbers, 6)) < 1e-9, np.round(numbers, 6), numbers) + 0.0
    )


def _near(numbers: np.ndarray, others: np.ndarray) -> bool:
    return bool(np.allclose(numbers, others, rtol=1e-7, atol=1e-9))


def _held(numbers: np.ndarray, others: np.ndarray) -> bool:
    """Whether some numbers are others as float32 holds them, and not these themselves."""
    short = others.astype(np.float32).astype(np.float64)
    return bool(
        np.allclose(numbers, short, rtol=_EXACT, atol=0.0)
        and (np.abs(short - others) > _EXACT).any()
    )


def _numbers(values: np.ndarray) -> str:
    shown = [f"{value:.6g}" for value in values]
    return shown[0] if len(set(shown)) == 1 else f"({', '.join(shown)})"


_CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda x: x,
    " mirrored (flipped along the last axis)": lambda x: np.flip(x, -1),
    " upside down (flipped along the axis of rows)": lambda x: np.flip(x, 2),
    " turned by half (flipped along both axes)": lambda x: np.flip(x, (2, -1)),
    " with rows and columns transposed": lambda x: np.swapaxes(x, -1, -2),
    " turned by a quarter to the left": lambda x: np.rot90(x, 1, (-2, -1)),
    " turned by a quarter to the right": lambda x: np.rot90(x, -1, (-2, -1)),
    " with the samples in the reverse order": lambda x: np.flip(x, 0),
    " rounded down to 8 bits (steps of 1/255)": lambda x: np.trunc(x * 255.0) / 255.0,
    " rounded to 8 bits (steps of 1/255)": lambda x: np.round(x * 255.0) / 255.0,
    " rounded down to 8 bits (steps of 1/256)": lambda x: np.trunc(x * 256.0) / 256.0,
    " rounded to integers": np.round,
    " rounded down to integers": np.trunc,
    " rounded to float32": lambda x: x.astype(np.float32).astype(np.float64),
    " rounded to float16": lambda x: x.astype(np.float16).astype(np.float64),
    " clipped to 0 to 1": lambda x: np.clip(x, 0.0, 1.0),
}
