"""Why the values of samples differ: normalisation, layout, channels, geometry or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import Explanation

Fit = Callable[[np.ndarray, np.ndarray], Iterator[tuple[str, np.ndarray]]]

# Means and standard deviations that pipelines are copied with, of values in 0..1.
_NORMALISATIONS = {
    "ImageNet's": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "CIFAR-10's": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "CIFAR-100's": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    "CLIP's": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "MNIST's": ((0.1307,), (0.3081,)),
    "the one-half": ((0.5,), (0.5,)),
}
_LUMA = (
    (0.299, 0.587, 0.114),
    (0.2126, 0.7152, 0.0722),
    (0.2989, 0.5870, 0.1140),
    (1 / 3, 1 / 3, 1 / 3),
)
_FARTHEST_SHIFT = 8
_SAME_VALUE = 1e-6


def explain(reference: np.ndarray, candidate: np.ndarray, limit: float) -> Explanation | None:
    """The known change of values whose result is nearest to the candidate's samples.

    Args:
        reference, candidate: The same samples of both.
        limit: Up to here values count as equal.

    Shapes:
        ``(samples, ...)``; the axes after the first may differ between the two.
    """
    x, y = np.asarray(reference, np.float64), np.asarray(candidate, np.float64)
    fits = _OF_OTHER_SHAPE if x.shape != y.shape else _OF_SAME_SHAPE
    tried: list[tuple[float, str]] = []
    for fit in fits:
        for cause, predicted in fit(x, y):
            difference = relative_difference(predicted, y)
            tried.append((0.0 if difference <= limit else difference, cause))
        if any(difference == 0.0 for difference, _ in tried):
            break  # what comes later can only be less simple
    if x.shape == y.shape and not any(difference == 0.0 for difference, _ in tried):
        tried += list(_sample_by_sample(x, y, limit))
    tried.sort(key=lambda pair: pair[0])
    if x.shape == y.shape:
        left = _noise(x, y)
        # A fit takes a little of any noise away: what leaves most of it is no explanation.
        tried.insert(0 if not tried or tried[0][0] > 0.5 * left[0] else len(tried), left)
    if not tried:
        return None
    following = next((difference for difference, _ in tried[1:] if difference > tried[0][0]), None)
    return Explanation(tried[0][1], tried[0][0], following)


# Types and labels
# -----------------------------------------------------------------------------


def _roundings(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Values that went through another type."""
    yield "values rounded to float32", x.astype(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        yield "values rounded to float16", x.astype(np.float16).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    yield (
        "values rounded to bfloat16",
        _from_bits((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000),
    )
    yield "values cut to bfloat16", _from_bits(bits & 0xFFFF0000)
    yield "values rounded to whole numbers", np.rint(x)
    yield "values cut to whole numbers", np.trunc(x)
    yield "values rounded to 8 bits of 0..1", np.rint(x * 255.0) / 255.0
    yield "values cut to 8 bits of 0..1", np.floor(x * 255.0) / 255.0
    yield "values wrapped around at 256, as uint8 does", np.mod(np.trunc(x), 256.0)
    yield "values clipped to 0..1", np.clip(x, 0.0, 1.0)
    yield "values clipped to -1..1", np.clip(x, -1.0, 1.0)
    yield "values clipped to 0..255", np.clip(x, 0.0, 255.0)
    yield "zeros instead of values", np.zeros_like(x)


def _from_bits(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def _labels(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Whole numbers that stand for other classes."""
    if not (np.array_equal(x, np.rint(x)) and np.array_equal(y, np.rint(y))):
        return
    yield "labels off by one: counted from one instead of zero", x + 1
    yield "labels off by one: one less", x - 1
    yield "classes in reversed order", x.max() + x.min() - x
    known = np.unique(x)
    if len(known) > 256 or x.size < 2 * len(known):
        return
    table = {value: y[x == value] for value in known.tolist()}
    if all((values == values[0]).all() for values in table.values()):
        renamed = {int(old): int(new[0]) for old, new in table.items() if new[0] != old}
        few = ", ".join(f"{old} is {new}" for old, new in list(renamed.items())[:6])
        yield (
            f"classes renamed: {few}",
            np.array([table[value][0] for value in x.ravel().tolist()]).reshape(x.shape),
        )


# Scales and shifts
# -----------------------------------------------------------------------------


def _affine(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """One scale and shift for all, or for each channel."""
    scale, shift = _fitted(x, y, tuple(range(x.ndim)))
    yield _scaled(scale.ravel(), shift.ravel(), x, y), scale * x + shift
    for axis in _channel_axes(x):
        scale, shift = _fitted(x, y, tuple(other for other in range(x.ndim) if other != axis))
        yield _scaled(scale.ravel(), shift.ravel(), x, y), scale * x + shift


def _fitted(x: np.ndarray, y: np.ndarray, axes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The scale and shift over some axes with the smallest squared error."""
    mean, other = x.mean(axes, keepdims=True), y.mean(axes, keepdims=True)
    centred = x - mean
    variance = (centred**2).mean(axes, keepdims=True)
    covariance = (centred * (y - other)).mean(axes, keepdims=True)
    constant = variance <= 1e-20 * np.maximum(mean**2, 1e-300)
    scale = np.where(constant, 1.0, covariance / np.where(constant, 1.0, variance))
    return scale, other - scale * mean


def _scaled(scale: np.ndarray, shift: np.ndarray, x: np.ndarray, y: np.ndarray) -> str:
    """A fitted scale and shift in the words of a pipeline."""
    for name, (mean, deviation) in _NORMALISATIONS.items():
        m, s = np.array(mean), np.array(deviation)
        if len(m) not in (1, len(scale)):
            continue
        if _near(scale, s) and _near(shift, m):
            return f"normalisation missing: not divided by {name} standard deviation after its mean was subtracted"
        if _near(scale, 1 / s) and _near(shift, -m / s):
            return f"normalised with {name} mean and standard deviation once more (twice, or where the reference is not)"
        if _near(scale, 1.0) and _near(shift, m):
            return f"{name} mean not subtracted"
        if _near(scale, s) and _near(shift, 0.0):
            return f"not divided by {name} standard deviation"
    values = _known_scale(scale, shift)
    if values:
        return values
    said = f"scale {_figures(scale)}, shift {_figures(shift)}"
    if y.min() >= -_SAME_VALUE and y.max() <= 1 + _SAME_VALUE and x.min() < -0.1:
        return f"normalisation missing, values within 0..1: {said}"
    if _near(shift, 0.0):
        return f"another scale, as by another standard deviation: {said}"
    if _near(scale, 1.0):
        return f"shifted, as by another mean: {said}"
    return f"another normalisation (mean and standard deviation): {said}"


def _known_scale(scale: np.ndarray, shift: np.ndarray) -> str:
    known = {
        (255.0, 0.0): "scaled to 0..255: not divided by 255",
        (1 / 255.0, 0.0): "scaled twice: divided by 255 once more",
        (256.0, 0.0): "scaled to 0..256: not divided by 256",
        (1 / 256.0, 0.0): "scaled twice: divided by 256 once more",
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
    return next(
        (words for (a, b), words in known.items() if _near(scale, a) and _near(shift, b)), ""
    )


def _near(values: np.ndarray, wanted: np.ndarray | float) -> bool:
    return bool(np.all(np.abs(values - wanted) <= 1e-4 * np.maximum(np.abs(wanted), 1e-3)))


def _figures(values: np.ndarray) -> str:
    few = ", ".join(f"{value:.6g}" for value in values[:4])
    return few if len(values) == 1 else f"[{few}{', …' if len(values) > 4 else ''}] by channel"


def _normalised(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Statistics of the samples themselves, and known ones in the order of other channels."""
    inner = tuple(range(1, x.ndim))
    if not inner:
        return
    for axes, whose in [(inner, "each sample"), (tuple(range(x.ndim)), "these samples")] + [
        ((*(other for other in inner if other != axis),), "each channel of each sample")
        for axis in _channel_axes(x)
    ]:
        mean, deviation = x.mean(axes, keepdims=True), x.std(axes, keepdims=True)
        safe = np.where(deviation > 0.0, deviation, 1.0)
        yield f"{whose} normalised by its own mean and standard deviation", (x - mean) / safe
        yield f"{whose} without its own mean", x - mean
        low, high = x.min(axes, keepdims=True), x.max(axes, keepdims=True)
        yield (
            f"{whose} scaled to 0..1 by its own extremes",
            (x - low) / np.where(high > low, high - low, 1.0),
        )
    for name, (mean, deviation) in _NORMALISATIONS.items():
        for axis in (axis for axis in _channel_axes(x) if x.shape[axis] == len(mean) > 1):
            shape = [1] * x.ndim
            shape[axis] = -1
            m, s = np.reshape(mean, shape), np.reshape(deviation, shape)
            reverse = np.flip(m, axis), np.flip(s, axis)
            yield (
                f"{name} mean and standard deviation for BGR on RGB",
                (x * s + m - reverse[0]) / reverse[1],
            )


def _nonlinear(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A power, a logarithm, a bound."""
    low, high = y.min(), y.max()
    yield f"values clipped to {low:.6g}..{high:.6g}", np.clip(x, low, high)
    positive = (x > 0) & (y > 0) & (x != 1)
    if x.min() >= 0.0 and y.min() >= 0.0 and positive.any():
        logs, others = np.log(x[positive]), np.log(y[positive])
        gamma = float(logs @ others / (logs @ logs))
        yield f"a power of the values, gamma {gamma:.4g}", np.where(x > 0, np.abs(x) ** gamma, 0.0)
        yield "log(1 + x) of the values", np.log1p(x)
        yield (
            "the values as linear light of sRGB",
            np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4),
        )


def _own_scales(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A scale and shift for each sample: something drawn, or taken from the sample."""
    inner = tuple(range(1, x.ndim))
    if np.prod(x.shape[1:]) > 8:
        scale, shift = _fitted(x, y, inner)
        drawn = "brightness or contrast drawn otherwise, or normalised sample by sample"
        scales = f"{scale.min():.3g} to {scale.max():.3g}"
        yield f"each sample by a scale ({scales}) and shift of its own: {drawn}", scale * x + shift


# Layout and geometry
# -----------------------------------------------------------------------------


def _channel_axes(x: np.ndarray) -> list[int]:
    """Return the axes that may count channels: a sample's first, and its last where that is short."""
    if x.ndim < 2:
        return []
    return [1] if x.ndim == 2 or x.shape[-1] > 4 else [1, x.ndim - 1]


def _channels(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Channels in another order, or grey."""
    for axis in (axis for axis in _channel_axes(x) if x.ndim > 2 and x.shape[axis] <= 4):
        count = x.shape[axis]
        for order in list(permutations(range(count)))[1:]:
            words = (
                "channels swapped: BGR for RGB"
                if order == (2, 1, 0)
                else f"channels in the order {list(order)}"
            )
            yield words, np.take(x, order, axis)
        for weights in _LUMA if count == 3 else ():
            grey = np.expand_dims(np.tensordot(x, np.array(weights), ([axis], [0])), axis)
            yield (
                f"colours turned into grey with weights {_figures(np.array(weights))}",
                np.broadcast_to(grey, x.shape),
            )
        for kept in range(count if count > 1 else 0):
            only = np.broadcast_to(np.take(x, [kept], axis), x.shape)
            yield f"channel {kept} in the place of every channel", only


def _geometry(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Axes of a sample mirrored, exchanged, both."""
    for words, turned in turns(x):
        if turned.shape == y.shape:
            yield words, turned
    if x.ndim > 2:
        flat = np.moveaxis(x, 1, -1).reshape(x.shape)
        yield "a reshape in the place of a transpose (NHWC for NCHW)", flat
        yield (
            "a reshape in the place of a transpose (NCHW for NHWC)",
            np.moveaxis(x, -1, 1).reshape(x.shape),
        )


def turns(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Every way to mirror and exchange the axes of a sample."""
    inner = x.ndim - 1
    for order in permutations(range(inner)) if inner <= 3 else [tuple(range(inner))]:
        moved = np.transpose(x, (0, *(axis + 1 for axis in order)))
        for count in range(inner + 1):
            for axes in combinations(range(inner), count):
                if count or order != tuple(range(inner)):
                    yield _turned(order, axes), np.flip(moved, tuple(axis + 1 for axis in axes))


def _turned(order: tuple[int, ...], flipped: tuple[int, ...]) -> str:
    """In the words of pictures: rows, columns and channels."""
    inner = len(order)
    rows, columns = inner - 2, inner - 1
    if order == tuple(range(inner)):
        known = {
            (columns,): "flipped left to right",
            (rows,): "flipped upside down",
            (rows, columns): "rotated by 180 degrees",
        }
        if inner == 1:
            return "the features of a sample reversed"
        return known.get(flipped, f"sample axes {list(flipped)} mirrored")
    if order == (*range(inner - 2), columns, rows):
        known = {
            (): "rows and columns transposed",
            (rows,): "rotated by 90 degrees counterclockwise",
            (columns,): "rotated by 90 degrees clockwise",
        }
        if flipped in known:
            return known[flipped]
    mirrored = f", axes {list(flipped)} mirrored" if flipped else ""
    named: dict[tuple[int, ...], str] = {
        (1, 2, 0): "layout NHWC for NCHW",
        (2, 0, 1): "layout NCHW for NHWC",
    }
    return f"{named.get(order, f'sample axes in the order {list(order)}')}{mirrored}"


def _shifted(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the whole picture moved by some rows and columns, with any border or around the edge."""
    for (dy, dx), words in _displacements(x):
        yield f"{words}, around the edge", np.roll(x, (dy, dx), (-2, -1))
        yield words, _moved(x, y, dy, dx)


def _displacements(x: np.ndarray) -> Iterator[tuple[tuple[int, int], str]]:
    if x.ndim < 3:
        return
    height, width = (
        min(_FARTHEST_SHIFT, (size - 1) // 2) if size > 2 else 0 for size in x.shape[-2:]
    )
    for dy in range(-height, height + 1):
        for dx in range(-width, width + 1):
            if dy or dx:
                yield (dy, dx), f"crop shifted by (dy={dy}, dx={dx})"


def _moved(x: np.ndarray, y: np.ndarray, dy: int, dx: int) -> np.ndarray:
    """`x` moved over `y`: where it does not reach, `y` stays."""
    moved = y.copy()
    rows, columns = x.shape[-2:]
    to = (..., slice(max(dy, 0), rows + min(dy, 0)), slice(max(dx, 0), columns + min(dx, 0)))
    of = (..., slice(max(-dy, 0), rows + min(-dy, 0)), slice(max(-dx, 0), columns + min(-dx, 0)))
    moved[to] = x[of]
    return moved


def _layouts(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Another shape with the same elements."""
    if x.size == y.size:
        for words, turned in turns(x):
            if turned.shape == y.shape:
                yield words, turned
        if x.ndim != y.ndim:
            yield "the axes of a sample flattened or added", x.reshape(y.shape)
        yield "a reshape in the place of a transpose", x.reshape(y.shape)


def _resized(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Yield one-hot labels, repeated or missing channels, parts of pictures, and added borders."""
    if y.ndim == x.ndim + 1 and np.array_equal(x, np.rint(x)):
        for axis in (1, -1):
            yield (
                "one-hot labels",
                np.moveaxis((x[..., None] == np.arange(y.shape[axis])).astype(float), -1, axis),
            )
    if x.ndim == y.ndim + 1:
        yield "labels (argmax) for one-hot ones", x.argmax(1).astype(float)
    if x.ndim != y.ndim:
        return
    for axis in range(1, x.ndim):
        if x.shape[axis] == 1:
            yield f"axis {axis} repeated, as grey to colours", np.repeat(x, y.shape[axis], axis)
        if y.shape[axis] < x.shape[axis]:
            yield f"axis {axis} cut short", np.take(x, range(y.shape[axis]), axis)
    if x.ndim < 3:
        return
    if all(small <= large for small, large in zip(y.shape[1:], x.shape[1:], strict=True)):
        yield from (
            (f"a window of the reference at (dy={dy}, dx={dx})", part)
            for dy, dx, part in _windows(x, y)
        )
    if all(small <= large for small, large in zip(x.shape[1:], y.shape[1:], strict=True)):
        for dy, dx, _ in _windows(y, x):
            padded = y.copy()
            padded[..., dy : dy + x.shape[-2], dx : dx + x.shape[-1]] = x
            yield f"an edge around it: padded by {dy} rows and {dx} columns before", padded


def _windows(large: np.ndarray, small: np.ndarray) -> Iterator[tuple[int, int, np.ndarray]]:
    rows, columns = small.shape[-2:]
    for dy in range(min(large.shape[-2] - rows, 4 * _FARTHEST_SHIFT) + 1):
        for dx in range(min(large.shape[-1] - columns, 4 * _FARTHEST_SHIFT) + 1):
            yield dy, dx, large[..., dy : dy + rows, dx : dx + columns]


# Sample by sample
# -----------------------------------------------------------------------------


def _sample_by_sample(x: np.ndarray, y: np.ndarray, limit: float) -> Iterator[tuple[float, str]]:
    """Each sample mirrored, turned or moved in its own way, as augmentation does it."""
    ways = [
        ("unchanged", x),
        *((words, turned) for words, turned in turns(x) if turned.shape == y.shape),
    ]
    ways += [(words, _moved(x, y, *by)) for by, words in _displacements(x)]
    distances = np.array(
        [[relative_difference(a, b) for a, b in zip(way, y, strict=True)] for _, way in ways]
    )
    best = distances.argmin(0)
    if len(set(best.tolist())) > 1:
        counts = {ways[i][0]: int((best == i).sum()) for i in sorted(set(best.tolist()))}
        few = ", ".join(f"{count} {words}" for words, count in list(counts.items())[:4])
        worst = float(distances.min(0).max())
        yield (
            0.0 if worst <= limit else worst,
            f"augmentation drawn in another order, applied twice or not at all: of {len(x)} "
            f"samples {few}",
        )


def _boxed(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A box of one value in each sample."""
    if x.ndim < 3:
        return
    differs, predicted = x != y, x.copy()
    for sample, where in enumerate(differs):
        box = tuple(slice(ends.min(), ends.max() + 1) for ends in np.nonzero(where) if len(ends))
        if box and where.size > 2 * x[sample][box].size:
            predicted[sample][box] = y[sample][box].flat[0]
    yield "a box of one value in the picture (cutout, random erasing)", predicted


def _mixed(x: np.ndarray, y: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
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
    if np.mean([0.01 < share < 0.99 for share in weights]) < 0.5:
        return  # other samples, not mixed ones
    yield (
        f"samples mixed with each other (mixup), shares of {min(weights):.3g} to "
        f"{max(weights):.3g}",
        predicted,
    )


def _noise(x: np.ndarray, y: np.ndarray) -> tuple[float, str]:
    """What is left where nothing explains it."""
    if not np.isfinite(y).all():
        return np.inf, f"{int((~np.isfinite(y)).sum())} values that are not finite"
    difference = y - x
    return relative_difference(x, y), (
        f"noise or something else added, of mean {difference.mean():.2g} and standard deviation "
        f"{difference.std():.2g}"
    )


_OF_OTHER_SHAPE: tuple[Fit, ...] = (_layouts, _resized)
_OF_SAME_SHAPE: tuple[Fit, ...] = (
    _roundings,
    _labels,
    _normalised,
    _affine,
    _channels,
    _geometry,
    _nonlinear,
    _shifted,
    _boxed,
    _mixed,
    _own_scales,
)  # simple ones first
