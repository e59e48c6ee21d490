"""Why a probe fails: what the reference would give with a known mistake at that place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import nest
from deliralike.conformance.findings import Explanation

if TYPE_CHECKING:
    from deliralike.conformance.levels.probing import Probe, Seen, Side

_TINY = 1e-150
_SQUARED = (
    1.5  # a power of the mean above which errors grow: two passes have about one, one pass has two
)
_EXACT = 1e-8
_SMALL = 1e-6  # of the largest tensor: smaller ones are not weighed by themselves
Arrays = dict[str, np.ndarray]


def refusal(probe: Probe, one: Seen, two: Seen) -> str:
    """What one side refuses and the other does not, or in another way."""
    if two.error is None and one.error is not None:
        wraps = {"index": ", it wraps around or is clamped"}.get(probe.about, "")
        values = {"one": " (one value per channel has no variance)"}.get(probe.about, "")
        return f"no error where the reference raises {_said(one.error)}{values}{wraps}"
    if one.error is None and two.error is not None:
        return f"{_said(two.error)} where the reference gives values"
    return f"{_said(two.error)} where the reference raises {_said(one.error)}"


def _said(error: Exception | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__} ({text[:120]})"


def values(probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen) -> Explanation | None:
    """The known mistake whose tensors are nearest to the candidate's."""
    tried = [
        (_distance(tensors, two.tensors), cause)
        for cause, tensors in _variants(probe, ours, one, two)
    ]
    tried += _powers(probe, ours, theirs)
    tried = [(0.0 if far <= _EXACT else far, cause) for far, cause in tried if not np.isnan(far)]
    tried.sort(key=lambda pair: pair[0])
    if tried and tried[0][0] == 0.0:
        return Explanation(tried[0][1], 0.0, next((far for far, _ in tried if far > 0.0), None))
    if not all(np.isfinite(value).all() for value in two.tensors.values()):
        return Explanation(_no_number(probe), 0.0)
    return Explanation(tried[0][1], tried[0][0]) if tried else None


def _no_number(probe: Probe) -> str:
    return {
        "ignored": "NaN: divided by the number of labels that count, which is zero",
        "huge": "no number: an overflow, as exponentials that are not taken relative to the largest have",
        "one": "no number: the variance of one value",
    }.get(probe.about, "no number where the reference has one")


def _variants(probe: Probe, ours: Side, one: Seen, two: Seen) -> Iterator[tuple[str, Arrays]]:
    """Known mistakes, and what the reference would give with them."""
    if probe.about in ("zeros", "outputs"):
        yield from _sides_of_zero(probe, ours, two)
    if probe.about == "ties":
        yield from _order_of_ties(probe, ours, two)
    if probe.about == "ignored":
        yield from _counted(probe, ours)
    if probe.about == "huge":
        yield from _clipped(probe, ours, one, two)
    if probe.about == "padding":
        yield from _with_gradient_of_padding(one, two)


def _sides_of_zero(probe: Probe, ours: Side, two: Seen) -> Iterator[tuple[str, Arrays]]:
    """Derivatives at zero as they are beside it: all above, all below, and between the two."""
    what = "loss" if probe.about == "outputs" else "activation"
    above, below = (ours.see(_beside_zero(probe, sign)).tensors for sign in (_TINY, -_TINY))
    share = _share(below, above, two.tensors)
    found = f"relu'(0) = {share:.4g}, abs'(0) = {2 * share - 1:.4g}"
    yield f"derivative at zero of the {what} is the one above it: relu'(0) = 1, abs'(0) = 1", above
    yield f"derivative at zero of the {what} is the one below it: relu'(0) = 0, abs'(0) = -1", below
    yield (
        f"derivative at zero of the {what} lies between those below and above: {found}",
        _between(below, above, share),
    )


def _beside_zero(probe: Probe, tiny: float) -> Probe:
    """The probe with outputs, or what comes out of layers, next to zero on one side."""
    return replace(probe, offset=tiny) if probe.about == "outputs" else replace(probe, beside=tiny)


def _order_of_ties(probe: Probe, ours: Side, two: Seen) -> Iterator[tuple[str, Arrays]]:
    """Yield ties broken towards the last element, and between first and last.

    A rising ramp before a maximum breaks them towards the last.
    """
    rising, falling = (
        ours.through(partial(_on_a_ramp, ours, size)).see(probe).tensors for size in (1e-10, -1e-10)
    )
    share = _share(falling, rising, two.tensors)
    yield "the last of equal values taken as the largest, not the first", rising
    shares = f"{1 - share:.3g} to the first, {share:.3g} to the last"
    yield (
        f"equal values share the gradient of their maximum: {shares}",
        _between(falling, rising, share),
    )


