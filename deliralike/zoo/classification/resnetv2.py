"""Pre-activation residual networks (ResNet V2), and those of Big Transfer (BiT).

As timm builds them, unlike the paper: where a bottleneck halves the size, its 3x3 convolution does
it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, HeNormal, Normal
from deliralike.zoo.blocks import by_dims, images, in_turn
from deliralike.zoo.classification.resnet import blocks_by_name
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import one_of, paired

GROUPS = 32
NORMS = ("batch", "group")


class StandardizedConv(Network):
    """A convolution without bias whose kernels are shifted and scaled to mean 0 and variance 1.

    Source: Qiao et al. 2019, arXiv 1903.10520; `eps` as Big Transfer (Kolesnikov et al. 2020, arXiv
    1912.11370).

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        dims: int = 2,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.stride = stride
        self.padding = kernel_size // 2
        self.dims = dims
        self.eps = eps
        shape = (out_channels, in_channels, *(kernel_size,) * dims)
        self.weight = self.nn.Parameter(shape, HeNormal("out"))

    def forward(self, x):
        checks.channels(self, x, self.in_channels, self.dims)
        nn = self.nn
        axes = tuple(range(1, 2 + self.dims))
        centred = self.weight - nn.mean(self.weight, axes, keepdim=True)
        variance = nn.mean(centred * centred, axes, keepdim=True)
        kernels = centred / nn.sqrt(variance + self.eps)
        return nn.conv(x, kernels, None, self.stride, self.padding)


@dataclass(frozen=True)
class Parts:
    """The layers that a network's blocks consist of.

    Attributes:
        dims: Number of spatial axes.
        norm: ``"batch"`` or ``"group"``.
        standardized: Whether convolutions standardise their kernels.
        avg_down: Whether shortcuts halve the size by averaging.
    """

    dims: int
    norm: str
    standardized: bool
    avg_down: bool

    def conv(
        self,
        nn: Any,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
    ) -> Any:
        """Make a convolution that keeps the size at stride 1."""
        if self.standardized:
            return StandardizedConv(
                in_channels, out_channels, kernel_size, stride, self.dims
            )
        conv = by_dims(nn, self.dims, "Conv")
        padding = kernel_size // 2
        return conv(in_channels, out_channels, kernel_size, stride, padding, bias=False)

    def normalisation(self, nn: Any, channels: int) -> Any:
        """Make a normalisation."""
        if self.norm == "group":
            return nn.GroupNorm(GROUPS, channels)
        return by_dims(nn, self.dims, "BatchNorm")(channels)


class Shortcut(Network):
    """A 1x1 convolution, after an average over windows of two where `Parts.avg_down` says so."""

    def __init__(
        self, in_channels: int, out_channels: int, stride: int, parts: Parts
    ) -> None:
        super().__init__()
        self.pool = None
        if parts.avg_down and stride > 1:
            pool = by_dims(self.nn, parts.dims, "AvgPool")
            self.pool = pool(2, stride, ceil_mode=True, count_include_pad=False)
            stride = 1
        self.conv = parts.conv(self.nn, in_channels, out_channels, 1, stride)

    def forward(self, x):
        if self.pool is not None:
            x = self.pool(x)
        return self.conv(x)


class PreActivationBasic(Network):
    """Normalisation, ReLU and a 3x3 convolution, twice, and a shortcut.

    The shortcut is from after the first ReLU where it changes the shape, else from the input.

    Source: He et al. 2016, arXiv 1603.05027, figure 4e; timm.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        is_first: bool,
        parts: Parts,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.downsample = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = Shortcut(in_channels, out_channels, stride, parts)
        self.norm1 = parts.normalisation(nn, in_channels)
        self.conv1 = parts.conv(nn, in_channels, out_channels, 3, stride)
        self.norm2 = parts.normalisation(nn, out_channels)
        self.conv2 = parts.conv(nn, out_channels, out_channels, 3)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.norm1(x))
        if self.downsample is not None:
            x = self.downsample(y)
        y = self.conv1(y)  # (batch, out_channels, *size / stride)
        y = self.conv2(self.relu(self.norm2(y)))
        return y + x


class PreActivationBottleneck(Network):
    """Normalisation, ReLU and convolution, three times: 1x1, 3x3 and 1x1; and a shortcut.

    A stage's first block has a convolution in its shortcut.

    Source: He et al. 2016, arXiv 1603.05027, figure 4e; timm.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size / stride)``, rounded up.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        is_first: bool,
        parts: Parts,
    ) -> None:
        super().__init__()
        nn = self.nn
        width = out_channels // 4
        self.downsample = None
        if is_first:
            self.downsample = Shortcut(in_channels, out_channels, stride, parts)
        self.norm1 = parts.normalisation(nn, in_channels)
        self.conv1 = parts.conv(nn, in_channels, width, 1)
        self.norm2 = parts.normalisation(nn, width)
        self.conv2 = parts.conv(nn, width, width, 3, stride)
        self.norm3 = parts.normalisation(nn, width)
        self.conv3 = parts.conv(nn, width, out_channels, 1)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.relu(self.norm1(x))
        if self.downsample is not None:
            x = self.downsample(y)
        y = self.conv1(y)  # (batch, width, *size)
        y = self.conv2(self.relu(self.norm2(y)))  # (batch, width, *size / stride)
        y = self.conv3(self.relu(self.norm3(y)))
        return y + x


