"""Convolution and transposed convolution layers in 1 to 3 dimensions."""

import math

from deliralike.errors import ShapeError
from deliralike.network import Network
from deliralike.nn import checks, geometry
from deliralike.nn.start import fan_in_uniform
from deliralike.nn.windows import Sizes


class _Conv(Network):
    n: int

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
                 padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1, bias: bool = True) -> None:  # fmt: skip
        super().__init__()
        name, n = type(self).__name__, self.n
        self.in_channels = checks.positive(in_channels, "in_channels", name)
        self.out_channels = checks.positive(out_channels, "out_channels", name)
        self.groups = checks.positive(groups, "groups", name)
        checks.divides(in_channels, groups, f"{name}: in_channels", "groups")
        checks.divides(out_channels, groups, f"{name}: out_channels", "groups")
        self.kernel_size = geometry.at_least(geometry.per_axis(kernel_size, n, "kernel_size"), 1, "kernel_size")
        self.stride = geometry.at_least(geometry.per_axis(stride, n, "stride"), 1, "stride")
        self.dilation = geometry.at_least(geometry.per_axis(dilation, n, "dilation"), 1, "dilation")
        self.padding = padding if isinstance(padding, str) else geometry.per_axis(padding, n, "padding")
        self._add_parameters(bias)

    def _add_parameters(self, bias: bool) -> None:
        shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self._add(shape, bias)

    def _add(self, shape: tuple[int, ...], bias: bool) -> None:
        start = fan_in_uniform(math.prod(shape[1:]))
        self.weight = self.nn.Parameter(shape, start)
        self.bias = self.nn.Parameter((self.out_channels,), start) if bias else None

    def forward(self, x):
        checks.channels(self, x, self.in_channels, self.n)
        pads = geometry.conv_padding(self.padding, self.kernel_size, self.stride, self.dilation)
        checks.window_fits(self, x, tuple(map(geometry.conv_size, x.shape[2:], self.kernel_size, self.stride, pads,
                                              self.dilation)))  # fmt: skip
        return self.nn.conv(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class _ConvTranspose(_Conv):
    def __init__(self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1, padding: Sizes = 0,
                 output_padding: Sizes = 0, groups: int = 1, bias: bool = True, dilation: Sizes = 1) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        self.output_padding = geometry.per_axis(output_padding, self.n, "output_padding")

    def _add_parameters(self, bias: bool) -> None:
        self._add((self.in_channels, self.out_channels // self.groups, *self.kernel_size), bias)

    def forward(self, x, output_size: Sizes | None = None):
        checks.channels(self, x, self.in_channels, self.n)
        extra = self.output_padding if output_size is None else self._extra_for(x, output_size)
        return self.nn.conv_transpose(x, self.weight, self.bias, self.stride, self.padding, extra, self.groups,
                                      self.dilation)  # fmt: skip

    def _extra_for(self, x, output_size: Sizes) -> tuple[int, ...]:
        wanted = geometry.per_axis(output_size, self.n, "output_size")
        least = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(x.shape[2:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        ]
        extra = tuple(w - m for w, m in zip(wanted, least, strict=True))
        if any(e < 0 or e >= max(s, d) for e, s, d in zip(extra, self.stride, self.dilation, strict=True)):
            most = [m + max(s, d) - 1 for m, s, d in zip(least, self.stride, self.dilation, strict=True)]
            raise ShapeError(f"{checks.where(self)}: output_size={wanted} cannot be reached; wanted {least} to {most}")
        return extra


class Conv1d(_Conv):
    """Convolution over ``(batch, in_channels, length)``; see `deliralike.nn.windows.Windows.conv`."""

    n = 1


class Conv2d(_Conv):
    """Convolution over ``(batch, in_channels, height, width)``."""

    n = 2


class Conv3d(_Conv):
    """Convolution over ``(batch, in_channels, depth, height, width)``."""

    n = 3


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution over ``(batch, in_channels, length)``."""

    n = 1


class ConvTranspose2d(_ConvTranspose):
    """Transposed convolution over ``(batch, in_channels, height, width)``."""

    n = 2


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over ``(batch, in_channels, depth, height, width)``."""

    n = 3
