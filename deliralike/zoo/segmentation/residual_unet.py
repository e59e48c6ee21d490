"""MONAI's UNet in 1, 2 and 3 dimensions, with residual units.

Strided convolutions halve the size, and transposed ones double it.

This network is MONAI's rather than that of the U-Net's paper: it has strided convolutions instead
of pooling, residual units, instance normalisation and PReLU.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers


class ResidualUNet(Model):
    """A U-Net whose levels are nested.

    Each has a strided convolution, the level below beside its input, and a transposed convolution.

    Source: Kerfoot et al. 2019, doi 10.1007/978-3-030-12029-0_40. Names, order and shapes, which
    show the nesting (``model.1.submodule.1.submodule``), are those of MONAI's ``UNet``, start
    values PyTorch's as there.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        channels: The width of each level, the finest first.
        strides: By what each level but the last divides the size: numbers, or tuples with one for
            each axis.
        kernel_size: Odd; one number or one for each axis.
        num_res_units: Convolutions in each residual unit on the way down; 0 for plain convolutions
            throughout.
        dims: Number of spatial axes: 1, 2 or 3.
        act: ``"prelu"`` (one slope for all channels), ``"relu"``, ``"leaky_relu"`` or ``"elu"``.
        norm: ``"instance"`` (without scale and shift), ``"batch"``, ``"group"`` or None.
        dropout: Probability of dropping an element after each normalisation in training.
        bias: Whether the convolutions have biases.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``; the sizes must be
        multiples of the product of all strides along their axis.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple, or the coarsest level would have a single element
            (the error names it); or the input has another number of axes or channels (the error
            names the layer).
    """

    # All of the last level on the way up is as wide as the output.
    head_paths = ("model.2",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 2,
        channels: Sequence[int] = (16, 32, 64, 128, 256),
        strides: Sequence[Sizes] = (2, 2, 2, 2),
        kernel_size: Sizes = 3,
        num_res_units: int = 2,
        dims: int = 3,
        act: str = "prelu",
        norm: str | None = "instance",
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        what = "ResidualUNet"
        if num_res_units != 0:
            checks.positive(num_res_units, "num_res_units", what)
        widths = numbers(channels, "channels", what, least=2)
        strides = medical.per_stage(strides, len(widths) - 1, "strides", what)
        self.levels = len(strides)
        self.units = num_res_units
        self.factors = medical.reductions(strides, dims)
        self.several = norm == "instance"
        options = {
            "dims": dims,
            "act": act,
            "norm": norm,
            "dropout": dropout,
            "bias": bias,
        }
        unit = {"kernel_size": kernel_size, **options}
        below = _down(widths[-2], widths[-1], 1, num_res_units, unit)
        wide = widths[-1]  # the number of channels that come from below
        for level in reversed(range(self.levels)):
            inner = widths[level]
            top = level == 0
            outer = in_channels if top else widths[level - 1]
            down = _down(outer, inner, strides[level], num_res_units, unit)
            out = out_channels if top else outer
            up = self._up(inner + wide, out, strides[level], top, unit, options)
            below = self.nn.Sequential(down, Beside(below), up)
            wide = outer
        self.model = below

    @property
    def stem_paths(self) -> tuple[str, ...]:  # type: ignore[override]
        """The first convolution, and a residual unit's shortcut."""
        if self.units == 0:
            return ("model.0.conv",)
        if hasattr(self.model[0].residual, "weight"):
            return ("model.0.conv.unit0.conv", "model.0.residual")
        return ("model.0.conv.unit0.conv",)

    def forward(self, x):
        return self.last_stage(x)

    def forward_stages(self, x):
        """Return the levels on the way down and up again; the last one is the output.

        A level on the way down is ``(batch, channels[level], *size / stride)``.
        """
        medical.divides(self, x, self.factors, f"down_{self.levels}", self.several)
        stages = {}
        ups = []
        block = self.model
        for level in range(self.levels):
            x = block[0](x)
            stages[f"down_{level}"] = x
            ups.append(block[2])
            block = block[1].submodule
        skips = list(stages.values())
        x = block(x)
        stages[f"down_{self.levels}"] = x
        for level in reversed(range(self.levels)):
            x = ups[level](self.nn.concatenate([skips[level], x], dim=1))
            stages[f"up_{level}"] = x
        return stages

    def _up(
        self,
        in_channels: int,
        out_channels: int,
        stride: Sizes,
        top: bool,
        unit: Any,
        options: Any,
    ) -> Any:
        """Make a transposed convolution and, with residual units, one of these.

        At the top nothing follows the last convolution.
        """
        up = medical.Convolution(
            in_channels,
            out_channels,
            stride=stride,
            transposed=True,
            alone=top and self.units == 0,
            **options,
        )
        if self.units == 0:
            return up
        residual = ResidualUnit(
            out_channels, out_channels, 1, 1, last_alone=top, **unit
        )
        return self.nn.Sequential(up, residual)


class Beside(Network):
    """The level below, beside its own input as further channels."""

    def __init__(self, submodule: Any) -> None:
        super().__init__()
        self.submodule = submodule

    def forward(self, x):
        return self.nn.concatenate([x, self.submodule(x)], dim=1)


class ResidualUnit(Network):
    """Several convolutions, the first with the stride, and a shortcut.

    The shortcut is a convolution where size or width change.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: Sizes,
        count: int,
        *,
        dims: int,
        kernel_size: Sizes,
        bias: bool,
        last_alone: bool = False,
        **adn: Any,
    ) -> None:
        super().__init__()
        options = {
            "dims": dims,
            "kernel_size": kernel_size,
            "bias": bias,
            **adn,
        }
        units = {}
        width = in_channels
        for i in range(count):
            last = i == count - 1
            units[f"unit{i}"] = medical.Convolution(
                width,
                out_channels,
                stride=stride if i == 0 else 1,
                alone=last_alone and last,
                **options,
            )
            width = out_channels
        self.conv = self.nn.Sequential(units)
        steps = geometry.steps(stride, dims, "strides")
        if max(steps) == 1 and in_channels == out_channels:
            self.residual = self.nn.Identity()
            return
        # the whole kernel where the size changes, a 1x1 convolution where only the width does
        kernel = medical.odd(kernel_size, dims) if max(steps) > 1 else (1,) * dims
        padding = tuple((k - 1) // 2 for k in kernel)
        conv = by_dims(self.nn, dims, "Conv")
        self.residual = conv(
            in_channels, out_channels, kernel, steps, padding, bias=bias
        )

    def forward(self, x):
        return self.conv(x) + self.residual(x)


def _down(
    in_channels: int, out_channels: int, stride: Sizes, units: int, options: Any
) -> Any:
    if units == 0:
        return medical.Convolution(in_channels, out_channels, stride=stride, **options)
    return ResidualUnit(in_channels, out_channels, stride, units, **options)


register(
    ResidualUNet,
    name="residual_unet",
    variant={"norm": "batch"},
    task="segmentation",
    dims=(1, 2, 3),
    source=(
        "Kerfoot et al. 2019, doi 10.1007/978-3-030-12029-0_40; MONAI UNet, as its tutorial on the "
        "spleen sets it"
    ),
    shape=medical.volume((1024, 256, 96)),
)
