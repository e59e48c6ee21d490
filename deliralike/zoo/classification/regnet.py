"""RegNet X and Y, as torchvision builds them.

They follow the paper; the names of variants are their multiply-adds.
"""

import re
from collections.abc import Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_dims, classifier, images, in_turn
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.mobile import ConvNormActivation, SqueezeExcitation
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import paired

_LAYERS = {"0": "conv", "1": "bn"}
_CONVOLUTIONS = {"proj": "downsample", "f.a": "conv1", "f.b": "conv2", "f.c": "conv3"}


def _timm_block(match: re.Match[str]) -> str:
    """Return timm's name within a block; it counts blocks from 1."""
    stage, block, convolution, layer, field = match.groups()
    path = f"{_CONVOLUTIONS[convolution]}.{_LAYERS[layer]}"
    return f"s{stage}.b{int(block) + 1}.{path}.{field}"


_BLOCK = r"trunk_output\.block(\d+)\.block\d+-(\d+)"
_TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"stem\.0\.(\w+)": r"stem.conv.\1",
            r"stem\.1\.(\w+)": r"stem.bn.\1",
            _BLOCK + r"\.(proj|f\.[abc])\.(\d)\.(\w+)": _timm_block,
            _BLOCK + r"\.f\.(se\.\w+\.\w+)": lambda m: (
                f"s{m[1]}.b{int(m[2]) + 1}.{m[3]}"
            ),
            r"fc\.(\w+)": r"head.fc.\1",
        }
    ),
)


class Transform(Sequential):
    """1x1 (`a`), grouped 3x3 (`b`) and 1x1 (`c`) convolutions.

    RegNet Y has squeeze and excitation (`se`).

    Args:
        in_channels, out_channels: Channels before and after; the convolutions inside have
            `out_channels`.
        stride: Of the 3x3 convolution.
        group_width: Channels of each of its groups.
        squeeze_channels: Inside the squeeze and excitation; 0 for none.
        dims: Number of spatial axes.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        group_width: int,
        squeeze_channels: int,
        dims: int,
    ) -> None:
        out = out_channels
        groups = out // group_width
        layers: dict[str, Any] = {
            "a": ConvNormActivation(in_channels, out, 1, dims=dims),
            "b": ConvNormActivation(out, out, 3, stride, groups=groups, dims=dims),
        }
        if squeeze_channels:
            layers["se"] = SqueezeExcitation(out, squeeze_channels, dims=dims)
        layers["c"] = ConvNormActivation(out, out, 1, activation=None, dims=dims)
        super().__init__(layers)


class Block(Network):
    """A bottleneck without narrowing, and a shortcut.

    Source: Radosavovic et al. 2020, figure 4; torchvision.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        group_width: int,
        squeeze: float,
        dims: int,
    ) -> None:
        super().__init__()
        self.proj = None
        if stride != 1 or in_channels != out_channels:
            self.proj = ConvNormActivation(
                in_channels, out_channels, 1, stride, activation=None, dims=dims
            )
        # a share of the channels that come in, not of those that it is applied to
        inside = round(squeeze * in_channels)
        self.f = Transform(in_channels, out_channels, stride, group_width, inside, dims)
        self.activation = self.nn.ReLU()

    def forward(self, x):
        shortcut = x if self.proj is None else self.proj(x)
        return self.activation(shortcut + self.f(x))


class Stage(Sequential):
    """Blocks in a row, of which the first halves the size.

    Those of the first stage are called ``block1-0``, ``block1-1`` …
    """

    def __init__(
        self, number: int, count: int, width: int, out_channels: int, **options: Any
    ) -> None:
        blocks = {}
        stride = 2
        for i in range(count):
            block = Block(width, out_channels, stride, **options)
            blocks[f"block{number}-{i}"] = block
            width = out_channels
            stride = 1
        super().__init__(blocks)