def _on_a_ramp(
    side: Side, size: float, path: str, block: Any, call: Any, args: Any, kwargs: Any
) -> Any:
    """A call of a block; a maximum over windows sees its input on a ramp."""
    if "MaxPool" in type(block).__name__ and args:
        x, *rest = args
        shape = (1, 1, *x.shape[2:])
        ramp = size * np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        args = (x + side.network.nn.constant(ramp, like=x), *rest)
    return call(*args, **kwargs)


def _counted(probe: Probe, ours: Side) -> Iterator[tuple[str, Arrays]]:
    """Ignored labels taken for a class."""
    for label in range(64):
        seen = ours.see(
            replace(probe, batch=nest.map(lambda leaf, label=label: _all(leaf, label), probe.batch))
        )
        if seen.error is not None:
            break
        yield f"ignored labels counted as class {label}", seen.tensors


def _all(leaf: Any, label: int) -> Any:
    """Another label in the place of labels that are all ignored."""
    is_label = isinstance(leaf, np.ndarray) and leaf.dtype.kind in "iu" and leaf.size
    ignored = is_label and leaf.flat[0] in (-100, -1, 255) and bool((leaf == leaf.flat[0]).all())
    return np.full_like(leaf, label) if ignored else leaf


def _clipped(probe: Probe, ours: Side, one: Seen, two: Seen) -> Iterator[tuple[str, Arrays]]:
    """The logarithm of a probability with something added to it, or bounded from below."""
    if float(two.tensors.get("loss", np.nan)) < float(one.tensors["loss"]):
        yield (
            f"a loss that is bounded: {float(two.tensors['loss']):.6g} for "
            f"{float(one.tensors['loss']):.6g}, as log(p + epsilon) or clipped probabilities are",
            {"loss": two.tensors["loss"]},
        )


def _with_gradient_of_padding(one: Seen, two: Seen) -> Iterator[tuple[str, Arrays]]:
    """Only rows differ in which the reference's gradient is zero."""
    tensors = dict(one.tensors)
    for name, value in one.tensors.items():
        other = two.tensors.get(name)
        if value.ndim == 2 and other is not None and other.shape == value.shape:
            zero = np.logical_not(value.any(axis=1))
            tensors[name] = np.where(zero.reshape(-1, 1), other, value)
    yield "the row of the padding token gets a gradient", tensors


def _powers(probe: Probe, ours: Side, theirs: Side) -> list[tuple[float, str]]:
    """How the error grows with the mean: as its square where a variance is computed in one pass."""
    if probe.about != "far":
        return []
    errors = []
    for shift in (0.0, -0.9e4):  # means of 1e4 and of 1e3 deviations
        moved = replace(
            probe, batch=nest.map(lambda leaf, shift=shift: _shifted(leaf, shift), probe.batch)
        )
        errors.append(_distance(ours.see(moved).tensors, theirs.see(moved).tensors))
    power = (
        float(np.log10(errors[0] / errors[1]))
        if all(errors) and np.isfinite(errors).all()
        else np.nan
    )
    if power > _SQUARED:
        return [
            (
                0.0,
                "one-pass variance, E[x²] - E[x]²: the error grows with the mean to the power of "
                f"{power:.2g}",
            )
        ]
    return [(errors[0], "the mean of the inputs: errors do not grow with its square")]


def _shifted(leaf: Any, shift: float) -> Any:
    is_far = (
        isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f" and leaf.size and leaf.mean() > 5e3
    )
    return leaf + shift if is_far else leaf


# Tensors together
# -----------------------------------------------------------------------------


def _distance(wanted: Mapping[str, np.ndarray], came: Mapping[str, np.ndarray]) -> float:
    """Over all tensors of both together, each in units of its own size."""
    total = 0.0
    for name in (name for name in wanted if name in came):
        one, two = np.asarray(wanted[name], np.float64), np.asarray(came[name], np.float64)
        if one.shape != two.shape:
            return np.inf
        if not (np.isfinite(one).all() and np.isfinite(two).all()):
            return np.inf
        scale = max(float(np.abs(one).max(initial=0.0)), _largest(wanted) * _SMALL)
        total = max(total, float(np.abs(one - two).max(initial=0.0)) / scale if scale else 0.0)
    return total


def _largest(tensors: Mapping[str, np.ndarray]) -> float:
    return max((float(np.abs(value).max(initial=0.0)) for value in tensors.values()), default=0.0)


def _share(first: Arrays, second: Arrays, came: Mapping[str, np.ndarray]) -> float:
    """Where the candidate is on the way from one to the other."""
    names = [
        name for name in first if name in second and name in came and name.startswith("gradient")
    ]
    if not names:
        return 0.0
    one, two, three = (
        np.concatenate([np.ravel(each[name]) for name in names]) for each in (first, second, came)
    )
    way = two - one
    length = float(way @ way)
    return float(way @ (three - one)) / length if length else 0.0


def _between(first: Arrays, second: Arrays, share: float) -> Arrays:
    return {
        name: first[name] + share * (second[name] - first[name]) for name in first if name in second
    }
