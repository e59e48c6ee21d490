"""Convolution, pooling and resizing in 1 to 3 dimensions, by PyTorch's rules."""

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks, geometry
from deliralike.nn.arguments import in_float32
from deliralike.nn.geometry import Sizes, per_axis
from deliralike.nn.maxima import Maxima
from deliralike.nn.primitives import Array
from deliralike.nn.shaping import Shaping
from deliralike.nn.start import Shape

OutputSizes = int | Sequence[int | None] | None  # None: as the input


def _by_rank(name: str) -> list[Any]:
    """Make the method `name` for inputs with exactly one, two and three spatial axes."""
    return [_of_rank(name, n) for n in (1, 2, 3)]


def _of_rank(name: str, n: int) -> Any:

    def function(self: Any, x: Array, *args: Any, **kwargs: Any) -> Array:
        if x.ndim != n + 2:
            raise checks.shape_error(f"{name}{n}d", f"{n + 2} axes", x)
        return getattr(self, name)(x, *args, **kwargs)

    axes = "axis" if n == 1 else "axes"
    function.__name__ = f"{name}{n}d"
    function.__qualname__ = function.__name__
    function.__doc__ = f"`{name}` for an input with {n} spatial {axes}."
    return function


def _check_output(x: Array, sizes: Sequence[int]) -> None:
    """Check that a convolution's output has elements along each axis."""
    if min(sizes) < 1:
        raise ShapeError(
            f"a convolution of an input of shape {tuple(x.shape)} would give one of size "
            f"{tuple(sizes)}: the input is too small"
        )


def _columns(
    size: Sequence[int], kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes
) -> tuple[tuple[Shape, Shape, Shape, Shape], Shape]:
    """Return `unfold`'s settings for both axes, and the number of windows along each."""
    settings = (
        geometry.steps(kernel, 2, "kernel_size"),
        geometry.steps(stride, 2, "stride"),
        per_axis(padding, 2, "padding", least=0),
        geometry.steps(dilation, 2, "dilation"),
    )
    kernel, stride, padding, dilation = settings
    pads = tuple((p, p) for p in padding)
    return settings, geometry.conv_sizes(size, kernel, stride, pads, dilation)