class RegNet(PooledClassifier):
    """A convolution and four stages of bottlenecks whose widths grow by a rule.

    RegNet X has no squeeze and excitation, Y has.

    Source: Radosavovic et al. 2020, arXiv 2003.13678; names, order, shapes and start values are
    those of ``torchvision.models.regnet``; the key map ``"timm"`` has timm's names.

    Args:
        layers: The number of blocks in each stage.
        widths: The channels of each stage: multiples of the group width, unless smaller.
        group_width: Channels of each group of the 3x3 convolutions.
        squeeze: The channels inside the squeeze and excitation as a share of a block's input; 0 for
            none (RegNet X).
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``stem.0``.
    """

    stem_paths = ("stem.0",)
    head_paths = ("fc",)
    can_stop = True
    keymaps = (_TIMM,)
    start_values = {
        "stem.0.weight": HeNormal("out"),
        "trunk_output.*.0.weight": HeNormal("out"),
        "*.se.fc?.weight": HeNormal("out"),
        "fc.weight": Normal(0.01),
        "fc.bias": ZEROS,
    }

    def __init__(
        self,
        layers: Sequence[int] = (1, 3, 6, 6),
        widths: Sequence[int] = (48, 104, 208, 440),
        group_width: int = 8,
        squeeze: float = 0.25,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
    ) -> None:
        super().__init__()
        checks.positive(group_width, "group_width", "RegNet")
        layers, widths = paired("RegNet", layers=layers, widths=widths)
        for width in widths:
            checks.divides(
                width, min(group_width, width), "RegNet: widths", "group_width"
            )
        if not 0 <= squeeze <= 1:
            raise SettingError(
                f"RegNet: squeeze={squeeze!r}; wanted a share from 0 to 1"
            )
        self.stem = ConvNormActivation(in_channels, 32, 3, 2, dims=dims)
        stages = {}
        width = 32
        for number, (count, out) in enumerate(
            zip(layers, widths, strict=True), start=1
        ):
            options = {
                "group_width": min(group_width, out),
                "squeeze": squeeze,
                "dims": dims,
            }
            stages[f"block{number}"] = Stage(number, count, width, out, **options)
            width = out
        self.trunk_output = self.nn.ModuleDict(stages)
        self.avgpool = by_dims(self.nn, dims, "AdaptiveAvgPool")(1)
        self.fc = classifier(self.nn, width, num_classes, "RegNet")

    def forward_stages(self, x, until=None):
        """Return the first convolution, ``(batch, 32, *size / 2)``, and the stages, / 4 to / 32."""
        steps = {"stem": self.stem} | dict(self.trunk_output.items())
        return in_turn(x, steps, until)


# name: (blocks of each stage, channels of each stage, channels of a group, parameters); both
# numbers of each stage follow from the paper's equations 2 to 4
_X = {
    "regnet_x_400mf": ((1, 2, 7, 12), (32, 64, 160, 400), 16, 5_495_976),
    "regnet_x_800mf": ((1, 3, 7, 5), (64, 128, 288, 672), 16, 7_259_656),
    "regnet_x_1_6gf": ((2, 4, 10, 2), (72, 168, 408, 912), 24, 9_190_136),
    "regnet_x_3_2gf": ((2, 6, 15, 2), (96, 192, 432, 1008), 48, 15_296_552),
    "regnet_x_8gf": ((2, 5, 15, 1), (80, 240, 720, 1920), 120, 39_572_648),
    "regnet_x_16gf": ((2, 6, 13, 1), (256, 512, 896, 2048), 128, 54_278_536),
    "regnet_x_32gf": ((2, 7, 13, 1), (336, 672, 1344, 2520), 168, 107_811_560),
}
_Y = {
    "regnet_y_400mf": ((1, 3, 6, 6), (48, 104, 208, 440), 8, 4_344_144),
    "regnet_y_800mf": ((1, 3, 8, 2), (64, 144, 320, 784), 16, 6_432_512),
    "regnet_y_1_6gf": ((2, 6, 17, 2), (48, 120, 336, 888), 24, 11_202_430),
    "regnet_y_3_2gf": ((2, 5, 13, 1), (72, 216, 576, 1512), 24, 19_436_338),
    "regnet_y_8gf": ((2, 4, 10, 1), (224, 448, 896, 2016), 56, 39_381_472),
    "regnet_y_16gf": ((2, 4, 11, 1), (224, 448, 1232, 3024), 112, 83_590_140),
    "regnet_y_32gf": ((2, 5, 12, 1), (232, 696, 1392, 3712), 232, 145_046_770),
    "regnet_y_128gf": ((2, 7, 17, 1), (528, 1056, 2904, 7392), 264, 644_812_894),
}

_COLUMNS = ("layers", "widths", "group_width")

register_each(
    RegNet,
    by_column(_COLUMNS, _X, squeeze=0.0) | by_column(_COLUMNS, _Y),
    dims=(1, 2, 3),
    source="Radosavovic et al. 2020, arXiv 2003.13678; torchvision",
    shape=images(224),
)
