"""Why the values of samples differ: normalisation, layout, channels, geometry or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

from deliralike.conformance.explain import arrays
from deliralike.conformance.explain.arrays import Array, Way, turns
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
_LUMA = ((0.299, 0.587, 0.114), (0.2126, 0.7152, 0.0722), (0.2989, 0.5870, 0.1140), (1 / 3,) * 3)
# Scales and shifts that pipelines are known for.
_SCALES = {
    (255.0, 0.0): "scaled to 0..255: not divided by 255",
    (1 / 255.0, 0.0): "scaled twice: divided by 255 once more",
    (256.0, 0.0): "scaled to 0..256: not divided by 256",
    (255.0 / 256.0, 0.0): "divided by 256 instead of 255",
    (256.0 / 255.0, 0.0): "divided by 255 instead of 256",
    (2.0, -1.0): "scaled to -1..1 instead of 0..1",
    (0.5, 0.5): "scaled to 0..1 instead of -1..1",
    (127.5, 127.5): "scaled to 0..255 instead of -1..1",
    (1 / 127.5, -1.0): "scaled to -1..1 instead of 0..255",
    (-1.0, 1.0): "inverted: 1 - x",
    (-1.0, 255.0): "inverted: 255 - x",
    (-1.0, 0.0): "the sign inverted: -x",
}
_FARTHEST_SHIFT = 8


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
    tables = _OF_OTHER_SHAPE if x.shape != y.shape else _OF_SAME_SHAPE
    for table in tables:
        with np.errstate(all="ignore"):
            found = arrays.met(_alike(table, x, y), y, limit)
        if found is not None:
            return found
    return None if x.shape != y.shape else arrays.compared(x, y)


def _alike(table: Callable[[Array, Array], Iterator[Way]], x: Array, y: Array) -> Iterator[Way]:
    for words, made in table(x, y):
        if made.shape == y.shape:
            yield words, made


# Types and labels
# -----------------------------------------------------------------------------


def _roundings(x: Array, y: Array) -> Iterator[Way]:
    """Values that went through another type."""
    for words, made in arrays.roundings(x):
        yield f"values {words}", made
    yield "values rounded to 8 bits of 0..1", np.rint(x * 255.0) / 255.0
    yield "values cut to 8 bits of 0..1", np.floor(x * 255.0) / 255.0
    yield "values wrapped around at 256, as uint8 does", np.mod(np.trunc(x), 256.0)
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.0, 255.0)):
        yield f"values clipped to {low:g}..{high:g}", np.clip(x, low, high)
    yield "zeros instead of values", np.zeros_like(x)


def _labels(x: Array, y: Array) -> Iterator[Way]:
    """Whole numbers that stand for other classes."""
    if not (np.array_equal(x, np.rint(x)) and np.array_equal(y, np.rint(y))):
        return
    yield "labels off by one: counted from one instead of zero", x + 1
    yield "labels off by one: one less", x - 1
    yield "classes in reversed order", x.max() + x.min() - x
    known, places = np.unique(x, return_inverse=True)
    if len(known) <= 256 and x.size >= 2 * len(known):
        new = np.array([y[x == value][0] for value in known])
        renamed = [(old, to) for old, to in zip(known, new, strict=True) if old != to]
        few = ", ".join(f"{old:g} is {to:g}" for old, to in renamed[:6])
        yield f"classes renamed: {few}", new[places].reshape(x.shape)


# Scales and shifts
# -----------------------------------------------------------------------------


def _affine(x: Array, y: Array) -> Iterator[Way]:
    """One scale and shift for all, or for each channel."""
    every = tuple(range(x.ndim))
    for kept in (None, *_channel_axes(x)):
        scale, shift = _fitted(x, y, tuple(axis for axis in every if axis != kept))
        if 2 * scale.size < x.size:
            yield _scaled(scale.ravel(), shift.ravel()), scale * x + shift


def _fitted(x: Array, y: Array, axes: tuple[int, ...]) -> tuple[Array, Array]:
    """The scale and shift over some axes with the smallest squared error."""
    mean, other = x.mean(axes, keepdims=True), y.mean(axes, keepdims=True)
    variance = ((x - mean) ** 2).mean(axes, keepdims=True)
    covariance = ((x - mean) * (y - other)).mean(axes, keepdims=True)
    constant = variance <= 1e-20 * np.maximum(mean**2, 1e-300)
    scale = np.where(constant, 1.0, covariance / np.where(constant, 1.0, variance))
    return scale, other - scale * mean


def _scaled(scale: Array, shift: Array) -> str:
    """A fitted scale and shift in the words of a pipeline."""
    for name, (mean, deviation) in _NORMALISATIONS.items():
        m, s = np.array(mean), np.array(deviation)
        if len(m) not in (1, len(scale)):
            continue
        known = (
            (s, m, f"normalisation missing: {name} mean and standard deviation"),
            (
                1 / s,
                -m / s,
                f"normalised with {name} mean and standard deviation once more (twice, or where the reference is not)",
            ),
            (1.0, m, f"{name} mean not subtracted"),
            (s, 0.0, f"not divided by {name} standard deviation"),
        )
        for factor, added, words in known:
            if _near(scale, factor) and _near(shift, added):
                return words
    for (factor, added), words in _SCALES.items():
        if _near(scale, factor) and _near(shift, added):
            return words
    said = f"scale {_figures(scale)}, shift {_figures(shift)}"
    if _near(shift, 0.0):
        return f"another scale, as by another standard deviation: {said}"
    if _near(scale, 1.0):
        return f"shifted, as by another mean: {said}"
    return f"another normalisation (mean and standard deviation): {said}"


def _near(values: Array, wanted: Array | float) -> bool:
    return bool(np.all(np.abs(values - wanted) <= 1e-4 * np.maximum(np.abs(wanted), 1e-3)))


def _figures(values: Array) -> str:
    few = ", ".join(f"{value:.6g}" for value in values[:4])
    return few if len(values) == 1 else f"[{few}{', …' if len(values) > 4 else ''}] by channel"


def _normalised(x: Array, y: Array) -> Iterator[Way]:
    """Statistics of the samples themselves, and known ones in the order of other channels."""
    inner = tuple(range(1, x.ndim))
    whose = {inner: "each sample", tuple(range(x.ndim)): "these samples"}
    for kept in _channel_axes(x):
        whose[tuple(axis for axis in inner if axis != kept)] = "each channel of each sample"
    for axes, words in whose.items() if inner else ():
        mean, deviation = x.mean(axes, keepdims=True), x.std(axes, keepdims=True)
        low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
        yield f"{words} normalised by its own mean and standard deviation", (x - mean) / deviation
        yield f"{words} without its own mean", x - mean
        yield f"{words} scaled to 0..1 by its own extremes", (x - low) / (high - low)
    for name, (known, spread) in _NORMALISATIONS.items():
        for axis in _channel_axes(x):
            if x.shape[axis] == len(known) > 1:
                shape = [1] * x.ndim
                shape[axis] = -1
                m, s = np.reshape(known, shape), np.reshape(spread, shape)
                made = (x * s + m - np.flip(m, axis)) / np.flip(s, axis)
                yield f"{name} mean and standard deviation for BGR on RGB", made


def _nonlinear(x: Array, y: Array) -> Iterator[Way]:
    """A power, a logarithm, a bound."""
    low, high = y.min(), y.max()
    yield f"values clipped to {low:.6g}..{high:.6g}", np.clip(x, low, high)
    positive = (x > 0) & (y > 0) & (x != 1)
    if x.min() >= 0.0 and y.min() >= 0.0 and positive.any():
        logs, others = np.log(x[positive]), np.log(y[positive])
        gamma = float(logs @ others / (logs @ logs))
        yield f"a power of the values, gamma {gamma:.4g}", np.where(x > 0, np.abs(x) ** gamma, 0.0)
        yield "log(1 + x) of the values", np.log1p(x)


def _own_scales(x: Array, y: Array) -> Iterator[Way]:
    """A scale and shift for each sample: something drawn, or taken from the sample."""
    if np.prod(x.shape[1:]) > 8:
        scale, shift = _fitted(x, y, tuple(range(1, x.ndim)))
        drawn = "brightness or contrast drawn otherwise, or normalised sample by sample"
        scales = f"{scale.min():.3g} to {scale.max():.3g}"
        yield f"each sample by a scale ({scales}) and shift of its own: {drawn}", scale * x + shift


# Layout and geometry
# -----------------------------------------------------------------------------


def _channel_axes(x: Array) -> list[int]:
    """The axes that may count channels: a sample's first, and its last where that is short."""
    if x.ndim < 2:
        return []
    return [1] if x.ndim == 2 or x.shape[-1] > 4 else [1, x.ndim - 1]


