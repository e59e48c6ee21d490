"""Normalisation of inputs: each channel by another mean and deviation, or after other changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.formulas import Array, Change, Formula, Sources, changes
from deliralike.conformance.findings import MATCH

_MOST_CHANNELS = 16
_EXACT = 1e-10  # a fitted number is known as well as this
_PER_CHANNEL = 16  # elements that there must be, so that two numbers do not fit by accident


@dataclass(frozen=True)
class Normalised:
    """A picture with each channel c as ``(picture[order[c]] - mean[c]) / std[c]``."""

    mean: Array
    std: Array
    order: tuple[int, ...]
    array: Array

    def __str__(self) -> str:
        """The numbers."""
        if self.is_neutral:
            return "mean 0 and deviation 1 (not normalised)"
        return f"mean {_numbers(self.mean)} and deviation {_numbers(self.std)}"

    @property
    def is_neutral(self) -> bool:
        """Whether it leaves a picture as it is."""
        return not self.mean.any() and bool((self.std == 1.0).all())

    def is_near(self, mean: Array, std: Array, far: float = 1e-7) -> bool:
        """Whether its numbers are some others."""
        pairs = ((self.mean, mean), (self.std, std))
        return all(np.allclose(mine, other, rtol=far, atol=far / 100) for mine, other in pairs)


def pictures(
    sources: Sources, reference: Array, candidate: Array, compared: bool
) -> Iterator[Formula]:
    """What could have been done to a source before it became the candidate's array.

    Args:
        sources: Pictures among other arrays, by name.
        reference, candidate: What each side made of one.
        compared: Whether only sources count that the reference normalises: to its mean and
            deviation are compared.
    """
    for name, picture in sources.items():
        if not _is_picture(picture) or not _is_picture(candidate):
            continue
        right = normalised(picture, reference) if reference.ndim == picture.ndim else None
        if (right is None or right.is_neutral) == compared:
            continue
        if picture.shape == candidate.shape:
            yield from _by_itself(name, picture)
        for change in (_UNCHANGED, *changes(picture.shape, candidate.shape), *_ROUNDED):
            found = normalised(change.of(picture), candidate)
            is_same = change is _UNCHANGED and right is not None and _is_same(found, right)
            if found is not None and not is_same:
                words = change.words.replace("{}", name)
                yield Formula(f"{words}{_compared(found, right)}", found.array)


def normalised(picture: Array, target: Array) -> Normalised | None:
    """Mean and deviation of each channel that give the target; None where there are none."""
    if picture.shape[0] != target.shape[0] or picture.shape[2:] != target.shape[2:]:
        return None
    if max(picture.shape[1], target.shape[1]) > _MOST_CHANNELS:
        return None
    if target[:, 0].size < _PER_CHANNEL or not np.isfinite(target).all():
        return None
    columns = [np.ones(target[:, 0].size), *np.moveaxis(picture, 1, 0).reshape(len(picture[0]), -1)]
    wanted = np.moveaxis(target, 1, 0).reshape(target.shape[1], -1)
    factors, *_ = np.linalg.lstsq(np.stack(columns, 1), wanted.T, rcond=1e-10)
    offsets, slopes = factors[0], np.where(np.abs(factors[1:]) > 1e-9, factors[1:], 0.0)
    if (np.count_nonzero(slopes, 0) != 1).any():
        return None
    order = np.argmax(slopes != 0.0, 0)
    slopes = slopes.sum(0)
    around = (1, -1, *[1] * (picture.ndim - 2))
    array = picture[:, order] * slopes.reshape(around) + offsets.reshape(around)
    if relative_difference(target, array) > MATCH:
        return None
    mean, std = _round(-offsets / slopes), _round(1.0 / slopes)
    return Normalised(mean, std, tuple(map(int, order)), array)


def _compared(found: Normalised, right: Normalised | None) -> str:
    """The numbers of a candidate beside those of the reference, and what they tell."""
    order = ""
    if found.order != tuple(range(len(found.order))):
        backwards = len(found.order) == 3 and found.order == (2, 1, 0)
        order = f", channels in the order {found.order}{' (BGR instead of RGB)' * backwards}"
    if right is None:
        return f"{order}, each channel with {found}"
    if found.is_near(right.mean, right.std):
        return f"{order}, normalised as it is to be"
    places = list(found.order)
    if order and found.is_near(right.mean[places], right.std[places]):
        return f" normalised as it is to be and then{order.removeprefix(',')}"
    known = [words for words, numbers in _variants(right) if found.is_near(*numbers)]
    hint = known[0] if known else _scaled(found, right)
    return f"{order}, normalised with {found} instead of {right}{f': {hint}' if hint else ''}"


def _is_same(found: Normalised | None, right: Normalised) -> bool:
    """Whether both are one normalisation, so that the difference lies elsewhere."""
    if found is None or found.order != right.order:
        return False
    return found.is_near(right.mean, right.std, _EXACT)


def _variants(right: Normalised) -> Iterator[tuple[str, tuple[Array, Array]]]:
    mean, std = right.mean, right.std
    zero, one = np.zeros_like(mean), np.ones_like(std)
    yield "not normalised", (zero, one)
    yield "the mean is not subtracted", (zero, std)
    yield "not divided by the deviation", (mean, one)
    yield "divided by the variance", (mean, std**2)
    yield "times the deviation", (mean, 1.0 / std)
    wrong = "divided by the deviation before the mean is subtracted, in the wrong order"
    yield wrong, (mean * std, std)
    yield "the mean is added", (-mean, std)
    yield "mean and deviation in the order of other channels (BGR)", (mean[::-1], std[::-1])
    yield "the mean in the order of other channels (BGR)", (mean[::-1], std)
    yield "the deviation in the order of other channels (BGR)", (mean, std[::-1])
    yield "normalised twice", (mean + mean * std, std**2)
    yield "from -1 to 1", (0.5 * one, 0.5 * one)


def _scaled(found: Normalised, right: Normalised) -> str:
    """Pictures in other units: all numbers differ by one factor."""
    factors = right.std / found.std
    if np.ptp(factors) <= 1e-8 * abs(factors[0]) and found.is_near(right.mean / factors, found.std):
        return f"pictures at the scale of {factors[0]:.6g} times the reference's"
    if len(found.mean) > 1 and not np.ptp(found.mean) and found.is_near(found.mean, right.std):
        return "one mean for all channels"
    return ""


def _by_itself(name: str, picture: Array) -> Iterator[Formula]:
    """Normalised by its own numbers."""
    spatial = tuple(range(2, picture.ndim))
    known = {"channel": spatial, "sample": (1, *spatial), "batch": (0, *spatial)}
    for words, axes in known.items():
        own = f"{name} normalised by its own {{}} of each {words}"
        centred = picture - picture.mean(axes, keepdims=True)
        for eps in (0.0, 1e-8, 1e-6, 1e-5):
            var = picture.var(axes, keepdims=True) + eps
            with_eps = f" (variance + {eps:g})" if eps else ""
            made = centred / np.sqrt(np.where(var > 0.0, var, np.inf))
            yield Formula(own.format("mean and deviation") + with_eps, made)
        low, high = picture.min(axes, keepdims=True), picture.max(axes, keepdims=True)
        made = (picture - low) / np.where(high > low, high - low, np.inf)
        yield Formula(own.format("least and largest"), made)


def _is_picture(array: Array) -> bool:
    return array.ndim >= 4 and array.dtype.kind == "f" and bool(np.isfinite(array).all())


def _round(numbers: Array) -> Array:
    plain = np.round(numbers, 6)
    return np.where(np.abs(numbers - plain) < 1e-9, plain, numbers) + 0.0


def _numbers(values: Array) -> str:
    shown = [f"{value:.6g}" for value in values]
    return shown[0] if len(set(shown)) == 1 else f"({', '.join(shown)})"


_UNCHANGED = Change("{}", lambda x: x)
_ROUNDED = (
    Change("{} rounded down to 8 bits (steps of 1/255)", lambda x: np.trunc(x * 255.0) / 255.0),
    Change("{} rounded to 8 bits (steps of 1/255)", lambda x: np.round(x * 255.0) / 255.0),
)
