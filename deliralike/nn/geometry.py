"""Sizes, paddings, divisors, index tables and weight tables of windows and of resampling.

Everything here is plain integers and host arrays.
"""

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn.start import Shape

Pads = tuple[tuple[int, int], ...]
PerAxis = tuple[int, ...]  # one number for each axis
Sizes = int | Sequence[int]  # one number, or one for each axis
PoolSettings = tuple[
    PerAxis, PerAxis, PerAxis, PerAxis
]  # kernel, stride, padding, dilation


def per_axis(value: Sizes, n: int, name: str, least: int | None = None) -> Shape:
    """Return one whole number for each of `n` axes; one in a list is for all, as in PyTorch.

    Numbers below `least` are refused.

    Example:
        >>> per_axis(3, 2, "kernel_size"), per_axis([3], 2, "kernel_size")
        ((3, 3), (3, 3))
    """
    values = for_each(value, n)
    if len(values) != n:
        raise SettingError(
            f"{name}={value!r} has {len(values)} numbers; wanted one, or one for each of {n} axes"
        )
    try:
        numbers = tuple(map(operator.index, values))
    except TypeError as error:
        raise SettingError(f"{name}={value!r} must be whole numbers") from error
    if least is not None and min(numbers) < least:
        raise SettingError(f"{name}={numbers!r}: every number must be at least {least}")
    return numbers


def output_sizes(value: int | Sequence[int | None] | None, sizes: Shape) -> Shape:
    """Return the output's size along each axis; None stands for that of the input.

    Example:
        >>> output_sizes((None, 7), (5, 5))
        (5, 7)
    """
    values = for_each(value, len(sizes))
    if len(values) == len(sizes):
        pairs = zip(values, sizes, strict=True)
        values = tuple(old if new is None else new for new, old in pairs)
    return per_axis(values, len(sizes), "output_size", least=1)


def for_each(value: Any, n: int) -> tuple[Any, ...]:
    """Return the values of a setting; one for each of `n` axes where there is one for all."""
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    if len(values) == 1:
        values *= n
    return values


def steps(value: Sizes, n: int, name: str) -> Shape:
    """Return one whole number of at least one for each of `n` axes."""
    return per_axis(value, n, name, least=1)


def expanded(sizes: Sequence[int], shape: Sequence[int]) -> Shape:
    """Return a shape to broadcast to, with the size of an axis in the place of its -1.

    Example:
        >>> expanded((3, 1), (2, -1, 4))
        (2, 3, 4)
    """
    added = len(shape) - len(sizes)
    known = (*shape[:added], *sizes)
    return tuple(
        old if size == -1 else size for old, size in zip(known, shape, strict=False)
    )