def _channels(x: Array, y: Array) -> Iterator[Way]:
    """Channels in another order, or grey."""
    for axis in _channel_axes(x) if x.ndim > 2 else ():
        count = x.shape[axis]
        for order in list(permutations(range(count)))[1:] if count <= 4 else ():
            swapped = "channels swapped: BGR for RGB"
            words = swapped if order == (2, 1, 0) else f"channels in the order {list(order)}"
            yield words, np.take(x, order, axis)
        for weights in _LUMA if count == 3 else ():
            grey = np.expand_dims(np.tensordot(x, np.array(weights), ([axis], [0])), axis)
            shown = _figures(np.array(weights))
            yield f"colours turned into grey with weights {shown}", np.broadcast_to(grey, x.shape)


def _geometry(x: Array, y: Array) -> Iterator[Way]:
    """Axes of a sample mirrored, exchanged, both; the whole picture moved."""
    yield from turns(x)
    if x.ndim > 2:
        moved = {"NHWC for NCHW": np.moveaxis(x, 1, -1), "NCHW for NHWC": np.moveaxis(x, -1, 1)}
        for words, made in moved.items():
            yield f"a reshape in the place of a transpose ({words})", made.reshape(x.shape)
    for by, words in _displacements(x):
        yield f"{words}, around the edge", np.roll(x, by, (-2, -1))
        yield words, _moved(x, y, *by)


