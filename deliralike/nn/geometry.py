"""Plain integers and host arrays behind windows and resampling: sizes, paddings, divisors, index and weight tables."""

import math
from collections.abc import Sequence

import numpy as np

from deliralike.errors import SettingError, ShapeError

Pads = tuple[tuple[int, int], ...]


def per_axis(value: int | Sequence[int], n: int, name: str) -> tuple[int, ...]:
    """One whole number for each of `n` axes.

    Example:
        >>> per_axis(3, 2, "kernel_size")
        (3, 3)
    """
    values = (value,) * n if isinstance(value, (int, np.integer)) else tuple(value)
    if len(values) != n:
        raise SettingError(f"{name}={value!r} has {len(values)} numbers; wanted one, or one for each of {n} axes")
    return tuple(int(v) for v in values)


def at_least(values: tuple[int, ...], least: int, name: str) -> tuple[int, ...]:
    """The values as they came; an error when one is below `least`."""
    if min(values) < least:
        raise SettingError(f"{name}={values!r}: every number must be at least {least}")
    return values


def conv_padding(padding: int | str | Sequence[int], kernel: Sequence[int], stride: Sequence[int],
                 dilation: Sequence[int]) -> Pads:  # fmt: skip
    """Padding before and after each axis; ``"same"`` (stride 1 only) puts the odd element after, as PyTorch does.

    Example:
        >>> conv_padding("same", (4,), (1,), (1,))
        ((1, 2),)
    """
    if isinstance(padding, str):
        return _named_padding(padding, kernel, stride, dilation)
    values = at_least(per_axis(padding, len(kernel), "padding"), 0, "padding")
    return tuple((p, p) for p in values)


def _named_padding(padding: str, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Pads:
    if padding == "valid":
        return ((0, 0),) * len(kernel)
    if padding != "same":
        raise SettingError(f"padding={padding!r}: wanted whole numbers, 'same' or 'valid'")
    if any(s != 1 for s in stride):
        raise SettingError(f"padding='same' needs stride 1, not {tuple(stride)!r}: pad explicitly with nn.pad")
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    return tuple((total // 2, total - total // 2) for total in totals)


def conv_size(size: int, kernel: int, stride: int, pads: tuple[int, int], dilation: int) -> int:
    """The length of an axis after a convolution."""
    return (size + sum(pads) - dilation * (kernel - 1) - 1) // stride + 1


def pool_pads(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> tuple[int, int]:
    """Padding before and after that makes a floor-mode pooling equal PyTorch's, `ceil_mode` included.

    In ceil mode a last window may hang over the end, but not start in the padding after the data.

    Example:
        >>> pool_pads(4, 2, 3, 1, 1, ceil_mode=True)  # a third window would start in the padding
        (1, 1)
    """
    if padding > kernel // 2:
        raise SettingError(f"padding={padding} is more than half of kernel_size={kernel}: windows would hold no data")
    reach = dilation * (kernel - 1) + 1
    span = size + 2 * padding - reach
    if span < 0:
        raise ShapeError(f"pooling with a reach of {reach} needs at least {reach - 2 * padding} elements, not {size}")
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    return padding, max(padding, (count - 1) * stride + reach - size - padding)


def pool_divisor(size: int, kernel: int, stride: int, padding: int, pads: tuple[int, int],
                 count_include_pad: bool) -> np.ndarray:  # fmt: skip
    """How many elements each window along one axis averages over, as PyTorch counts them."""
    starts = np.arange((size + sum(pads) - kernel) // stride + 1) * stride - padding
    ends = np.minimum(starts + kernel, size + padding if count_include_pad else size)
    return ends - (starts if count_include_pad else np.maximum(starts, 0))


def adaptive_windows(size: int, out: int) -> list[tuple[int, int]]:
    """Start and end of each window of adaptive pooling; `out` may be larger than `size`."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def adaptive_matrix(size: int, out: int) -> np.ndarray:
    """The (out, size) matrix that averages over adaptive windows."""
    matrix = np.zeros((out, size))
    for row, (start, end) in enumerate(adaptive_windows(size, out)):
        matrix[row, start:end] = 1.0 / (end - start)
    return matrix


def resized(size: int, scale: float) -> int:
    """The length of an axis after scaling, rounded down."""
    return math.floor(size * scale)


def nearest_index(size: int, out: int, scale: float | None) -> np.ndarray:
    """The source of each output element: ``floor(i * in/out)``, or ``floor(i / scale)`` when a scale was given."""
    step = np.float32(size / out if scale is None else 1.0 / scale)  # PyTorch multiplies in float32
    return np.minimum((np.arange(out, dtype=np.float32) * step).astype(np.int64), size - 1)


def linear_matrix(size: int, out: int, align_corners: bool, scale: float | None) -> np.ndarray:
    """The (out, size) matrix of linear interpolation along one axis; no antialiasing."""
    position = _linear_position(size, out, align_corners, scale)
    low = np.minimum(position.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    weight = position - low
    matrix = np.zeros((out, size))
    np.add.at(matrix, (np.arange(out), low), 1.0 - weight)
    np.add.at(matrix, (np.arange(out), high), weight)
    return matrix


def _linear_position(size: int, out: int, align_corners: bool, scale: float | None) -> np.ndarray:
    index = np.arange(out, dtype=np.float64)
    if align_corners:
        return index * ((size - 1) / (out - 1) if out > 1 else 0.0)
    step = size / out if scale is None else 1.0 / scale
    return np.maximum((index + 0.5) * step - 0.5, 0.0)


def reflect_index(size: int, before: int, after: int) -> np.ndarray:
    """Source positions of reflecting padding; negative numbers crop."""
    if max(before, after) >= size:
        raise SettingError(f"reflecting by {(before, after)!r} needs more than {max(before, after)} elements, not {size}")
    index = np.abs(np.arange(-before, size + after))
    return np.where(index >= size, 2 * (size - 1) - index, index)


def replicate_index(size: int, before: int, after: int) -> np.ndarray:
    """Source positions of replicating padding; negative numbers crop."""
    return np.clip(np.arange(-before, size + after), 0, size - 1)
