"""Residual networks: ResNet, ResNeXt and Wide ResNet, and small ones for tiny images.

Unlike the paper: where a bottleneck halves the size, the 3x3 convolution does it, not the first 1x1
(known as version 1.5, about half a percent better). The small networks are the paper's.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deliralike.errors import SettingError, suggestion
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal
from deliralike.zoo import chainer_links
from deliralike.zoo.blocks import by_dims, classifier, images, in_turn
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register


class BasicBlock(Network):
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
        projection: bool = True,
    ) -> None:
        super().__init__()
        if groups != 1 or base_width != 64:
            raise SettingError(
                "ResNet: block='basic' takes no groups or width_per_group, block='bottleneck' does"
            )
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        self.conv1 = conv(in_channels, channels, 3, stride, dilation, dilation, bias=False)
        self.bn1 = norm(channels)
        self.relu = self.nn.ReLU(inplace=True)
        self.conv2 = conv(channels, channels, 3, 1, dilation, dilation, bias=False)
        self.bn2 = norm(channels)
        self.downsample = _shortcut(self.nn, in_channels, channels, stride, dims, projection)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))  # (batch, channels, *size / stride)
        y = self.bn2(self.conv2(y))
        if self.downsample is not None:
            x = self.downsample(x)
        return self.relu(y + x)


class Bottleneck(Network):
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
        projection: bool = True,
    ) -> None:
        super().__init__()
        conv, norm = by_dims(self.nn, dims, "Conv", "BatchNorm")
        width = int(channels * (base_width / 64)) * groups
        self.conv1 = conv(in_channels, width, 1, bias=False)
        self.bn1 = norm(width)
        self.conv2 = conv(width, width, 3, stride, dilation, dilation, groups, bias=False)
        self.bn2 = norm(width)
        self.conv3 = conv(width, channels * self.expansion, 1, bias=False)
        self.bn3 = norm(channels * self.expansion)
        self.relu = self.nn.ReLU(inplace=True)
        out = channels * self.expansion
        self.downsample = _shortcut(self.nn, in_channels, out, stride, dims, projection)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))  # (batch, width, *size)
        y = self.relu(self.bn2(self.conv2(y)))  # (batch, width, *size / stride)
        y = self.bn3(self.conv3(y))  # (batch, 4 * channels, *size / stride)
        if self.downsample is not None:
            x = self.downsample(x)
        return self.relu(y + x)


BLOCKS: Mapping[str, Any] = {"basic": BasicBlock, "bottleneck": Bottleneck}


class ResNet(Model):
    """A residual network with four stages, as torchvision builds it, in 1, 2 and 3 dimensions.

    Source: He et al. 2016, arXiv 1512.03385; ResNeXt: Xie et al. 2017, arXiv 1611.05431; Wide
    ResNet: Zagoruyko and Komodakis 2016, arXiv 1605.07146. Names, order, shapes and start values
    are those of ``torchvision.models.resnet``.

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

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved five
        times, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names ``conv1``);
            or, in training, a normalisation sees a single value for each channel (the error names
            it).
    """

    stem_paths = ("conv1",)
    head_paths = ("fc",)
    can_stop = True
    keymaps = (chainer_links.RESNET,)

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
    ) -> None:
        super().__init__()
        checks.positive(in_channels, "in_channels", "ResNet")
        checks.positive(groups, "groups", "ResNet")
        checks.positive(width_per_group, "width_per_group", "ResNet")
        layers = _counts(layers, 4, "ResNet")
        steps = _dilated(_flags(replace_stride_with_dilation), output_stride, block)
        nn = self.nn
        block_class = _block(block)
        conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
        self.block = block
        self.zero_init_residual = bool(zero_init_residual)
        self.conv1 = conv(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = norm(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = by_dims(nn, dims, "MaxPool")(3, stride=2, padding=1)
        options = {"groups": groups, "base_width": width_per_group, "dims": dims}
        self.layer1, self.layer2, self.layer3, self.layer4 = _stages(
            nn, block_class, layers, steps, options
        )
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.fc = classifier(nn, 512 * block_class.expansion, num_classes, "ResNet")

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        Convolutions have He normal by fan out, norms ones and zeros, and `fc` PyTorch's own.
        """
        convolutions = {"*conv?.weight": HeNormal("out"), "*downsample.0.weight": HeNormal("out")}
        if not self.zero_init_residual:
            return convolutions
        last_norm = _block(self.block).last_norm
        return convolutions | {f"layer*.{last_norm}.weight": ZEROS}

    def forward(self, x):
        x = self.avgpool(self.forward_stages(x)["layer4"])
        return self.fc(self.nn.flatten(x))

    def forward_stages(self, x, until=None):
        """Return the stem, ``(batch, 64, *size / 2)``, and the four stages, / 4 to / 32.

        Stages have 64 to 512 channels times the expansion.
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

    Source: He et al. 2016, arXiv 1512.03385, section 4.2 (option A). Half of the new channels come
    before the old ones, half after.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        before = (out_channels - in_channels) // 2
        self.stride = stride
        self.pads = (before, out_channels - in_channels - before)

    def forward(self, x):
        axes = len(x.shape) - 2
        every_second = (slice(None, None, self.stride),) * axes
        x = x[(slice(None), slice(None), *every_second)]
        return self.nn.pad(x, [self.pads, *((0, 0),) * axes])


class SmallResNet(Model):
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

    stem_paths = ("conv1",)
    head_paths = ("fc",)
    start_values = {"*conv?.weight": HeNormal("in"), "*downsample.0.weight": HeNormal("in")}

    def __init__(
        self,
        depth: int = 20,
        num_classes: int = 10,
        in_channels: int = 3,
        dims: int = 2,
        shortcut: str = "A",
    ) -> None:
        super().__init__()
        checks.positive(in_channels, "in_channels", "SmallResNet")
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
        self.relu = nn.ReLU(inplace=True)
        options: dict[str, Any] = {"dims": dims, "projection": shortcut == "B"}
        self.layer1 = _stage(nn, BasicBlock, 16, 16, count, stride=1, **options)
        self.layer2 = _stage(nn, BasicBlock, 16, 32, count, stride=2, **options)
        self.layer3 = _stage(nn, BasicBlock, 32, 64, count, stride=2, **options)
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.fc = classifier(nn, 64, num_classes, "SmallResNet")

    def forward(self, x):
        x = self.avgpool(self.forward_stages(x)["layer3"])
        return self.fc(self.nn.flatten(x))

    def forward_stages(self, x):
        """Return the stem and the three stages: 16, 16, 32 and 64 channels.

        The last two halve the size.
        """
        stages = {"stem": self.relu(self.bn1(self.conv1(x)))}
        stages["layer1"] = self.layer1(stages["stem"])
        stages["layer2"] = self.layer2(stages["layer1"])
        stages["layer3"] = self.layer3(stages["layer2"])
        return stages


def _stages(
    nn,
    block,
    layers: tuple[int, ...],
    steps: Iterable[tuple[int, tuple[int, int]]],
    options: dict[str, Any],
):
    """Yield the four stages, each with its stride and dilations.

    There is a dilation for a stage's first block and one for its later blocks.
    """
    width = 64
    for stage, (count, (stride, dilations)) in enumerate(zip(layers, steps, strict=True)):
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


def _shortcut(nn, width: int, out: int, stride: int, dims: int, projection: bool):
    """Make what brings a block's input to its output's shape; None when it has it already."""
    if stride == 1 and width == out:
        return None
    if not projection:
        return Subsample(width, out, stride)
    conv, norm = by_dims(nn, dims, "Conv", "BatchNorm")
    return nn.Sequential(conv(width, out, 1, stride, bias=False), norm(out))


def _block(name: str):
    if name not in BLOCKS:
        raise SettingError(f"ResNet: there is no block {name!r}. {suggestion(name, BLOCKS)}")
    return BLOCKS[name]


def _counts(layers: Sequence[int], wanted: int, what: str) -> tuple[int, ...]:
    if isinstance(layers, int | str) or len(layers) != wanted:
        raise SettingError(f"{what}: layers={layers!r}; wanted {wanted} numbers of blocks")
    return tuple(checks.positive(count, "layers", what) for count in layers)


def _flags(dilate: Sequence[bool]) -> tuple[bool, ...]:
    flags = () if isinstance(dilate, bool | str) else tuple(dilate)
    if len(flags) != 3 or any(flag not in (True, False) for flag in flags):
        raise SettingError(
            f"ResNet: replace_stride_with_dilation={dilate!r}; wanted three times True or False"
        )
    return tuple(map(bool, flags))


_RESNET = "He et al. 2016, arXiv 1512.03385; torchvision"
_RESNEXT = "Xie et al. 2017, arXiv 1611.05431; torchvision"
_WIDE = "Zagoruyko and Komodakis 2016, arXiv 1605.07146; torchvision"

# name: (block, blocks in each stage, groups, width of a group, parameters, source)
_VARIANTS: dict[str, tuple[str, tuple[int, ...], int, int, int, str]] = {
    "resnet18": ("basic", (2, 2, 2, 2), 1, 64, 11_689_512, _RESNET),
    "resnet34": ("basic", (3, 4, 6, 3), 1, 64, 21_797_672, _RESNET),
    "resnet50": ("bottleneck", (3, 4, 6, 3), 1, 64, 25_557_032, _RESNET),
    "resnet101": ("bottleneck", (3, 4, 23, 3), 1, 64, 44_549_160, _RESNET),
    "resnet152": ("bottleneck", (3, 8, 36, 3), 1, 64, 60_192_808, _RESNET),
    "resnext50_32x4d": ("bottleneck", (3, 4, 6, 3), 32, 4, 25_028_904, _RESNEXT),
    "resnext101_32x8d": ("bottleneck", (3, 4, 23, 3), 32, 8, 88_791_336, _RESNEXT),
    "resnext101_64x4d": ("bottleneck", (3, 4, 23, 3), 64, 4, 83_455_272, _RESNEXT),
    "wide_resnet50_2": ("bottleneck", (3, 4, 6, 3), 1, 128, 68_883_240, _WIDE),
    "wide_resnet101_2": ("bottleneck", (3, 4, 23, 3), 1, 128, 126_886_696, _WIDE),
}

# depth: (input channels, side of the images); the paper states the counts in millions
_SMALL = {8: (1, 8), 20: (3, 32), 32: (3, 32), 44: (3, 32), 56: (3, 32), 110: (3, 32)}


for _name, (_kind, _layer_counts, _groups, _width, _parameters, _source) in _VARIANTS.items():
    _variant: dict[str, Any] = {"block": _kind, "layers": _layer_counts}
    if _groups != 1:
        _variant["groups"] = _groups
    if _width != 64:
        _variant["width_per_group"] = _width
    register(
        ResNet,
        name=_name,
        variant=_variant,
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