def _displacements(x: Array) -> Iterator[tuple[tuple[int, int], str]]:
    if x.ndim < 3:
        return
    height, width = (min(_FARTHEST_SHIFT, (size - 1) // 2) for size in x.shape[-2:])
    for dy in range(-height, height + 1):
        for dx in range(-width, width + 1):
            if dy or dx:
                yield (dy, dx), f"crop shifted by (dy={dy}, dx={dx})"


def _moved(x: Array, y: Array, dy: int, dx: int) -> Array:
    """`x` moved over `y`: where it does not reach, `y` stays."""
    moved = y.copy()
    rows, columns = x.shape[-2:]
    to = (..., slice(max(dy, 0), rows + min(dy, 0)), slice(max(dx, 0), columns + min(dx, 0)))
    of = (..., slice(max(-dy, 0), rows + min(-dy, 0)), slice(max(-dx, 0), columns + min(-dx, 0)))
    moved[to] = x[of]
    return moved


def _layouts(x: Array, y: Array) -> Iterator[Way]:
    """Another shape with the same elements."""
    yield from turns(x)
    if x.size == y.size:
        words = "a reshape in the place of a transpose"
        words = words if x.ndim == y.ndim else "the axes of a sample flattened or added"
        yield words, x.reshape(y.shape)


def _resized(x: Array, y: Array) -> Iterator[Way]:
    """One-hot labels, repeated or missing channels, parts of pictures, and added borders."""
    if y.ndim == x.ndim + 1:
        for axis in (1, -1):
            hot = (x[..., None] == np.arange(y.shape[axis])).astype(float)
            yield "one-hot labels", np.moveaxis(hot, -1, axis)
    if x.ndim == y.ndim + 1:
        yield "labels (argmax) for one-hot ones", x.argmax(1).astype(float)
    if x.ndim != y.ndim:
        return
    for axis in range(1, x.ndim):
        if x.shape[axis] == 1:
            yield f"axis {axis} repeated, as grey to colours", np.repeat(x, y.shape[axis], axis)
        yield f"axis {axis} cut short", np.take(x, range(min(y.shape[axis], x.shape[axis])), axis)
    if x.ndim < 3:
        return
    rows, columns = y.shape[-2:]
    for dy, dx in _corners(x, y):
        words = f"a window of the reference at (dy={dy}, dx={dx})"
        yield words, x[..., dy : dy + rows, dx : dx + columns]
    for dy, dx in _corners(y, x):
        padded = y.copy()
        padded[..., dy : dy + x.shape[-2], dx : dx + x.shape[-1]] = x
        yield f"an edge around it: padded by {dy} rows and {dx} columns before", padded


def _corners(large: Array, small: Array) -> Iterator[tuple[int, int]]:
    """Where a small picture may lie in a large one; nowhere, where it is not smaller."""
    rows, columns = np.subtract(large.shape[-2:], small.shape[-2:])
    if large.shape[:-2] != small.shape[:-2] or min(rows, columns) < 0:
        return
    for dy in range(min(rows, 4 * _FARTHEST_SHIFT) + 1):
        for dx in range(min(columns, 4 * _FARTHEST_SHIFT) + 1):
            yield dy, dx


# Sample by sample
# -----------------------------------------------------------------------------


def _sample_by_sample(x: Array, y: Array) -> Iterator[Way]:
    """Each sample mirrored, turned or moved in its own way, as augmentation does it."""
    ways = [("unchanged", x), *((words, made) for words, made in turns(x) if made.shape == y.shape)]
    ways += [(words, _moved(x, y, *by)) for by, words in _displacements(x)]
    best = np.array([arrays.of_samples(way, y) for _, way in ways]).argmin(0)
    if len(set(best.tolist())) < 2:
        return
    counts = {ways[i][0]: int((best == i).sum()) for i in sorted(set(best.tolist()))}
    few = ", ".join(f"{count} {words}" for words, count in list(counts.items())[:4])
    made = np.stack([ways[way][1][sample] for sample, way in enumerate(best)])
    yield f"augmentation drawn otherwise: of {len(x)} samples {few}", made


def _boxed(x: Array, y: Array) -> Iterator[Way]:
    """A box of one value in each sample."""
    predicted = x.copy()
    for sample, where in enumerate(x != y) if x.ndim > 2 else ():
        box = tuple(slice(ends.min(), ends.max() + 1) for ends in np.nonzero(where) if len(ends))
        if box and where.size > 2 * x[sample][box].size:
            predicted[sample][box] = y[sample][box].flat[0]
    yield "a box of one value in the picture (cutout, random erasing)", predicted


def _mixed(x: Array, y: Array) -> Iterator[Way]:
    """Each sample mixed with another one of them."""
    if np.prod(x.shape[1:]) < 4 or len(x) < 2:
        return
    predicted, weights = x.copy(), []
    flat, wanted = x.reshape(len(x), -1), y.reshape(len(y), -1)
    for i, (one, two) in enumerate(zip(flat, wanted, strict=True)):
        directions = flat - one
        lengths = (directions**2).sum(1)
        shares = directions @ (two - one) / np.where(lengths > 0.0, lengths, 1.0)
        blends = one + shares[:, None] * directions
        nearest = int(((blends - two) ** 2).sum(1).argmin())
        predicted[i] = blends[nearest].reshape(x.shape[1:])
        weights.append(shares[nearest])
    if np.mean([0.01 < share < 0.99 for share in weights]) >= 0.5:  # else these are other samples
        shares = f"shares of {min(weights):.3g} to {max(weights):.3g}"
        yield f"samples mixed with each other (mixup), {shares}", predicted


_OF_OTHER_SHAPE = (_layouts, _resized)
_OF_SAME_SHAPE = (
    _roundings,
    _labels,
    _normalised,
    _affine,
    _channels,
    _geometry,
    _nonlinear,
    _boxed,
    _mixed,
    _own_scales,
    _sample_by_sample,
)  # simple ones first
