"""Why the values of samples differ: tables of changes, executed on the reference's samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.causes import few
from deliralike.conformance.explain import arrays
from deliralike.conformance.explain.arrays import Array, Way, turns
from deliralike.conformance.explain.enumeration import other_orders
from deliralike.conformance.findings import Explanation

# Means and standard deviations that pipelines are copied with, of values in 0..1.
_NORMALISATIONS = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-100's": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "MNIST's": ((0.1307,), (0.3081,)),
    "the one-half": ((0.5,), (0.5,)),
}
# Scales and shifts that pipelines are known for.
_SCALES = {
    (255.0, 0.0): "scaled to 0..255: not divided by 255",
    (1 / 255.0, 0.0): "scaled twice: divided by 255 once more",
    (255.0 / 256.0, 0.0): "divided by 256 instead of 255",
    (256.0 / 255.0, 0.0): "divided by 255 instead of 256",
    (2.0, -1.0): "scaled to -1..1 instead of 0..1",
    (0.5, 0.5): "scaled to 0..1 instead of -1..1",
    (127.5, 127.5): "scaled to 0..255 instead of -1..1",
    (1 / 127.5, -1.0): "scaled to -1..1 instead of 0..255",
}
_MANY = 256  # classes


def explain(reference: Array, candidate: Array, limit: float) -> Explanation | None:
    """The known change of values that gives the candidate's samples.

    Args:
        reference, candidate: The same samples of both.
        limit: Up to here values count as equal.

    Shapes:
        ``(samples, ...)``; the axes after the first may differ between the two.

    Returns:
        What there is to look at where no change gives them; None where the shapes differ, too.
    """
    x, y = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    with np.errstate(all="ignore"):
        found = arrays.met(_alike(x, y), y, limit)
    if found is None and x.shape == y.shape:
        return arrays.compared(x, y)
    return found


def _alike(x: Array, y: Array) -> Iterator[Way]:
    """The changes that give the candidate's shape, simple ones first."""
    of_other_shape = (_turned, _reshaped, _one_hot)
    of_same_shape = (_rounded, _labels, _affine, _channels, _turned, _sample_by_sample)
    for table in of_same_shape if x.shape == y.shape else of_other_shape:
        for words, made in table(x, y):
            if made.shape == y.shape:
                yield words, made


# Types, labels and scales
# -----------------------------------------------------------------------------


def _rounded(x: Array, y: Array) -> Iterator[Way]:
    """Values that went through another type."""
    for words, made in arrays.roundings(x):
        yield f"values {words}", made


def _labels(x: Array, y: Array) -> Iterator[Way]:
    """Whole numbers that stand for other classes."""
    if not (np.array_equal(x, np.rint(x)) and np.array_equal(y, np.rint(y))):
        return
    yield "labels off by one: counted from one instead of zero", x + 1
    yield "labels off by one: one less", x - 1
    known, firsts, places = np.unique(x, return_index=True, return_inverse=True)
    if len(known) <= _MANY and x.size >= 2 * len(known):
        new = y.ravel()[firsts]
        renamed = [(old, to) for old, to in zip(known, new, strict=True) if old != to]
        few = ", ".join(f"{old:g} is {to:g}" for old, to in renamed[:6])
        yield f"classes renamed: {few}", new[places].reshape(x.shape)


def _affine(x: Array, y: Array) -> Iterator[Way]:
    """One scale and shift for all, or for each channel."""
    every = tuple(range(x.ndim))
    for kept in (None, *_channel_axes(x)):
        axes = tuple(axis for axis in every if axis != kept)
        mean, other = x.mean(axes, keepdims=True), y.mean(axes, keepdims=True)
        variance = ((x - mean) ** 2).mean(axes, keepdims=True)
        together = ((x - mean) * (y - other)).mean(axes, keepdims=True)
        constant = variance <= 1e-20 * np.maximum(mean**2, 1e-300)
        scale = np.where(constant, 1.0, together / np.where(constant, 1.0, variance))
        shift = other - scale * mean
        if 2 * scale.size < x.size:
            yield _scaled(scale.ravel(), shift.ravel()), scale * x + shift