def conv_padding(
    padding: int | str | Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Pads:
    """Return the padding before and after each axis.

    ``"same"`` (stride 1 only) puts the odd element after the data, as PyTorch does.

    Example:
        >>> conv_padding("same", (4,), (1,), (1,))
        ((1, 2),)
    """
    if isinstance(padding, str):
        return _named_padding(padding, kernel, stride, dilation)
    values = per_axis(padding, len(kernel), "padding", least=0)
    return tuple((p, p) for p in values)


def _named_padding(
    padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Pads:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise SettingError(
            f"padding={padding!r}: wanted whole numbers, 'same' or 'valid'"
        )
    if any(s != 1 for s in stride):
        raise SettingError(
            f"padding='same' needs stride 1, not {tuple(stride)!r}: pad explicitly with nn.pad"
        )
    pads = []
    for length, step in zip(kernel, dilation, strict=True):
        total = step * (length - 1)
        before = total // 2
        pads.append((before, total - before))
    return tuple(pads)


def conv_size(
    size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int
) -> int:
    """Return the length of an axis after a convolution."""
    reach = dilation * (kernel - 1) + 1
    return (size + sum(pads) - reach) // stride + 1


def conv_sizes(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Pads,
    dilation: Sequence[int],
) -> Shape:
    """Return the length of each axis after a convolution."""
    rows = zip(size, kernel, stride, pads, dilation, strict=True)
    return tuple(conv_size(*row) for row in rows)


def tap_slices(kernel: int, count: int, stride: int, dilation: int) -> list[slice]:
    """Return, for each element of a kernel along an axis, what lies below it in all windows.

    Example:
        >>> tap_slices(2, 3, 2, 1)
        [slice(0, 5, 2), slice(1, 6, 2)]
    """
    length = (count - 1) * stride + 1
    return [
        slice(start, start + length, stride)
        for start in range(0, kernel * dilation, dilation)
    ]


def first_inside(
    count: int, kernel: int, stride: int, before: int, dilation: int
) -> np.ndarray:
    """Return for each window along an axis which of its elements is the first that is no padding.

    Args:
        before: The padding in front; one that crops is negative.

    Example:
        >>> first_inside(3, 3, 1, before=1, dilation=1)
        array([1, 0, 0])
    """
    lacking = np.maximum(before - np.arange(count) * stride, 0)
    return np.minimum(-(-lacking // dilation), kernel - 1)


def conv_transposed_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int
) -> int:
    """Return the length of an axis after a transposed convolution, without output padding."""
    reach = dilation * (kernel - 1) + 1
    return (size - 1) * stride + reach - 2 * padding


def conv_transposed_sizes(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> Shape:
    """Return the length of each axis after a transposed convolution."""
    least = map(conv_transposed_size, size, kernel, stride, padding, dilation)
    return tuple(map(operator.add, least, output_padding))


def below_steps(extra: Shape, stride: Shape, dilation: Shape) -> Shape:
    """Return the padding of a transposed convolution's output, or raise an error.

    Padding by a whole step or more would hold nothing but zeros.
    """
    for padding, *limits in zip(extra, stride, dilation, strict=True):
        if padding >= max(limits):
            raise SettingError(
                f"output_padding={extra!r} must be smaller than stride={stride!r} or "
                f"dilation={dilation!r}"
            )
    return extra


def pool_settings(
    n: int,
    kernel_size: Sizes,
    stride: Sizes | None,
    padding: Sizes,
    dilation: Sizes,
) -> PoolSettings:
    """Return the kernel, stride, padding and dilation of a pooling, one number for each axis."""
    kernel = steps(kernel_size, n, "kernel_size")
    strides = kernel if stride is None else steps(stride, n, "stride")
    pads = per_axis(padding, n, "padding", least=0)
    for pad, length in zip(pads, kernel, strict=True):
        if pad > length // 2:
            raise SettingError(
                f"padding={pads!r} is more than half of kernel_size={kernel!r}: windows would hold "
                "no data"
            )
    return kernel, strides, pads, steps(dilation, n, "dilation")


def pool_size(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> int:
    """Compute the length of an axis after pooling.

    The result is below one when no window fits, or when a window would hold padding alone.
    """
    if padding and size < dilation:  # PyTorch writes out of bounds then
        return 0
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    last = -(-span // stride)  # rounded up
    starts_after_the_data = last * stride >= size + padding
    return last if starts_after_the_data else last + 1


def pool_pads(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> tuple[int, int]:
    """Return the padding with which a floor-mode pooling equals PyTorch's, also in ceil mode.

    In ceil mode a last window may hang over the end, but not start in the padding after the data.

    Example:
        >>> pool_pads(4, 2, 3, 1, 1, ceil_mode=True)  # a third window would start in the padding
        (1, 1)
    """
    count = pool_size(size, kernel, stride, padding, dilation, ceil_mode)
    reach = dilation * (kernel - 1) + 1
    if count < 1:
        least = max(reach - 2 * padding, dilation if padding else 1)
        raise ShapeError(
            f"pooling with a reach of {reach} needs at least {least} elements along each axis, not "
            f"{size}"
        )
    end = (
        count - 1
    ) * stride + reach  # of the last window, counted from the padding's start
    return padding, max(padding, end - size - padding)


def pool_pads_per_axis(
    size: Sequence[int], settings: PoolSettings, ceil_mode: bool
) -> Pads:
    """Apply `pool_pads` to each axis; the settings are those of `pool_settings`."""
    rows = zip(size, *settings, strict=True)
    return tuple(pool_pads(*row, ceil_mode) for row in rows)


def pool_divisor(
    size: int,
    kernel: int,
    stride: int,
    padding: int,
    pads: tuple[int, int],
    count_include_pad: bool,
) -> np.ndarray:
    """Count the elements that each window along one axis averages over, as PyTorch does."""
    windows = (size + sum(pads) - kernel) // stride + 1
    starts = np.arange(windows) * stride - padding
    ends = starts + kernel
    if count_include_pad:
        return np.minimum(ends, size + padding) - starts
    return np.minimum(ends, size) - np.maximum(starts, 0)


def window_table(sizes: Sequence[int], axes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the positions below each window, in row-major order: (windows, taps); -1 for padding.

    Args:
        sizes: The length of each axis.
        axes: For each axis the positions below its windows, as `window_taps` gives them.
    """
    table = np.zeros((1, 1), np.int64)
    for size, axis in zip(sizes, axes, strict=True):
        before = table[:, None, :, None]
        along = axis[None, :, None, :]
        joined = np.where((before < 0) | (along < 0), -1, before * size + along)
        table = joined.reshape(len(table) * len(axis), -1)
    return table


def window_taps(
    size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> np.ndarray:
    """Return the positions below each window along an axis: (windows, kernel); -1 for padding.

    Example:
        >>> window_taps(4, 2, 2, 1, 1, ceil_mode=False).tolist()
        [[-1, 0], [1, 2], [3, -1]]
    """
    count = pool_size(size, kernel, stride, padding, dilation, ceil_mode)
    starts = np.arange(count) * stride - padding
    taps = starts[:, None] + np.arange(kernel) * dilation
    return np.where((taps >= 0) & (taps < size), taps, -1)


def adaptive_taps(size: int, out: int) -> np.ndarray:
    """Return the positions below each window of adaptive pooling, filled up with -1.

    Example:
        >>> adaptive_taps(3, 2).tolist()
        [[0, 1], [1, 2]]
    """
    windows = adaptive_windows(size, out)
    longest = max(end - start for start, end in windows)
    taps = np.full((out, longest), -1)
    for row, (start, end) in enumerate(windows):
        taps[row, : end - start] = np.arange(start, end)
    return taps


def unpool_size(
    size: Shape,
    settings: PoolSettings,
    output_size: Sequence[int] | None,
) -> Shape:
    """Return the size in front of a pooling; that of `pool_settings`, or a larger one as given.

    Example:
        >>> unpool_size((2, 3), ((2, 2), (2, 2), (0, 0), (1, 1)), None)
        (4, 6)
    """
    rows = zip(size, *settings[:3], strict=True)
    least = tuple(
        (n - 1) * stride - 2 * pad + kernel for n, kernel, stride, pad in rows
    )
    if output_size is None:
        return least
    wanted = tuple(int(length) for length in output_size)[-len(size) :]
    stride = settings[1]
    near = [abs(a - b) < s for a, b, s in zip(wanted, least, stride, strict=False)]
    if len(wanted) != len(size) or not all(near):
        raise SettingError(
            f"max_unpool: output_size={tuple(output_size)!r}; wanted sizes less than the stride "
            f"{stride!r} away from {least!r}"
        )
    return wanted


def adaptive_windows(size: int, out: int) -> list[tuple[int, int]]:
    """Return the start and end of each window of adaptive pooling; `out` may exceed `size`."""
    windows = []
    for i in range(out):
        start = i * size // out
        end = -(-(i + 1) * size // out)  # rounded up
        windows.append((start, end))
    return windows


def adaptive_matrix(size: int, out: int) -> np.ndarray:
    """Return the (out, size) matrix that averages over adaptive windows."""
    matrix = np.zeros((out, size))
    for row, (start, end) in enumerate(adaptive_windows(size, out)):
        matrix[row, start:end] = 1.0 / (end - start)
    return matrix


def resized(size: int, scale: float) -> int:
    """Return the length of an axis after scaling, rounded down."""
    return math.floor(size * scale)


def nearest_index(size: int, out: int, scale: float | None) -> np.ndarray:
    """Return the source of each output element for nearest neighbours.

    It is ``floor(i * in/out)``, or ``floor(i / scale)`` when a scale was given.

    The result is exact. PyTorch rounds the step first: from 14 to 46 elements, its element 23 is
    element 6 in float32 and 7 in float64, and the gradient of that 7 goes to 6.
    """
    index = np.arange(out)
    if scale is None:
        return index * size // out
    return np.minimum((index / scale).astype(np.int64), size - 1)


def exact_step(size: int, out: int, scale: float | None) -> bool:
    """Return whether the step of nearest neighbours is a number without rounding.

    Such a step is a whole number, or 1 divided by a power of two.
    """
    if scale is not None and scale * size != out:
        return False
    if size % out == 0:
        return True
    times = out // size
    is_power_of_two = times & (times - 1) == 0
    return out % size == 0 and is_power_of_two


def linear_matrix(
    size: int, out: int, align_corners: bool, scale: float | None
) -> np.ndarray:
    """Return the (out, size) matrix of linear interpolation along one axis; no antialiasing."""
    return _interpolation(size, out, align_corners, scale, (0, 1), _linear)


def cubic_matrix(
    size: int, out: int, align_corners: bool, scale: float | None
) -> np.ndarray:
    """Return the (out, size) matrix of cubic convolution along one axis; no antialiasing.

    Source: Keys 1981, with -0.75.
    """
    kernel = partial(_cubic, a=-0.75)
    return _interpolation(size, out, align_corners, scale, (-1, 0, 1, 2), kernel)


def _interpolation(
    size: int,
    out: int,
    align_corners: bool,
    scale: float | None,
    neighbours: Sequence[int],
    kernel: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return the (out, size) matrix in which a kernel weighs the elements around each position.

    Positions beyond an end count as the last element there.
    """
    index = np.arange(out)
    step = _step(size, out, align_corners, scale)
    position = index * step if align_corners else (index + 0.5) * step - 0.5
    low = np.floor(position).astype(np.int64)
    matrix = np.zeros((out, size))
    for neighbour in neighbours:
        element = low + neighbour
        weight = kernel(position - element)
        np.add.at(matrix, (index, np.clip(element, 0, size - 1)), weight)
    return matrix


def _step(size: int, out: int, align_corners: bool, scale: float | None) -> float:
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return size / out if scale is None else 1.0 / scale


def nearest_exact_index(size: int, out: int, scale: float | None) -> np.ndarray:
    """Return the source of each output element by its centre: ``floor((i + 0.5) / scale)``."""
    index = np.arange(out)
    if scale is None:
        return (2 * index + 1) * size // (2 * out)
    return np.minimum(((index + 0.5) / scale).astype(np.int64), size - 1)


def antialiased_matrix(
    size: int, out: int, cubic: bool, align_corners: bool, scale: float | None
) -> np.ndarray:
    """Return the (out, size) matrix of linear or cubic interpolation with antialiasing.

    When the result is smaller, the filter is stretched over as many elements as one covers.
    """
    step = _step(size, out, align_corners, scale)
    centres = step * (np.arange(out) + 0.5)
    distances = (np.arange(size) - centres[:, np.newaxis] + 0.5) / max(step, 1.0)
    weights = _cubic(distances, -0.5) if cubic else _linear(distances)
    return weights / weights.sum(1, keepdims=True)


def _linear(distance: np.ndarray) -> np.ndarray:
    """Return the kernel of linear interpolation."""
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    """Return the kernel of cubic convolution."""
    d = np.abs(distance)
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a
    return np.where(d <= 1.0, near, np.where(d < 2.0, far, 0.0))


def pad_pairs(shape: Shape, padding: Sequence[Sizes]) -> Pads:
    """Return the padding before and after every axis.

    It is given as pairs for the last axes, or as PyTorch's flat numbers from the last axis on.

    Example:
        >>> pad_pairs((2, 3, 4), [(1, 0), (-1, 2)])
        ((0, 0), (1, 0), (-1, 2))
        >>> pad_pairs((2, 3, 4), (-1, 2, 1, 0))
        ((0, 0), (1, 0), (-1, 2))
    """
    is_flat = all(isinstance(number, (int, np.integer)) for number in padding)
    if is_flat and len(padding) % 2 == 0:
        backwards = [padding[at : at + 2] for at in range(0, len(padding), 2)]
        given: Sequence[Any] = backwards[::-1]
    else:
        given = padding
    pairs = []
    for pair in given:
        if isinstance(pair, Sequence) and len(pair) == 2:
            before, after = pair
            pairs.append((int(before), int(after)))
    if len(given) > len(shape) or len(pairs) < len(given):
        raise SettingError(
            f"pad: pad={padding!r}; wanted (before, after) for each of the last axes of shape "
            f"{shape}, or PyTorch's flat numbers"
        )
    untouched = ((0, 0),) * (len(shape) - len(pairs))
    return (*untouched, *pairs)


def reflect_index(size: int, before: int, after: int) -> np.ndarray:
    """Return the source positions of reflecting padding; negative numbers crop."""
    most = max(before, after)
    if most >= size:
        raise SettingError(
            f"reflecting by {(before, after)!r} needs more than {most} elements, not {size}"
        )
    index = np.abs(np.arange(-before, size + after))
    return np.where(index >= size, 2 * (size - 1) - index, index)


def replicate_index(size: int, before: int, after: int) -> np.ndarray:
    """Return the source positions of replicating padding; negative numbers crop."""
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def circular_index(size: int, before: int, after: int) -> np.ndarray:
    """Return the source positions of circular padding of what negative numbers leave."""
    positions = np.arange(max(0, -before), size - max(0, -after))
    if max(before, after) > len(positions):
        raise SettingError(
            f"circular padding by {(before, after)!r} needs more elements than {len(positions)}"
        )
    return np.pad(positions, (max(0, before), max(0, after)), "wrap")


PADDING_INDEX = {
    "reflect": reflect_index,
    "replicate": replicate_index,
    "circular": circular_index,
}
RESIZING_INDEX = {
    "nearest": nearest_index,
    "nearest-exact": nearest_exact_index,
}
RESIZING_MATRIX = {"linear": linear_matrix, "cubic": cubic_matrix}