class Windows(Maxima, Shaping):
    """Functions over the axes after the second; their number is read from the input."""

    def conv(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Array:
        """Convolution (cross-correlation) in n dimensions.

        Args:
            x: The input.
            weight: The kernels.
            bias: One value for each output channel.
            stride: One number, or one for each axis.
            padding: Zeros on both sides, or ``"same"`` (stride 1) or ``"valid"``; use `pad` for
                other paddings.
            dilation: The distance between the elements of a kernel.
            groups: The number of groups of channels that are convolved separately.

        Shapes:
            ``(batch, in, *size)`` with ``(out, in/groups, *kernel)`` gives
            ``(batch, out, *new_size)``.
        """
        n = x.ndim - 2
        stride = geometry.steps(stride, n, "stride")
        dilation = geometry.steps(dilation, n, "dilation")
        pads = geometry.conv_padding(padding, weight.shape[2:], stride, dilation)
        kernel = weight.shape[2:]
        sizes = geometry.conv_sizes(x.shape[2:], kernel, stride, pads, dilation)
        _check_output(x, sizes)
        return self._convolve_with_bias(x, weight, bias, stride, pads, dilation, groups)

    def conv_transpose(
        self,
        x: Array,
        weight: Array,
        bias: Array | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Array:
        """Transposed convolution in n dimensions.

        Shapes:
            ``(batch, in, *size)`` with ``(in, out/groups, *kernel)`` gives
            ``(batch, out, *new_size)``, where ``new`` is
            ``(size - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.
        """
        n = x.ndim - 2
        stride = geometry.steps(stride, n, "stride")
        dilation = geometry.steps(dilation, n, "dilation")
        extra = per_axis(output_padding, n, "output_padding", least=0)
        extra = geometry.below_steps(extra, stride, dilation)
        padding = per_axis(padding, n, "padding", least=0)
        settings = (stride, padding, dilation, extra)
        _check_output(
            x, geometry.conv_transposed_sizes(x.shape[2:], weight.shape[2:], *settings)
        )
        y = self.convolve_transposed(
            x, weight, stride, padding, extra, dilation, groups
        )
        return self._add_bias(y, bias)

    def max_pool(
        self,
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Array:
        """Return the maximum of each window; `stride` is the kernel's size when not given.

        With `return_indices` also where it is: the position of the first maximum among the elements
        of its channel, in row-major order.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        n = x.ndim - 2
        settings = geometry.pool_settings(n, kernel_size, stride, padding, dilation)
        kernel, stride, _, dilation = settings
        pads = geometry.pool_pads_per_axis(x.shape[2:], settings, ceil_mode)
        y = self.max_windows(x, kernel, stride, pads, dilation)
        if not return_indices:
            return y
        rows = zip(x.shape[2:], *settings, strict=True)
        axes = [geometry.window_taps(*row, ceil_mode) for row in rows]
        return y, self._positions_of_maxima(x, axes)

    @in_float32
    def avg_pool(
        self,
        x: Array,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Array:
        """Return the average of each window; `stride` is the kernel's size when not given.

        Args:
            x: The input.
            kernel_size, stride, padding: One number, or one for each axis.
            ceil_mode: Whether to keep a last window that extends beyond the end; it is averaged
                over the elements that it covers.
            count_include_pad: Whether padding counts as elements of value zero.
            divisor_override: Divides the sums in the place of the number of elements.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        size = x.shape[2:]
        settings = geometry.pool_settings(len(size), kernel_size, stride, padding, 1)
        kernel, stride, padding, _ = settings
        pads = geometry.pool_pads_per_axis(size, settings, ceil_mode)
        divisors = []
        for row in zip(size, kernel, stride, padding, pads, strict=True):
            divisors.append(geometry.pool_divisor(*row, count_include_pad))
        divisor = reduce(np.multiply.outer, divisors)
        sums = self.sum_windows(x, kernel, stride, pads)
        if divisor_override is not None:
            return sums * (1.0 / divisor_override)
        return sums * self.constant(1.0 / divisor, like=x)

    def adaptive_avg_pool(self, x: Array, output_size: OutputSizes) -> Array:
        """Average over windows that cover the input evenly.

        The output may be larger than the input; a size of None is that of the input.
        """
        sizes = geometry.output_sizes(output_size, tuple(x.shape[2:]))
        if set(sizes) == {1}:
            dims = tuple(range(2, x.ndim))
            return self.mean(x, dim=dims, keepdim=True)
        for dim, size in enumerate(sizes, start=2):
            x = self.resample(x, geometry.adaptive_matrix(x.shape[dim], size), dim)
        return x

    def adaptive_max_pool(
        self, x: Array, output_size: OutputSizes, return_indices: bool = False
    ) -> Array:
        """Return the maxima of windows that cover the input evenly.

        Of equal maxima the first one gets the gradient. `return_indices` as in `max_pool`.
        """
        y = self._adaptive_maxima(x, output_size)
        if not return_indices:
            return y
        axes = list(map(geometry.adaptive_taps, x.shape[2:], y.shape[2:]))
        return y, self._positions_of_maxima(x, axes)

    def _adaptive_maxima(self, x: Array, output_size: OutputSizes) -> Array:
        sizes = geometry.output_sizes(output_size, tuple(x.shape[2:]))
        # The last axis comes first: of equal maxima the first in row-major order is then taken.
        for dim in range(len(sizes) + 1, 1, -1):
            before = (slice(None),) * dim
            maxima = []
            for start, end in geometry.adaptive_windows(x.shape[dim], sizes[dim - 2]):
                window = x[(*before, slice(start, end))]
                maxima.append(self.max_along(window, dim, keepdim=True))
            x = self.concatenate(maxima, dim=dim)
        return x

    @in_float32
    def lp_pool(
        self,
        x: Array,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> Array:
        """Return the p-norm of each window, without absolute values as in PyTorch.

        It is the sum of ``x**p`` to the power ``1/p``, and 0 with derivative 0 where that sum is
        not positive; for ``p = 1`` it is the sum itself.
        """
        n = x.ndim - 2
        kernel = geometry.pool_settings(n, kernel_size, stride, 0, 1)[0]
        powers = x**norm_type
        means = self.avg_pool(
            powers, kernel_size, stride, 0, ceil_mode, divisor_override=1
        )
        if ceil_mode:
            counts = self.avg_pool(
                self._ones(x.shape, x), kernel_size, stride, 0, True, divisor_override=1
            )
            means = means * (float(np.prod(kernel)) / counts)
        if norm_type == 1:
            return self.where(means == 0.0, 0.0, means)
        return self._power(self.relu(means), 1.0 / norm_type)

    def unfold(
        self,
        x: Array,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ) -> Array:
        """The elements under each position of a window, as columns.

        Shapes:
            ``(batch, channels, height, width)`` gives
            ``(batch, channels * kernel height * kernel width, positions)``.
        """
        if x.ndim != 4:
            raise checks.shape_error("unfold", "4 axes", x)
        settings, counts = _columns(x.shape[2:], kernel_size, stride, padding, dilation)
        kernel, stride, padding, dilation = settings
        _check_output(x, counts)
        padded = self.pad_constant(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
        rows = zip(kernel, counts, stride, dilation, strict=True)
        slices = itertools.product(*(geometry.tap_slices(*row) for row in rows))
        shape = (*x.shape[:2], 1, math.prod(counts))
        taps = [self.reshape(padded[:, :, *below], shape) for below in slices]
        columns = self.concatenate(
            taps, 2
        )  # copies: an infinite element stays where it is
        return self.reshape(columns, (x.shape[0], x.shape[1] * len(taps), shape[3]))

    def fold(
        self,
        x: Array,
        output_size: Sizes,
        kernel_size: Sizes,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        stride: Sizes = 1,
    ) -> Array:
        """Put the columns of `unfold` back in their places, and add up where they overlap.

        Shapes:
            ``(batch, channels * kernel height * kernel width, positions)`` gives
            ``(batch, channels, *output_size)``.
        """
        size = per_axis(output_size, 2, "output_size")
        settings, counts = _columns(size, kernel_size, stride, padding, dilation)
        kernel, stride, padding, dilation = settings
        taps = math.prod(kernel)
        positions = math.prod(counts)
        if x.ndim != 3 or x.shape[1] % taps or x.shape[2] != positions:
            wanted = f"(batch, channels * {taps}, {positions})"
            raise checks.shape_error("fold", wanted, x)
        channels = x.shape[1] // taps
        rows = x.shape[0] * channels
        # each axis on its own: (rows, taps, windows, the other axis)
        y = self.permute(self.reshape(x, (rows, *kernel, *counts)), (0, 1, 3, 2, 4))
        y = self._overlap_add(y, size[0], stride[0], padding[0], dilation[0])
        y = self.permute(y, (0, 2, 3, 1))
        y = self._overlap_add(y, size[1], stride[1], padding[1], dilation[1])
        return self.reshape(self.transpose(y, 1, 2), (x.shape[0], channels, *size))

    def _overlap_add(
        self, x: Array, size: int, stride: int, padding: int, dilation: int
    ) -> Array:
        """Add up windows along an axis; nothing is multiplied, so that NaN stays where it is.

        Shapes:
            ``(rows, taps, windows, ...)`` gives ``(rows, size, ...)``.
        """
        rows, taps, windows, *rest = x.shape
        width = math.prod(rest)
        reach = taps * dilation
        steps = -(-reach // stride)  # of a window
        blocks = windows + steps - 1
        # zeros after each tap, after the last one up to a whole step, and after the windows
        x = self.reshape(x, (rows, taps, 1, windows * width))
        x = self.pad(x, ((0, dilation - 1), (0, 0)))
        x = self.reshape(x, (rows, reach, windows, width))
        x = self.pad(x, ((0, steps * stride - reach), (0, steps), (0, 0)))
        x = self.reshape(x, (rows, steps, stride, blocks + 1, width))
        # (rows, steps, blocks + 1, stride, width): a row that is one shorter moves each step on
        x = self.permute(x, (0, 1, 3, 2, 4))
        x = self.reshape(x, (rows, steps * (blocks + 1), stride * width))
        x = self.reshape(x[:, : steps * blocks], (rows, steps, blocks * stride, width))
        after = size + padding - blocks * stride
        x = self.pad(self.sum(x, 1), ((-padding, after), (0, 0)))
        return self.reshape(x, (rows, size, *rest))

    def interpolate(
        self,
        x: Array,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Array:
        """Resize the axes after the second.

        Args:
            x: The input.
            size: The new size; or
            scale_factor: The new size divided by the old one. The new size is rounded down, and
                positions follow the factor itself.
            mode: ``"nearest"`` (``floor(i / scale)``), ``"nearest-exact"`` (by the centres of
                elements), ``"linear"``, which is bilinear and trilinear in 2 and 3 dimensions (both
                names are accepted too), ``"bicubic"``, or ``"area"`` (`adaptive_avg_pool`).
            align_corners: For linear and bicubic: whether the outermost elements' centres, not
                their edges, stay in place.
            recompute_scale_factor: Whether positions follow the ratio of the sizes instead.
            antialias: For bilinear and bicubic: whether a smaller result averages over all elements
                that it covers.

        Shapes:
            ``(batch, channels, *size)`` gives ``(batch, channels, *new_size)``.
        """
        sizes, scales = self._new_size(x, size, scale_factor)
        if recompute_scale_factor:
            scales = (None,) * len(sizes)
        kind = _resizing(mode, len(sizes), bool(align_corners), antialias)
        if kind == "area":
            return self.adaptive_avg_pool(x, sizes)
        if (kind == "linear" or antialias) and sizes == tuple(x.shape[2:]):
            return x  # whatever the scale is, as in PyTorch
        for dim, (new, scale) in enumerate(zip(sizes, scales, strict=True), start=2):
            old = x.shape[dim]
            if kind in ("linear", "cubic"):
                matrix = _resizing_matrix(
                    kind, old, new, bool(align_corners), scale, antialias
                )
                x = self.resample(x, matrix, dim)
            elif old != new or kind == "nearest-exact":
                # a traced size is an array in TorchScript
                index = geometry.RESIZING_INDEX[kind](int(old), new, scale)
                x = self.select(x, self.constant(index, like=x), dim)
        return x

    def upsample(
        self,
        x: Array,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> Array:
        """`interpolate` by PyTorch's older name."""
        return self.interpolate(x, size, scale_factor, mode, align_corners)

    conv1d, conv2d, conv3d = _by_rank("conv")
    conv_transpose1d, conv_transpose2d, conv_transpose3d = _by_rank("conv_transpose")
    max_pool1d, max_pool2d, max_pool3d = _by_rank("max_pool")
    avg_pool1d, avg_pool2d, avg_pool3d = _by_rank("avg_pool")
    max_unpool1d, max_unpool2d, max_unpool3d = _by_rank("max_unpool")
    lp_pool1d, lp_pool2d, lp_pool3d = _by_rank("lp_pool")
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _by_rank(
        "adaptive_avg_pool"
    )
    adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _by_rank(
        "adaptive_max_pool"
    )

    def resample(self, x: Array, matrix: np.ndarray, dim: int) -> Array:
        """Apply an (out, in) matrix along one axis; the identity is skipped."""
        if np.array_equal(matrix, np.eye(len(matrix))):
            return x
        last = x.ndim - 1
        transposed = self.constant(np.ascontiguousarray(matrix.T), like=x)
        if dim == last:
            return self.matmul(x, transposed)
        dim_last = [*range(dim), *range(dim + 1, last + 1), dim]
        dim_back = [*range(dim), last, *range(dim, last)]
        product = self.matmul(self.permute(x, dim_last), transposed)
        return self.permute(product, dim_back)

    def _convolve_with_bias(
        self, x: Array, weight: Array, bias: Array | None, *settings: Any
    ) -> Array:
        """Convolve with the settings of `convolve`, and add one value to each channel."""
        return self._add_bias(self.convolve(x, weight, *settings), bias)

    def _add_bias(self, y: Array, bias: Array | None) -> Array:
        if bias is None:
            return y
        return y + self._per_channel(bias, y)

    def _new_size(
        self, x: Array, size: Sizes | None, scale_factor: Any
    ) -> tuple[Shape, tuple]:
        n = x.ndim - 2
        if (size is None) == (scale_factor is None):
            raise SettingError("interpolate: give either size or scale_factor")
        if size is not None:
            return geometry.steps(size, n, "size"), (None,) * n
        if isinstance(scale_factor, int | float):
            scales = (scale_factor,) * n
        else:
            scales = tuple(scale_factor)
        if len(scales) != n:
            raise SettingError(
                f"interpolate: scale_factor={scale_factor!r}; wanted one number, or one for each "
                f"of {n} axes"
            )
        sizes = tuple(map(geometry.resized, x.shape[2:], scales))
        if min(sizes) < 1:
            raise ShapeError(
                f"interpolate: scale_factor={scale_factor!r} leaves nothing of shape "
                f"{tuple(x.shape)}"
            )
        return sizes, tuple(float(s) for s in scales)


def _resizing(mode: str, n: int, align_corners: bool, antialias: bool) -> str:
    """Return the kind of a mode of `interpolate`: nearest, nearest-exact, linear, cubic or area."""
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    kinds = {mode: mode for mode in ("nearest", "nearest-exact", "area", "linear")}
    kinds[linear[n]] = "linear"
    if n == 2:
        kinds["bicubic"] = "cubic"
    if mode not in kinds:
        raise SettingError(
            f"interpolate: mode={mode!r}; wanted 'nearest', 'nearest-exact', 'linear', 'bicubic' "
            f"(two axes) or 'area' for an input with {n} spatial axes"
        )
    kind = kinds[mode]
    if align_corners and kind not in ("linear", "cubic"):
        raise SettingError(
            "interpolate: align_corners=True is for mode='linear' and 'bicubic' only"
        )
    if antialias and (n != 2 or kind not in ("linear", "cubic")):
        raise SettingError(
            "interpolate: antialias=True is for mode='bilinear' and 'bicubic' only"
        )
    return kind


def _resizing_matrix(
    kind: str,
    old: int,
    new: int,
    align_corners: bool,
    scale: float | None,
    antialias: bool,
) -> np.ndarray:
    if antialias:
        return geometry.antialiased_matrix(
            old, new, kind == "cubic", align_corners, scale
        )
    return geometry.RESIZING_MATRIX[kind](old, new, align_corners, scale)
