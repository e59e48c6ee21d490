"""Residual networks: ResNet, ResNeXt, Wide ResNet, ResNet-D, SE-ResNet, and small ones.

Unlike the paper: where a bottleneck halves the size, the 3x3 convolution does it, not the first 1x1
(known as version 1.5, about half a percent better). The small networks are the paper's.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo.blocks import by_dims, classifier, images, in_turn
from deliralike.zoo.mobile import SqueezeExcitation
from deliralike.zoo.model import PooledClassifier
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers, one_of


class _Block(Network):
    """What both kinds of blocks end with: a gate, if there is one, the shortcut and a ReLU."""

    def _with_shortcut(self, y, x):
        if self.se is not None:
            y = self.se(y)
        if self.downsample is not None:
            x = self.downsample(x)
        return self.relu(y + x)


class BasicBlock(_Block):
    """Two 3x3 convolutions and a shortcut.

    Source: He et al. 2016, arXiv 1512.03385, figure 5 left; torchvision.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, channels, *size / stride)``, rounded up.
    """

    expansion = 1
    last_norm = "bn2"

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        dims: int = 2,
        shortcut: str = "convolution",
        squeeze_excitation: bool = False,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise SettingError(
                "ResNet: block='basic' takes no groups or width_per_group, block='bottleneck' does"
            )
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        self.conv1 = conv(
            in_channels, channels, 3, stride, dilation, dilation, bias=False
        )
        self.bn1 = norm(channels)
        self.relu = self.nn.ReLU()
        self.conv2 = conv(channels, channels, 3, 1, dilation, dilation, bias=False)
        self.bn2 = norm(channels)
        self.se = _gate(channels, dims) if squeeze_excitation else None
        self.downsample = _shortcut(
            self.nn, in_channels, channels, stride, dims, shortcut
        )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))  # (batch, channels, *size / stride)
        y = self.bn2(self.conv2(y))
        return self._with_shortcut(y, x)


class Bottleneck(_Block):
    """1x1, 3x3 and 1x1 convolutions and a shortcut; the stride is in the 3x3 one (ResNet "V1.5").

    Source: He et al. 2016, arXiv 1512.03385, figure 5 right; groups: Xie et al. 2017, arXiv
    1611.05431; torchvision.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, 4 * channels, *size / stride)``, rounded up.
    """

    expansion = 4
    last_norm = "bn3"

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        dims: int = 2,
        shortcut: str = "convolution",
        squeeze_excitation: bool = False,
    ) -> None:
        super().__init__()
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        width = int(channels * (base_width / 64)) * groups
        self.conv1 = conv(in_channels, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = conv(
            width, width, 3, stride, dilation, dilation, groups, bias=False
        )
        self.bn2 = norm(width)
        self.conv3 = conv(width, channels * self.expansion, 1, bias=False)
        self.bn3 = norm(channels * self.expansion)
        self.relu = self.nn.ReLU()
        out = channels * self.expansion
        self.se = _gate(out, dims) if squeeze_excitation else None
        self.downsample = _shortcut(self.nn, in_channels, out, stride, dims, shortcut)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))  # (batch, width, *size)
        y = self.relu(self.bn2(self.conv2(y)))  # (batch, width, *size / stride)
        y = self.bn3(self.conv3(y))  # (batch, 4 * channels, *size / stride)
        return self._with_shortcut(y, x)


BLOCKS: Mapping[str, Any] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class ResNet(PooledClassifier):
    """A residual network with four stages, as torchvision builds it, in 1, 2 and 3 dimensions.

    Source: He et al. 2016, arXiv 1512.03385; ResNeXt: Xie et al. 2017, arXiv 1611.05431; Wide
    ResNet: Zagoruyko and Komodakis 2016, arXiv 1605.07146; deep stem and averaging shortcut: He et
    al. 2019, arXiv 1812.01187; squeeze and excitation: Hu et al. 2018, arXiv 1709.01507. Names,
    order, shapes and start values are those of ``torchvision.models.resnet``, and for what
    torchvision lacks those of ``timm.models.resnet``. MONAI's networks have them too.

    Args:
        block: ``"basic"`` or ``"bottleneck"``.
        layers: The number of blocks in each of the four stages.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        zero_init_residual: Start the last normalisation of each block at zero, so that a block
            starts as its shortcut.
        groups: Groups of the 3x3 convolutions (ResNeXt's cardinality).
        width_per_group: Width of each group in the first stage.
        replace_stride_with_dilation: For each of the last three stages, whether to dilate instead
            of halving the size, as torchvision: bottlenecks only, and the first one still has the
            dilation of the stage before.
        output_stride: 8 or 16 to dilate what would make the size smaller than that, as
            segmentation_models_pytorch: every 3x3 convolution of these stages, in either kind of
            block; 32 for none.
        stem_type: ``"plain"``: a 7x7 convolution; ``"deep"``: three 3x3 convolutions, with
            `stem_width` channels, as many, and twice as many; ``"tiered"``: the same, but the first
            has three quarters of that.
        stem_width: Channels of a deep stem; a plain one always gives 64.
        avg_down: Halve the size in a shortcut by averaging, before its 1x1 convolution; goes with
            no dilation.
        squeeze_excitation: Whether each block ends with a gate for each channel, computed through
            a sixteenth of the channels.
        stem_stride: Of the first convolution; 1 is MONAI's default.
        shortcut: Where a stage changes the shape: ``"B"`` (a 1x1 convolution and a normalisation)
            or ``"A"`` (subsampling, and zeros after the channels that there are; no parameters), as
            MONAI has it. MONAI passes no gradient through ``"A"``, this network does.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up (four times with a `stem_stride` of 1).

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names ``conv1``);
            or, in training, a normalisation sees a single value for each channel (the error names
            it).
    """

    head_paths = ("fc",)
    can_stop = True

    def __init__(
        self,
        block: str = "basic",
        layers: Sequence[int] = (2, 2, 2, 2),
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: Sequence[bool] = (False, False, False),
        output_stride: int = 32,
        stem_type: str = "plain",
        stem_width: int = 32,
        avg_down: bool = False,
        squeeze_excitation: bool = False,
        stem_stride: int = 2,
        shortcut: str = "B",
    ) -> None:
        super().__init__()
        widths = _stem_widths(stem_type, stem_width)
        layers = numbers(layers, "layers", "ResNet", count=4)
        steps = _dilated(_flags(replace_stride_with_dilation), output_stride, block)
        if avg_down and any(dilations != (1, 1) for _, dilations in steps):
            raise SettingError(
                "ResNet: avg_down=True takes no dilation: leave output_stride and "
                "replace_stride_with_dilation as they are"
            )
        nn = self.nn
        one_of(block, BLOCKS, "block", "ResNet")
        block_class = BLOCKS[block]
        self.last_norm = block_class.last_norm
        self.zero_init_residual = bool(zero_init_residual)
        self.avg_down = bool(avg_down)
        self.has_deep_stem = len(widths) > 1
        self.conv1 = _stem(nn, in_channels, widths, stem_stride, dims)
        self.bn1 = by_dims(nn, dims, "BatchNorm")(widths[-1])
        self.relu = nn.ReLU()
        self.maxpool = by_dims(nn, dims, "MaxPool")(3, stride=2, padding=1)
        options = {
            "groups": groups,
            "base_width": width_per_group,
            "dims": dims,
            "shortcut": _shortcut_kind(shortcut, avg_down),
            "squeeze_excitation": bool(squeeze_excitation),
        }
        self.layer1, self.layer2, self.layer3, self.layer4 = _stages(
            nn, block_class, widths[-1], layers, steps, options
        )
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.fc = classifier(nn, 512 * block_class.expansion, num_classes, "ResNet")

    @property
    def stem_paths(self):  # type: ignore[override]
        """The first convolution."""
        return ("conv1.0",) if self.has_deep_stem else ("conv1",)

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        Convolutions have He normal by fan out, norms ones and zeros, and `fc` PyTorch's own.
        """
        projection = "*downsample.1.weight" if self.avg_down else "*downsample.0.weight"
        start: dict[str, Any] = {}
        for pattern in ("*conv?.weight", projection, "*se.fc?.weight"):
            start[pattern] = HeNormal("out")
        if self.has_deep_stem:
            for place in (0, 3, 6):
                start[f"conv1.{place}.weight"] = HeNormal("out")
        if self.zero_init_residual:
            start[f"layer*.{self.last_norm}.weight"] = ZEROS
        return start

    def forward_stages(self, x, until=None):
        """Return the stem, ``(batch, 64, *size / 2)``, and the four stages, / 4 to / 32.

        With a `stem_stride` of 1 each is twice as large.

        A deep stem has twice `stem_width` channels, stages have 64 to 512 times the expansion.
        """
        steps = {
            "stem": self._stem,
            "layer1": self._first,
            "layer2": self.layer2,
            "layer3": self.layer3,
            "layer4": self.layer4,
        }
        return in_turn(x, steps, until)

    def _stem(self, x):
        return self.relu(self.bn1(self.conv1(x)))

    def _first(self, x):
        return self.layer1(self.maxpool(x))