BLOCKS: dict[str, Any] = {
    "basic": PreActivationBasic,
    "bottleneck": PreActivationBottleneck,
}


def _stage(
    nn: Any,
    block: Any,
    count: int,
    in_channels: int,
    out_channels: int,
    stride: int,
    parts: Parts,
) -> Any:
    """Make blocks in a row, of which the first has the stride."""
    blocks = [block(in_channels, out_channels, stride, True, parts)]
    for _ in range(1, count):
        blocks.append(block(out_channels, out_channels, 1, False, parts))
    return nn.Sequential({"blocks": nn.Sequential(*blocks)})


def _head(nn: Any, channels: int, num_classes: int, dims: int) -> Any:
    """Make the mean over the spatial axes, and a 1x1 convolution if there are classes."""
    pool, conv = by_dims(nn, dims, "AdaptiveAvgPool", "Conv")
    layers = {"pool": pool(1)}
    if num_classes != 0 or isinstance(num_classes, bool):
        checks.positive(num_classes, "num_classes", "ResNetV2")
        layers["fc"] = conv(channels, num_classes, 1)
    return nn.Sequential({**layers, "flatten": nn.Flatten()})


class ResNetV2(Model):
    """A residual network whose blocks start with normalisation and activation.

    Source: He et al. 2016, arXiv 1603.05027; standardised kernels with group normalisation:
    Kolesnikov et al. 2020, arXiv 1912.11370. Names, order, shapes and start values are those of
    ``timm.models.resnetv2``.

    Args:
        layers: The number of blocks in each stage.
        widths: The channels of each stage: multiples of four in bottlenecks.
        block: ``"basic"`` or ``"bottleneck"``.
        norm: ``"batch"``, or ``"group"`` with 32 groups.
        stem_type: ``"plain"``: a 7x7 convolution; ``"deep"``: three 3x3 convolutions with half of
            `stem_width` channels, as many, and all of them; ``"tiered"``: the same, but the first
            has three eighths.
        stem_width: The channels that the stem gives.
        avg_down: Halve the size in a shortcut by averaging, before its 1x1 convolution.
        standardized: As Big Transfer: convolutions standardise their kernels, and the pooling
            after the stem pads with zeros.
        num_classes: Number of outputs; 0 for no head: the pooled features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size is halved once
        more than there are stages, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels; the error names ``stem.conv``
            or ``stem.conv1``.
    """

    can_stop = True
    start_values = {
        "stem.conv*.weight": HeNormal("out"),
        "stages.*conv*.weight": HeNormal("out"),
        "head.fc.weight": Normal(0.01),
        "head.fc.bias": ZEROS,
    }

    def __init__(
        self,
        layers: Sequence[int] = (3, 4, 6, 3),
        widths: Sequence[int] = (256, 512, 1024, 2048),
        block: str = "bottleneck",
        norm: str = "batch",
        stem_type: str = "plain",
        stem_width: int = 64,
        avg_down: bool = False,
        standardized: bool = False,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
    ) -> None:
        super().__init__()
        nn = self.nn
        layers, widths = paired("ResNetV2", layers=layers, widths=widths)
        for width in widths:
            checks.divides(
                width, 4, "ResNetV2: widths", "the narrowing of a bottleneck"
            )
        one_of(block, BLOCKS, "block", "ResNetV2")
        one_of(norm, NORMS, "norm", "ResNetV2")
        parts = Parts(dims, norm, bool(standardized), bool(avg_down))
        self.has_deep_stem = stem_type != "plain"
        self.has_head = num_classes != 0
        self.stem = _stem(nn, stem_type, in_channels, stem_width, parts)
        # Where the pooling pads by itself, what it pads with is never the largest; zeros can be.
        self.pads = (1, 1) * dims if standardized else None
        self.pool = by_dims(nn, dims, "MaxPool")(3, 2, padding=0 if standardized else 1)
        stages = []
        width = stem_width
        for number, (count, out) in enumerate(zip(layers, widths, strict=True)):
            stride = 1 if number == 0 else 2
            stages.append(_stage(nn, BLOCKS[block], count, width, out, stride, parts))
            width = out
        self.stages = nn.Sequential(*stages)
        self.norm = parts.normalisation(nn, width)
        self.relu = nn.ReLU()
        self.head = _head(nn, width, num_classes, dims)

    @property
    def stem_paths(self):  # type: ignore[override]
        """The first convolution."""
        return ("stem.conv1",) if self.has_deep_stem else ("stem.conv",)

    @property
    def head_paths(self):  # type: ignore[override]
        """The last convolution."""
        return ("head.fc",) if self.has_head else ()

    def forward(self, x):
        return self.head(self.forward_stages(x)["norm"])

    def forward_stages(self, x, until=None):
        """Return the stem, ``(batch, stem_width, *size / 2)``, the stages, / 4 to / 32, and `norm`.

        Stages are called ``stages.0`` and so on; `norm` is the last of them, normalised and
        activated.
        """
        steps = {"stem": self.stem, "stages.0": self._first}
        for number in range(1, len(self.stages)):
            steps[f"stages.{number}"] = self.stages[number]
        steps["norm"] = self._last
        return in_turn(x, steps, until)

    def _first(self, x):
        if self.pads is not None:
            x = self.nn.pad(x, self.pads)
        return self.stages[0](self.pool(x))

    def _last(self, x):
        return self.relu(self.norm(x))


