"""Why a probe fails: what the reference would give with a known mistake at that place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import compare
from deliralike.conformance.by_name import only
from deliralike.conformance.explain.arrays import first_met
from deliralike.conformance.findings import MATCH, Explanation, is_array, is_floating
from deliralike.conformance.kinds import Arrays, Tensors

if TYPE_CHECKING:
    from deliralike.conformance.levels.probing import Probe, Seen, Side

_TINY = 1e-150
_STEEP = 1.5  # two passes of a variance have errors of about the first power of the mean
_SMALL = 1e-6  # of the largest tensor: smaller ones are not weighed by themselves
Way = tuple[str, Arrays]  # a mistake in words, and what the reference gives with it


def refusal(probe: Probe, one: Seen, two: Seen) -> str:
    """What one side refuses and the other does not, or in another way."""
    if one.error is None:
        return f"{_said(two.error)} where the reference gives values"
    if two.error is not None:
        return f"{_said(two.error)} where the reference raises {_said(one.error)}"
    more = {
        "index": ", it wraps around or is clamped",
        "one": " (one value per channel has no variance)",
    }
    said = f"no error where the reference raises {_said(one.error)}"
    return said + more.get(probe.about, "")


def _said(error: Exception | None) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__} ({text[:120]})"


def values(probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen) -> Explanation | None:
    """The known mistake with which the reference gives the candidate's tensors.

    None where there is none, and nothing to be seen in the candidate's numbers either.
    """
    if probe.about in _WAYS:
        ways = _WAYS[probe.about](probe, ours, one, two)
        found = first_met(ways, lambda tensors: _distance(tensors, two.tensors))
        if found is not None:
            return found
    seen = _seen(probe, ours, theirs, one, two)
    return Explanation.seen(seen) if seen else None


def _distance(wanted: Arrays, came: Arrays) -> float:
    """Over all tensors that both have, each in units of its own size."""
    shared = only(wanted, came)
    return compare(shared, only(came, shared), rounding=_SMALL * MATCH).difference


def _seen(probe: Probe, ours: Side, theirs: Side, one: Seen, two: Seen) -> str:
    """What the candidate's own numbers show; empty for nothing."""
    if not all(np.isfinite(value).all() for value in two.tensors.values()):
        return _NO_NUMBER.get(probe.about, "no number where the reference has one")
    if probe.about == "far":
        return _growth(probe, ours, theirs)
    if probe.about == "huge" and "loss" in two.tensors:
        mine, its = (float(side.tensors["loss"]) for side in (one, two))
        words = "as log(p + epsilon) or clipped probabilities are"
        return f"a loss that is bounded: {its:.6g} for {mine:.6g}, {words}" if its < mine else ""
    return ""


_NO_NUMBER = {
    "ignored": "NaN: divided by the number of labels that count, which is zero",
    "huge": (
        "no number: an overflow, as exponentials that are not taken relative to the largest have"
    ),
    "one": "no number: the variance of one value",
}


def _growth(probe: Probe, ours: Side, theirs: Side) -> str:
    """How the error grows with the mean: as its square where a variance is computed in one pass."""
    errors = []
    for shift in (0.0, -0.9e4):  # means of 1e4 and of 1e3 deviations
        moved = replace(probe, batch=nest.map(partial(_shifted, shift), probe.batch))
        errors.append(_distance(ours.see(moved).tensors, theirs.see(moved).tensors))
    if not (all(errors) and np.isfinite(errors).all()):
        return ""
    power = float(np.log10(errors[0] / errors[1]))
    words = f"the error grows with the mean to the power of {power:.2g}"
    return f"one-pass variance, E[x²] - E[x]²: {words}" if power > _STEEP else ""


def _shifted(shift: float, leaf: Any) -> Any:
    is_far = is_floating(leaf) and leaf.size and leaf.mean() > 5e3
    return leaf + shift if is_far else leaf


# Known mistakes, and what the reference gives with them
# -----------------------------------------------------------------------------


def _sides_of_zero(probe: Probe, ours: Side, one: Seen, two: Seen) -> Iterator[Way]:
    """Derivatives at zero as they are beside it: all above, all below, and between the two."""
    above, below = (ours.see(replace(probe, beside=by)).tensors for by in (_TINY, -_TINY))
    start = "derivative at zero"
    yield f"{start} is the one above it: relu'(0) = 1, abs'(0) = 1", above
    yield f"{start} is the one below it: relu'(0) = 0, abs'(0) = -1", below
    share, between = _between(below, above, two.tensors)
    found = f"relu'(0) = {share:.4g}, abs'(0) = {2 * share - 1:.4g}"
    yield f"{start} lies between those below and above: {found}", between


def _counted(probe: Probe, ours: Side, one: Seen, two: Seen) -> Iterator[Way]:
    """Ignored labels taken for a class."""
    for label in range(64):
        seen = ours.see(replace(probe, batch=nest.map(partial(_all, label), probe.batch)))
        if seen.error is not None:
            break
        yield f"ignored labels counted as class {label}", seen.tensors


def _all(label: int, leaf: Any) -> Any:
    """Another label in the place of labels that are all ignored."""
    is_label = is_array(leaf) and leaf.dtype.kind in "iu" and leaf.size
    ignored = is_label and leaf.flat[0] in (-100, -1, 255) and bool((leaf == leaf.flat[0]).all())
    return np.full_like(leaf, label) if ignored else leaf


def _with_gradient_of_padding(probe: Probe, ours: Side, one: Seen, two: Seen) -> Iterator[Way]:
    """Only rows differ in which the reference's gradient is zero."""
    tensors = dict(one.tensors)
    for name, value in one.tensors.items():
        other = two.tensors.get(name)
        if value.ndim == 2 and other is not None and other.shape == value.shape:
            tensors[name] = np.where(value.any(axis=1, keepdims=True), value, other)
    yield "the row of the padding token gets a gradient", tensors


def _between(first: Arrays, second: Arrays, came: Arrays) -> tuple[float, Tensors]:
    """Where the candidate's gradients are on the way from one to the other, and what is there."""
    names = [name for name in first if name in second and name in came]
    gradients = [name for name in names if name.startswith("gradient")]
    share = 0.0
    if gradients:
        one, two, three = (
            np.concatenate([np.ravel(side[name]) for name in gradients])
            for side in (first, second, came)
        )
        way = two - one
        share = float(way @ (three - one)) / (float(way @ way) or 1.0)
    return share, {name: first[name] + share * (second[name] - first[name]) for name in names}


_WAYS = {
    "zeros": _sides_of_zero,
    "ignored": _counted,
    "padding": _with_gradient_of_padding,
}
