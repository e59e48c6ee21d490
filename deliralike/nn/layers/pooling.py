"""Pooling and resizing layers."""

from collections.abc import Sequence

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.windows import Sizes


class _Pool(Network):
    n: int

    def forward(self, x):
        checks.spatial_axes(self, x, self.n)
        return self.pool(x)

    def pool(self, x):
        raise NotImplementedError


class _WindowPool(_Pool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None,
        padding: Sizes,
        dilation: Sizes,
        ceil_mode: bool,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.ceil_mode = ceil_mode
        self.settings = geometry.pool_settings(self.n, kernel_size, stride, padding, dilation)

    def forward(self, x):
        checks.spatial_axes(self, x, self.n)
        kernel, stride, padding, dilation = self.settings
        rows = zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
        size = tuple(geometry.pool_size(*row, self.ceil_mode) for row in rows)
        checks.window_fits(self, x, size)
        return self.pool(x)


class _MaxPool(_WindowPool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)

    def pool(self, x):
        return self.nn.max_pool(x, *self.settings[:3], self.dilation, self.ceil_mode)


class _AvgPool(_WindowPool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = count_include_pad

    def pool(self, x):
        return self.nn.avg_pool(x, *self.settings[:3], self.ceil_mode, self.count_include_pad)


class _AdaptiveAvgPool(_Pool):
    def __init__(self, output_size: Sizes) -> None:
        super().__init__()
        geometry.at_least(geometry.per_axis(output_size, self.n, "output_size"), 1, "output_size")
        self.output_size = output_size

    def pool(self, x):
        return self.nn.adaptive_avg_pool(x, self.output_size)


class _AdaptiveMaxPool(_AdaptiveAvgPool):
    def pool(self, x):
        return self.nn.adaptive_max_pool(x, self.output_size)


class MaxPool1d(_MaxPool):
    """The maximum of each window of ``(batch, channels, length)``."""

    n = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window of ``(batch, channels, height, width)``."""

    n = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window of ``(batch, channels, depth, height, width)``."""

    n = 3


class AvgPool1d(_AvgPool):
    """The average of each window of ``(batch, channels, length)``."""

    n = 1


class AvgPool2d(_AvgPool):
    """The average of each window of ``(batch, channels, height, width)``."""

    n = 2


class AvgPool3d(_AvgPool):
    """The average of each window of ``(batch, channels, depth, height, width)``."""

    n = 3


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """Averages over windows that cover evenly ``(batch, channels, length)``."""

    n = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """Averages over windows that cover evenly ``(batch, channels, height, width)``."""

    n = 2


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """Averages over windows that cover evenly ``(batch, channels, depth, height, width)``."""

    n = 3


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """Maxima over windows that cover evenly ``(batch, channels, length)``."""

    n = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """Maxima over windows that cover evenly ``(batch, channels, height, width)``."""

    n = 2


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """Maxima over windows that cover evenly ``(batch, channels, depth, height, width)``."""

    n = 3


class Upsample(Network):
    """Resize the axes after the second; see `deliralike.nn.windows.Windows.interpolate`."""

    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool = False,
    ) -> None:
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners

    def forward(self, x):
        return self.nn.interpolate(x, self.size, self.scale_factor, self.mode, self.align_corners)


class PixelShuffle(Network):
    """Channels to space: ``(batch, c*r*r, h, w)`` gives ``(batch, c, h*r, w*r)``."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.check_settings(upscale_factor)
        self.upscale_factor = upscale_factor

    @classmethod
    def check_settings(cls, upscale_factor: int) -> None:
        checks.positive(upscale_factor, "upscale_factor", "PixelShuffle")

    def forward(self, x):
        return self.nn.pixel_shuffle(x, self.upscale_factor)