def _scaled(scale: Array, shift: Array) -> str:
    """A fitted scale and shift in the words of a pipeline."""
    for words, factor, added in _known_scales():
        sizes = {np.size(factor), np.size(added)}
        if sizes <= {1, len(scale)} and _near(scale, factor) and _near(shift, added):
            return words
    said = f"scale {_figures(scale)}, shift {_figures(shift)}"
    if _near(shift, 0.0):
        return f"another scale, as by another standard deviation: {said}"
    if _near(scale, 1.0):
        return f"shifted, as by another mean: {said}"
    return f"another normalisation (mean and standard deviation): {said}"


def _known_scales() -> Iterator[tuple[str, float | Array, float | Array]]:
    """Scales and shifts in words."""
    for (factor, added), words in _SCALES.items():
        yield words, factor, added
    for name, (mean, deviation) in _NORMALISATIONS.items():
        m, s = np.array(mean), np.array(deviation)
        whose = f"{name} mean and standard deviation"
        yield f"normalisation missing: {whose}", s, m
        once_more = f"normalised with {whose} once more (twice, or where the reference is not)"
        yield once_more, 1 / s, -m / s
        yield f"{name} mean not subtracted", 1.0, m
        yield f"not divided by {name} standard deviation", s, 0.0


def _near(values: Array, wanted: float | Array) -> bool:
    return bool(np.all(np.abs(values - wanted) <= 1e-4 * np.maximum(np.abs(wanted), 1e-3)))


def _figures(values: Array) -> str:
    shown = few([f"{value:.6g}" for value in values], 4)
    return shown if len(values) == 1 else f"[{shown}] by channel"


# Layout and geometry
# -----------------------------------------------------------------------------


def _channel_axes(x: Array) -> list[int]:
    """The axes that may count channels: a sample's first, and its last where that is short."""
    if x.ndim < 2:
        return []
    return [1] if x.ndim == 2 or x.shape[-1] > 4 else [1, x.ndim - 1]


def _channels(x: Array, y: Array) -> Iterator[Way]:
    """Channels in another order; a reshape in the place of a transpose."""
    if x.ndim < 3:
        return
    for axis in _channel_axes(x):
        for order in other_orders(x.shape[axis], most=4):
            is_swapped = order == (2, 1, 0)
            words = "swapped: BGR for RGB" if is_swapped else f"in the order {list(order)}"
            yield f"channels {words}", np.take(x, order, axis)
    for words, before, after in (("NHWC for NCHW", 1, -1), ("NCHW for NHWC", -1, 1)):
        moved = np.moveaxis(x, before, after).reshape(x.shape)
        yield f"a reshape in the place of a transpose ({words})", moved


def _turned(x: Array, y: Array) -> Iterator[Way]:
    """Axes of a sample mirrored, exchanged, or both."""
    return turns(x)


def _sample_by_sample(x: Array, y: Array) -> Iterator[Way]:
    """Each sample mirrored or turned in its own way, as augmentation does it."""
    words, moved = ["unchanged"], [x]
    for turned, array in turns(x):
        if array.shape == y.shape:
            words.append(turned)
            moved.append(array)
    best = np.array([arrays.of_samples(array, y) for array in moved]).argmin(0)
    chosen, counts = np.unique(best, return_counts=True)
    if len(chosen) > 1:
        few = [f"{count} {words[way]}" for way, count in zip(chosen, counts, strict=True)]
        made = np.stack([moved[way][sample] for sample, way in enumerate(best)])
        yield f"augmentation drawn otherwise: of {len(x)} samples {', '.join(few[:4])}", made


# Other shapes
# -----------------------------------------------------------------------------


def _reshaped(x: Array, y: Array) -> Iterator[Way]:
    """The same elements."""
    if x.size == y.size:
        words = "a reshape in the place of a transpose"
        words = words if x.ndim == y.ndim else "the axes of a sample flattened or added"
        yield words, x.reshape(y.shape)


def _one_hot(x: Array, y: Array) -> Iterator[Way]:
    """Labels of another form."""
    if y.ndim == x.ndim + 1:
        for axis in (1, -1):
            hot = (x[..., None] == np.arange(y.shape[axis])).astype(float)
            yield "one-hot labels", np.moveaxis(hot, -1, axis)
