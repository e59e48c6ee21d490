"""Convolution and transposed convolution layers in 1 to 3 dimensions."""

import math
import operator
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Pads, Sizes
from deliralike.nn.start import Shape, fan_in_uniform


class _Windows(Network):
    n: int
    in_channels: int
    out_channels: int
    groups: int
    kernel_size: Shape
    stride: Shape
    dilation: Shape
    padding: Any
    padding_mode: str
    output_padding: Shape

    def _take(self, settings: dict, weight_shape: Shape, bias: bool | None) -> None:
        for name, value in settings.items():
            setattr(self, name, value)
        start = fan_in_uniform(math.prod(weight_shape[1:]))
        self.weight = self.nn.Parameter(weight_shape, start)
        self.bias = self.nn.Parameter((self.out_channels,), start) if bias else None

    @classmethod
    def _settings(
        cls,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes | str,
        dilation: Sizes,
        groups: int,
    ) -> dict:
        """The settings with one number for each axis.

        An error names the setting that makes no sense.
        """
        name = cls.__name__
        settings: dict[str, Any] = {
            "in_channels": checks.positive(in_channels, "in_channels", name),
            "out_channels": checks.positive(out_channels, "out_channels", name),
            "groups": checks.positive(groups, "groups", name),
            "kernel_size": geometry.steps(kernel_size, cls.n, "kernel_size"),
            "stride": geometry.steps(stride, cls.n, "stride"),
            "dilation": geometry.steps(dilation, cls.n, "dilation"),
        }
        if not isinstance(padding, str):
            padding = geometry.per_axis(padding, cls.n, "padding")
        settings["padding"] = padding
        checks.divides(in_channels, groups, f"{name}: in_channels", "groups")
        checks.divides(out_channels, groups, f"{name}: out_channels", "groups")
        geometry.conv_padding(
            settings["padding"],
            settings["kernel_size"],
            settings["stride"],
            settings["dilation"],
        )
        return settings


class _Conv(_Windows):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool | None = True,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        settings = self.check_settings(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
        )
        self._take(
            settings,
            (out_channels, in_channels // groups, *settings["kernel_size"]),
            bias,
        )

    @classmethod
    def check_settings(
        cls,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool | None = True,
        padding_mode: str = "zeros",
    ) -> dict:
        modes = ("zeros", *geometry.PADDING_INDEX)
        checks.one_of(padding_mode, modes, f"{cls.__name__}: padding_mode")
        settings = cls._settings(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        )
        return settings | {"padding_mode": padding_mode}

    def check_input(self, x) -> None:
        checks.channels(self, x, self.in_channels, self.n)
        if min(x.shape[2:]) >= max(self.kernel_size) * max(self.dilation):
            return  # it fits whatever the padding is; this is asked at every call
        settings = (self.kernel_size, self.stride, _pads(self), self.dilation)
        checks.window_fits(self, x, geometry.conv_sizes(x.shape[2:], *settings))

    def forward(self, x):
        self.check_input(x)
        padding = self.padding
        if self.padding_mode != "zeros":
            x = self.nn.pad(x, _pads(self), self.padding_mode)
            padding = 0
        return self.nn.conv(
            x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )


def _pads(layer: Any) -> Pads:
    """Return the padding before and after each axis of a convolution's input."""
    settings = (layer.padding, layer.kernel_size, layer.stride, layer.dilation)
    return geometry.conv_padding(*settings)


class _ConvTranspose(_Windows):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool | None = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        settings = self.check_settings(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            output_padding,
            groups,
            bias,
            dilation,
            padding_mode,
        )
        self._take(
            settings,
            (in_channels, out_channels // groups, *settings["kernel_size"]),
            bias,
        )

    @classmethod
    def check_settings(
        cls,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool | None = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
    ) -> dict:
        if padding_mode != "zeros":
            raise SettingError(
                f"{cls.__name__}: padding_mode={padding_mode!r}; wanted 'zeros'"
            )
        settings = cls._settings(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups
        )
        extra = geometry.per_axis(output_padding, cls.n, "output_padding", least=0)
        extra = geometry.below_steps(extra, settings["stride"], settings["dilation"])
        return settings | {"output_padding": extra}

    def check_input(self, x) -> None:
        checks.channels(self, x, self.in_channels, self.n)

    def forward(self, x, output_size: Sizes | None = None):
        self.check_input(x)
        extra = self.extra_for(x, output_size)
        return self.nn.conv_transpose(
            x,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            extra,
            self.groups,
            self.dilation,
        )

    def extra_for(self, x, output_size: Sizes | None) -> Shape:
        """The padding of the output that gives it a size.

        It is the layer's own when no size is asked for.
        """
        settings = (self.kernel_size, self.stride, self.padding, self.dilation)
        sizes = geometry.conv_transposed_sizes
        if output_size is None:
            extra = tuple(self.output_padding)
            checks.window_fits(self, x, sizes(x.shape[2:], *settings, extra))
            return extra
        wanted = geometry.per_axis(output_size, self.n, "output_size")
        least = sizes(x.shape[2:], *settings, (0,) * self.n)
        most_extra = [step - 1 for step in map(max, self.stride, self.dilation)]
        most = sizes(x.shape[2:], *settings, most_extra)
        for low, size, high in zip(least, wanted, most, strict=True):
            if not low <= size <= high:
                raise ShapeError(
                    f"{checks.where(self)}: output_size={wanted} cannot be reached; wanted {least} "
                    f"to {most}"
                )
        return tuple(map(operator.sub, wanted, least))


class Conv1d(_Conv):
    """Convolution over ``(batch, in_channels, length)``.

    See `deliralike.nn.windows.Windows.conv`.
    """

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
