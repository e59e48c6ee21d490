"""Pooling and resizing layers."""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.function_layers import FunctionLayer, function_layers
from deliralike.nn.windows import OutputSizes


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
        self.settings = geometry.pool_settings(
            self.n, kernel_size, stride, padding, dilation
        )

    def forward(self, x):
        kernel, _, _, dilation = self.settings
        reach = max(kernel) * max(dilation)
        if x.ndim != self.n + 2 or min(x.shape[2:]) < reach:
            self._check_input(x)
        return self.pool(x)

    def _check_input(self, x):
        checks.spatial_axes(self, x, self.n)
        rows = zip(x.shape[2:], *self.settings, strict=True)
        size = tuple(geometry.pool_size(*row, self.ceil_mode) for row in rows)
        checks.window_fits(self, x, size)


class _MaxPool(_WindowPool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, dilation, ceil_mode)
        self.return_indices = return_indices

    def pool(self, x):
        kernel, stride, padding, _ = self.settings
        settings = (self.dilation, self.ceil_mode, self.return_indices)
        return self.nn.max_pool(x, kernel, stride, padding, *settings)


class _AvgPool(_WindowPool):
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__(kernel_size, stride, padding, 1, ceil_mode)
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def pool(self, x):
        kernel, stride, padding, _ = self.settings
        counts = (self.count_include_pad, self.divisor_override)
        return self.nn.avg_pool(x, kernel, stride, padding, self.ceil_mode, *counts)


class _AdaptiveAvgPool(_Pool):
    def __init__(self, output_size: OutputSizes) -> None:
        super().__init__()
        geometry.output_sizes(output_size, (1,) * self.n)
        self.output_size = output_size

    def pool(self, x):
        return self.nn.adaptive_avg_pool(x, self.output_size)


class _AdaptiveMaxPool(_AdaptiveAvgPool):
    def __init__(self, output_size: OutputSizes, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def pool(self, x):
        return self.nn.adaptive_max_pool(x, self.output_size, self.return_indices)


class MaxPool1d(_MaxPool):
    """The maximum of each window of ``(batch, channels, length)``."""

    n = 1


class MaxPool2d(_MaxPool):
    """The maximum of each window of ``(batch, channels, height, width)``."""

    n = 2


class MaxPool3d(_MaxPool):
    """The maximum of each window of ``(batch, channels, depth, height, width)``."""

    n = 3


class _MaxUnpool(Network):
    n: int

    def __init__(
        self, kernel_size: Sizes, stride: Sizes | None = None, padding: Sizes = 0
    ) -> None:
        super().__init__()
        geometry.pool_settings(self.n, kernel_size, stride, padding, 1)
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, x, indices, output_size=None):
        checks.spatial_axes(self, x, self.n)
        settings = (self.kernel_size, self.stride, self.padding, output_size)
        return self.nn.max_unpool(x, indices, *settings)


class MaxUnpool1d(_MaxUnpool):
    """Put the maxima of `MaxPool1d` back to where they came from; zeros elsewhere."""

    n = 1


class MaxUnpool2d(_MaxUnpool):
    """Put the maxima of `MaxPool2d` back to where they came from; zeros elsewhere."""

    n = 2


class MaxUnpool3d(_MaxUnpool):
    """Put the maxima of `MaxPool3d` back to where they came from; zeros elsewhere."""

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


class _LPPool(_Pool):
    def __init__(
        self,
        norm_type: float,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def pool(self, x):
        return self.nn.lp_pool(
            x, self.norm_type, self.kernel_size, self.stride, self.ceil_mode
        )


class LPPool1d(_LPPool):
    """The p-norm of each window of ``(batch, channels, length)``."""

    n = 1


class LPPool2d(_LPPool):
    """The p-norm of each window of ``(batch, channels, height, width)``."""

    n = 2


class LPPool3d(_LPPool):
    """The p-norm of each window of ``(batch, channels, depth, height, width)``."""

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


_SIZES = "size scale_factor mode align_corners recompute_scale_factor"
Upsample: Any = function_layers(
    FunctionLayer, __name__, {"Upsample": f"interpolate {_SIZES}"}
)["Upsample"]


class _Upsampling2d(Upsample):
    mode: str
    align_corners: bool | None = None

    def __init__(
        self,
        size: Sizes | None = None,
        scale_factor: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__(size, scale_factor, self.mode, self.align_corners)


class UpsamplingNearest2d(_Upsampling2d):
    """`Upsample` by nearest neighbours."""

    mode = "nearest"


class UpsamplingBilinear2d(_Upsampling2d):
    """`Upsample` by bilinear interpolation with aligned corners."""

    mode = "bilinear"
    align_corners = True


class PixelShuffle(Network):
    """Channels to space: ``(..., c*r*r, h, w)`` gives ``(..., c, h*r, w*r)``."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = checks.positive(
            upscale_factor, "upscale_factor", "PixelShuffle"
        )

    def forward(self, x):
        return self.nn.pixel_shuffle(x, self.upscale_factor)


class PixelUnshuffle(Network):
    """Space to channels: ``(..., c, h*r, w*r)`` gives ``(..., c*r*r, h, w)``."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = checks.positive(
            downscale_factor, "downscale_factor", "PixelUnshuffle"
        )

    def forward(self, x):
        return self.nn.pixel_unshuffle(x, self.downscale_factor)


class ChannelShuffle(Network):
    """Take channels from each group in turn."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = checks.positive(groups, "groups", "ChannelShuffle")

    def forward(self, x):
        return self.nn.channel_shuffle(x, self.groups)


_WINDOW = "kernel_size dilation padding stride"
_FUNCTIONS = {"Unfold": f"unfold {_WINDOW}", "Fold": f"fold output_size {_WINDOW}"}
globals().update(function_layers(FunctionLayer, __name__, _FUNCTIONS))