def _stem(nn, stem_type: str, in_channels: int, width: int, parts: Parts):
    """Make the convolutions before the pooling; no normalisation follows the last of them."""
    if stem_type == "plain":
        return nn.Sequential({"conv": parts.conv(nn, in_channels, width, 7, 2)})
    firsts = {"deep": width // 2, "tiered": 3 * width // 8}
    one_of(stem_type, ("plain", *firsts), "stem_type", "ResNetV2")
    first = firsts[stem_type]
    return nn.Sequential(
        {
            "conv1": parts.conv(nn, in_channels, first, 3, 2),
            "norm1": parts.normalisation(nn, first),
            "relu1": nn.ReLU(),
            "conv2": parts.conv(nn, first, width // 2, 3),
            "norm2": parts.normalisation(nn, width // 2),
            "relu2": nn.ReLU(),
            "conv3": parts.conv(nn, width // 2, width, 3),
        }
    )


_NARROW = {"block": "basic", "widths": (64, 128, 256, 512)}
_D = {"stem_type": "deep", "avg_down": True}
_T = {"stem_type": "tiered", "avg_down": True}
_BIT = {"norm": "group", "standardized": True}


def _wider(factor: int) -> dict[str, Any]:
    """Return the widths of a network that is wider by a factor."""
    widths = tuple(factor * width for width in (256, 512, 1024, 2048))
    return {"widths": widths, "stem_width": factor * 64}


# name: (other settings than the number of blocks, parameters)
_VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "resnetv2_18": (_NARROW, 11_687_720),
    "resnetv2_18d": (_NARROW | _D, 11_706_952),
    "resnetv2_34": (_NARROW, 21_795_880),
    "resnetv2_34d": (_NARROW | _D, 21_815_112),
    "resnetv2_50": ({}, 25_549_352),
    "resnetv2_50d": (_D, 25_568_584),
    "resnetv2_50t": (_T, 25_566_048),
    "resnetv2_50d_gn": (_D | {"norm": "group"}, 25_568_584),
    "resnetv2_101": ({}, 44_541_480),
    "resnetv2_101d": (_D, 44_560_712),
    "resnetv2_152": ({}, 60_185_128),
    "resnetv2_152d": (_D, 60_204_360),
    "resnetv2_50x1_bit": (_BIT, 25_549_352),
    "resnetv2_50x3_bit": (_BIT | _wider(3), 217_319_080),
    "resnetv2_101x1_bit": (_BIT, 44_541_480),
    "resnetv2_101x3_bit": (_BIT | _wider(3), 387_934_888),
    "resnetv2_152x2_bit": (_BIT | _wider(2), 236_335_208),
    "resnetv2_152x4_bit": (_BIT | _wider(4), 936_533_224),
}

for _name, (_settings, _parameters) in _VARIANTS.items():
    register(
        ResNetV2,
        name=_name,
        variant={"layers": blocks_by_name(_name)[1], **_settings},
        dims=(1, 2, 3),
        source="He et al. 2016, arXiv 1603.05027; Kolesnikov et al. 2020, arXiv 1912.11370; timm",
        shape=images(224),
        parameters=_parameters,
    )