class Subsample(Network):
    """A shortcut without parameters: every second element, and zeros for new channels.

    Source: He et al. 2016, arXiv 1512.03385, section 4.2 (option A).

    Args:
        before: The number of new channels that come before the old ones; the others come after.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, before: int
    ) -> None:
        super().__init__()
        self.stride = stride
        self.pads = (before, out_channels - in_channels - before)

    def forward(self, x):
        axes = len(x.shape) - 2
        every_second = (slice(None, None, self.stride),) * axes
        x = x[(slice(None), slice(None), *every_second)]
        return self.nn.pad(x, [self.pads, *((0, 0),) * axes])


class SmallResNet(PooledClassifier):
    """A residual network for tiny images, with ``6n + 2`` layers.

    Its three stages have 16, 32 and 64 channels.

    Source: He et al. 2016, arXiv 1512.03385, section 4.2. Names follow torchvision's ResNet (conv1,
    bn1, layer1 …, fc). Start values: He normal by fan in for convolutions, as the paper; PyTorch's
    for `fc`.

    Args:
        depth: The number of layers, ``6n + 2``: 8, 14, 20, 32, 44, 56, 110 …
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        shortcut: Where the width changes: ``"A"`` (subsampling and zeros, no parameters, as in the
            paper's section 4.2) or ``"B"`` (a 1x1 convolution and a normalisation).

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved twice,
        rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``conv1``.
    """

    can_stop = True
    stem_paths = ("conv1",)
    head_paths = ("fc",)
    start_values = {
        "*conv?.weight": HeNormal("in"),
        "*downsample.0.weight": HeNormal("in"),
    }

    def __init__(
        self,
        depth: int = 20,
        num_classes: int = 10,
        in_channels: int = 3,
        dims: int = 2,
        shortcut: str = "A",
    ) -> None:
        super().__init__()
        if checks.positive(depth, "depth", "SmallResNet") < 8 or depth % 6 != 2:
            raise SettingError(
                f"SmallResNet: depth={depth!r}; wanted 6n + 2, for example 8, 14, 20, 32, 44, 56 "
                "or 110"
            )
        if shortcut not in ("A", "B"):
            raise SettingError(f"SmallResNet: shortcut={shortcut!r}; wanted 'A' or 'B'")
        nn = self.nn
        count = (depth - 2) // 6
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        self.conv1 = conv(in_channels, 16, 3, padding=1, bias=False)
        self.bn1 = norm(16)
        self.relu = nn.ReLU()
        kind = "convolution" if shortcut == "B" else "zeros around"
        options: dict[str, Any] = {"dims": dims, "shortcut": kind}
        self.layer1 = _stage(nn, BasicBlock, 16, 16, count, stride=1, **options)
        self.layer2 = _stage(nn, BasicBlock, 16, 32, count, stride=2, **options)
        self.layer3 = _stage(nn, BasicBlock, 32, 64, count, stride=2, **options)
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.fc = classifier(nn, 64, num_classes, "SmallResNet")

    def forward_stages(self, x, until=None):
        """Return the stem and the three stages: 16, 16, 32 and 64 channels.

        The last two halve the size.
        """
        stem = self.relu(self.bn1(self.conv1(x)))
        names = ("layer1", "layer2", "layer3")
        steps = {name: getattr(self, name) for name in names}
        return {"stem": stem} | in_turn(stem, steps, until)


def _stem_widths(stem_type: str, width: int) -> tuple[int, ...]:
    """Return the channels that each convolution of the stem gives."""
    kinds = {
        "plain": (64,),
        "deep": (width, width, 2 * width),
        "tiered": (3 * (width // 4), width, 2 * width),
    }
    one_of(stem_type, kinds, "stem_type", "ResNet")
    return kinds[stem_type]


def _stem(nn, in_channels: int, widths: tuple[int, ...], stride: int, dims: int):
    """Make the convolutions of the stem; the last normalisation comes after them."""
    conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
    if len(widths) == 1:
        return conv(in_channels, widths[0], 7, stride=stride, padding=3, bias=False)
    first, second, last = widths
    return nn.Sequential(
        conv(in_channels, first, 3, stride=stride, padding=1, bias=False),
        norm(first),
        nn.ReLU(),
        conv(first, second, 3, padding=1, bias=False),
        norm(second),
        nn.ReLU(),
        conv(second, last, 3, padding=1, bias=False),
    )


def _stages(
    nn,
    block,
    width: int,
    layers: tuple[int, ...],
    steps: Iterable[tuple[int, tuple[int, int]]],
    options: dict[str, Any],
):
    """Yield the four stages, each with its stride and dilations.

    There is a dilation for a stage's first block and one for its later blocks.
    """
    for stage, (count, (stride, dilations)) in enumerate(
        zip(layers, steps, strict=True)
    ):
        channels = 64 * 2**stage
        yield _stage(nn, block, width, channels, count, stride, dilations, **options)
        width = channels * block.expansion


def _dilated(
    flags: tuple[bool, ...], output_stride: int, block: str
) -> list[tuple[int, tuple[int, int]]]:
    """Return the stride and dilations of each stage; one that is dilated keeps its size."""
    if output_stride not in (8, 16, 32) or (output_stride < 32 and any(flags)):
        raise SettingError(
            f"ResNet: output_stride={output_stride!r}; wanted 8, 16 or 32, and 32 beside "
            "replace_stride_with_dilation"
        )
    if any(flags) and block == "basic":
        raise SettingError(
            "ResNet: block='basic' takes no replace_stride_with_dilation, block='bottleneck' does; "
            "either takes output_stride"
        )
    steps = [(1, (1, 1))]
    dilation = 1
    for dilated, reduction in zip(flags, (8, 16, 32), strict=True):
        before = dilation
        if dilated:
            dilation = 2 * dilation
        # As in segmentation_models_pytorch the first block has this rate as well.
        rate = max(1, reduction // output_stride)
        stride = 1 if dilated or rate > 1 else 2
        steps.append((stride, (before * rate, dilation * rate)))
    return steps


def _stage(
    nn,
    block,
    width: int,
    channels: int,
    count: int,
    stride: int,
    dilations: tuple[int, int] = (1, 1),
    **options,
):
    """Make a stage.

    Its first block has the stride, the shortcut that changes the shape, and the first dilation.
    """
    first, later = dilations
    blocks = [block(width, channels, stride, dilation=first, **options)]
    width = channels * block.expansion
    for _ in range(1, count):
        blocks.append(block(width, channels, dilation=later, **options))
    return nn.Sequential(*blocks)


def _shortcut(nn, width: int, out: int, stride: int, dims: int, kind: str):
    """Make what brings a block's input to its output's shape; None when it has it already.

    Kinds are ``"convolution"``, ``"average"`` (as timm, before the convolution),
    ``"zeros around"`` (half of the new channels before the old ones) and ``"zeros after"``.
    """
    if stride == 1 and width == out:
        return None
    if kind == "zeros around":
        return Subsample(width, out, stride, before=(out - width) // 2)
    if kind == "zeros after":
        return Subsample(width, out, stride, before=0)
    conv, norm, pool = by_dims(nn, dims, "Conv", "BatchNorm", "AvgPool")
    if kind == "convolution":
        return nn.Sequential(conv(width, out, 1, stride, bias=False), norm(out))
    halve = nn.Identity()
    if stride > 1:
        halve = pool(2, stride, ceil_mode=True, count_include_pad=False)
    return nn.Sequential(halve, conv(width, out, 1, bias=False), norm(out))


def _shortcut_kind(shortcut: str, is_averaged: bool) -> str:
    """Return the kind of shortcut that a ResNet's settings describe; see `_shortcut`."""
    if shortcut not in ("A", "B"):
        raise SettingError(f"ResNet: shortcut={shortcut!r}; wanted 'A' or 'B'")
    if is_averaged and shortcut == "A":
        raise SettingError("ResNet: avg_down=True takes shortcut='B', as it is")
    if is_averaged:
        return "average"
    return "zeros after" if shortcut == "A" else "convolution"


def _gate(channels: int, dims: int):
    """Make the squeeze and excitation at the end of a block."""
    return SqueezeExcitation(channels, max(8, channels // 16), dims=dims)


def _flags(dilate: Sequence[bool]) -> tuple[bool, ...]:
    flags = () if isinstance(dilate, bool | str) else tuple(dilate)
    if len(flags) != 3 or any(flag not in (True, False) for flag in flags):
        raise SettingError(
            f"ResNet: replace_stride_with_dilation={dilate!r}; wanted three times True or False"
        )
    return tuple(map(bool, flags))


_OF_TIMM = "He et al. 2019, arXiv 1812.01187; Hu et al. 2018, arXiv 1709.01507; timm"

# what timm's letters, and the numbers of groups and widths, stand for
_D = {"stem_type": "deep", "avg_down": True}
_T = {"stem_type": "tiered", "avg_down": True}
_C = {"stem_type": "deep"}
_S = {"stem_type": "deep", "stem_width": 64}
_SE = {"squeeze_excitation": True}
_X4 = {"groups": 32, "width_per_group": 4}
_X8 = {"groups": 32, "width_per_group": 8}
_64X4 = {"groups": 64, "width_per_group": 4}
_WIDE = {"width_per_group": 128}

# depth: basic blocks or bottlenecks, and their number in each stage
_DEPTHS = {
    10: ("basic", (1, 1, 1, 1)),
    14: ("bottleneck", (1, 1, 1, 1)),
    18: ("basic", (2, 2, 2, 2)),
    26: ("bottleneck", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
    200: ("bottleneck", (3, 24, 36, 3)),
}


def blocks_by_name(name: str) -> tuple[str, tuple[int, ...]]:
    """Return the kind of the blocks and their number in each stage, by the depth in a name.

    Example:
        >>> blocks_by_name("resnext50_32x4d")
        ('bottleneck', (3, 4, 6, 3))
    """
    return _DEPTHS[int(re.findall(r"\d{2,}", name)[0])]


# source: name: (other settings than the blocks, parameters)
_VARIANTS: dict[str, dict[str, tuple[dict[str, Any], int | None]]] = {
    "He et al. 2016, arXiv 1512.03385; MONAI": {
        "resnet10": ({}, None),
    },
    "He et al. 2016, arXiv 1512.03385; torchvision": {
        "resnet18": ({}, 11_689_512),
        "resnet34": ({}, 21_797_672),
        "resnet50": ({}, 25_557_032),
        "resnet101": ({}, 44_549_160),
        "resnet152": ({}, 60_192_808),
    },
    "Xie et al. 2017, arXiv 1611.05431; torchvision": {
        "resnext50_32x4d": (_X4, 25_028_904),
        "resnext101_32x8d": (_X8, 88_791_336),
        "resnext101_64x4d": (_64X4, 83_455_272),
    },
    "Zagoruyko and Komodakis 2016, arXiv 1605.07146; torchvision": {
        "wide_resnet50_2": (_WIDE, 68_883_240),
        "wide_resnet101_2": (_WIDE, 126_886_696),
    },
    _OF_TIMM: {
        "resnet10t": (_T, 5_435_488),
        "resnet14t": (_T, 10_081_632),
        "resnet18d": (_D, 11_708_744),
        "resnet26": ({}, 15_995_176),
        "resnet26d": (_D, 16_014_408),
        "resnet26t": (_T, 16_011_872),
        "resnet34d": (_D, 21_816_904),
        "resnet50c": (_C, 25_576_264),
        "resnet50d": (_D, 25_576_264),
        "resnet50s": (_S, 25_680_808),
        "resnet50t": (_T, 25_573_728),
        "resnet101c": (_C, 44_568_392),
        "resnet101d": (_D, 44_568_392),
        "resnet101s": (_S, 44_672_936),
        "resnet152c": (_C, 60_212_040),
        "resnet152d": (_D, 60_212_040),
        "resnet152s": (_S, 60_316_584),
        "resnet200": ({}, 64_673_832),
        "resnet200d": (_D, 64_693_064),
        "resnext50d_32x4d": (_X4 | _D, 25_048_136),
        "resnext101_32x4d": (_X4, 44_177_704),
        "seresnet18": (_SE, 11_779_624),
        "seresnet34": (_SE, 21_960_416),
        "seresnet50": (_SE, 28_088_024),
        "seresnet101": (_SE, 49_326_872),
        "seresnet152": (_SE, 66_821_848),
        "seresnet152d": (_SE | _D, 66_841_080),
        "seresnext26d_32x4d": (_SE | _X4 | _D, 16_809_512),
        "seresnext26t_32x4d": (_SE | _X4 | _T, 16_806_976),
        "seresnext50_32x4d": (_SE | _X4, 27_559_896),
        "seresnext101_32x4d": (_SE | _X4, 48_955_416),
        "seresnext101_32x8d": (_SE | _X8, 93_569_048),
        "seresnext101_64x4d": (_SE | _64X4, 88_232_984),
        "seresnext101d_32x8d": (_SE | _X8 | _D, 93_588_280),
    },
}

# depth: (input channels, side of the images); the paper states the counts in millions
_SMALL = {8: (1, 8), 20: (3, 32), 32: (3, 32), 44: (3, 32), 56: (3, 32), 110: (3, 32)}


for _source, _table in _VARIANTS.items():
    for _name, (_settings, _parameters) in _table.items():
        _kind, _counts = blocks_by_name(_name)
        _variant: dict[str, Any] = {"block": _kind, "layers": _counts}
        if _source is _OF_TIMM:
            _variant["zero_init_residual"] = True
        register(
            ResNet,
            name=_name,
            variant=_variant | _settings,
            dims=(1, 2, 3),
            source=_source,
            shape=images(224),
            parameters=_parameters,
        )

for _depth, (_channels, _side) in _SMALL.items():
    _variant = {"depth": _depth}
    if _channels != 3:
        _variant["in_channels"] = _channels
    register(
        SmallResNet,
        name=f"resnet{_depth}",
        variant=_variant,
        dims=(1, 2, 3),
        source="He et al. 2016, arXiv 1512.03385, section 4.2",
        shape=images(_side),
    )
