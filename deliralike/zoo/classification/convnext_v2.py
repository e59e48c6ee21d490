"""ConvNeXt V2, as timm builds it.

It follows the paper's networks for classification; their masked training is not here.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import (
    by_dims,
    by_stage,
    classifier,
    drop_rates,
    images,
    in_turn,
    large_enough,
)
from deliralike.zoo.classification.convnext import ChannelNorm
from deliralike.zoo.layouts import channels_first, channels_last
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import paired

_EPS = 1e-6


class GlobalResponseNorm(Network):
    """Each channel, weighted by its norm over all places relative to the mean of all channels'.

    A shortcut is added. Source: Woo et al. 2023, arXiv 2301.00808, section 3.3.

    Args:
        channels: Their number.
        channel_dim: Their axis: 1 or -1.

    Shapes:
        ``(batch, channels, *size)`` or ``(batch, *size, channels)`` gives the same.
    """

    def __init__(self, channels: int, channel_dim: int) -> None:
        super().__init__()
        self.channel_dim = channel_dim
        self.weight = self.nn.Parameter((channels,), ZEROS)
        self.bias = self.nn.Parameter((channels,), ZEROS)

    def forward(self, x):
        nn = self.nn
        axes = list(range(len(x.shape)))
        del axes[self.channel_dim], axes[0]
        responses = nn.norm(x, 2, axes, keepdim=True)
        relative = responses / (
            nn.mean(responses, self.channel_dim, keepdim=True) + _EPS
        )
        shape = [1] * len(x.shape)
        shape[self.channel_dim] = -1
        weight = nn.reshape(self.weight, shape)
        bias = nn.reshape(self.bias, shape)
        return x + weight * (x * relative) + bias


class ResponseMlp(Sequential):
    """Two linear layers over the channels, with a GELU and the response normalisation between.

    The channels are the last axis, with convolutions the first one after the batch.
    """

    def __init__(self, channels: int, conv_mlp: bool, dims: int) -> None:
        nn = self.nn
        linear: Any = nn.Linear
        if conv_mlp:
            linear = partial(by_dims(nn, dims, "Conv"), kernel_size=1)
        layers = {
            "fc1": linear(channels, 4 * channels),
            "act": nn.GELU(),
            "grn": GlobalResponseNorm(4 * channels, 1 if conv_mlp else -1),
            "fc2": linear(4 * channels, channels),
        }
        super().__init__(layers)


class Block(Network):
    """A 7x7 depthwise convolution and a perceptron over the channels, beside a shortcut.

    Source: Woo et al. 2023, arXiv 2301.00808, figure 5; timm.

    Shapes:
        ``(batch, channels, *size)`` gives the same.
    """

    start_values = {
        "conv_dw.weight": Normal(0.02),
        "conv_dw.bias": ZEROS,
        "mlp.fc?.weight": Normal(0.02),
        "mlp.fc?.bias": ZEROS,
    }

    def __init__(
        self, channels: int, conv_mlp: bool, stochastic_depth: float, dims: int
    ) -> None:
        super().__init__()
        nn = self.nn
        conv = by_dims(nn, dims, "Conv")
        self.conv_mlp = conv_mlp
        self.conv_dw = conv(channels, channels, 7, padding=3, groups=channels)
        norm = ChannelNorm if conv_mlp else nn.LayerNorm
        self.norm = norm(channels, eps=_EPS)
        self.mlp = ResponseMlp(channels, conv_mlp, dims)
        self.drop_path = nn.DropPath(stochastic_depth)

    def forward(self, x):
        y = self.conv_dw(x)
        if self.conv_mlp:
            y = self.mlp(self.norm(y))
        else:
            y = self.mlp(self.norm(channels_last(self.nn, y)))
            y = channels_first(self.nn, y)
        return x + self.drop_path(y)


class Stage(Sequential):
    """Blocks, from the second stage on after a normalisation and a convolution of stride 2.

    Args:
        before: The channels of the stage before; None for the first one.
        width: The channels of the stage.
        chances: The probability of dropping the residual branch of each block.
        conv_mlp, dims: As in `ConvNeXtV2`.
    """

    start_values = {"downsample.1.weight": Normal(0.02), "downsample.1.bias": ZEROS}

    def __init__(
        self,
        before: int | None,
        width: int,
        chances: Sequence[float],
        conv_mlp: bool,
        dims: int,
    ) -> None:
        nn = self.nn
        downsample = nn.Identity()
        if before is not None:
            conv = by_dims(nn, dims, "Conv")(before, width, 2, 2)
            downsample = nn.Sequential(ChannelNorm(before, eps=_EPS), conv)
        blocks = [Block(width, conv_mlp, chance, dims) for chance in chances]
        super().__init__({"downsample": downsample, "blocks": nn.Sequential(*blocks)})


class ConvNeXtV2(Model):
    """ConvNeXt with response normalisation in the place of scales, as timm builds it.

    Source: Woo et al. 2023, arXiv 2301.00808. Names, order, shapes and start values are those of
    ``timm.models.convnext`` with ``use_grn=True``; the same names in 1, 2 and 3 dimensions.

    Args:
        layers: The number of blocks in each stage.
        widths: The channels in each stage.
        conv_mlp: Whether the linear layers of blocks are convolutions with kernels of size 1. The
            outputs are the same, the shapes in the state are not.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size becomes a quarter,
        then a half between stages, rounding down.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names ``stem.0``),
            or is smaller than 32 along an axis (for four stages).
    """

    stem_paths = ("stem.0",)
    head_paths = ("head.fc",)
    can_stop = True
    start_values = {
        "stem.0.weight": Normal(0.02),
        "stem.0.bias": ZEROS,
        "head.fc.weight": Normal(0.02),
        "head.fc.bias": ZEROS,
    }

    def __init__(
        self,
        layers: Sequence[int] = (3, 3, 9, 3),
        widths: Sequence[int] = (96, 192, 384, 768),
        conv_mlp: bool = False,
        stochastic_depth: float = 0.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
    ) -> None:
        super().__init__()
        layers, widths = paired("ConvNeXtV2", layers=layers, widths=widths)
        nn = self.nn
        conv = by_dims(nn, dims, "Conv")(in_channels, widths[0], 4, 4)
        self.stem = nn.Sequential(conv, ChannelNorm(widths[0], eps=_EPS))
        stages = []
        before = None
        for rates, width in zip(
            drop_rates(stochastic_depth, layers), widths, strict=True
        ):
            stages.append(Stage(before, width, rates, conv_mlp, dims))
            before = width
        self.stages = nn.Sequential(*stages)
        head = {
            "pool": by_dims(nn, dims, "AdaptiveAvgPool")(1),
            "norm": ChannelNorm(widths[-1], eps=_EPS),
            "flatten": nn.Flatten(),
            "fc": classifier(nn, widths[-1], num_classes, "ConvNeXtV2"),
        }
        self.head = nn.Sequential(head)

    def forward(self, x):
        self._check_size(x)
        return self.head(self.stages(self.stem(x)))

    def forward_stages(self, x, until=None):
        """Return the stem and each stage, ``stage1`` …: / 4, / 4, / 8, / 16 and / 32."""
        self._check_size(x)
        return in_turn(x, by_stage(self.stem, self.stages), until)

    def _check_size(self, x) -> None:
        count = len(self.stages)
        large_enough(self, x, 2 ** (count + 1), f"stage{count}")


# name: (blocks in each stage, channels of the first stage, convolutions in blocks, parameters)
_VARIANTS = {
    "convnextv2_atto": ((2, 2, 6, 2), 40, True, 3_708_400),
    "convnextv2_femto": ((2, 2, 6, 2), 48, True, 5_233_240),
    "convnextv2_pico": ((2, 2, 6, 2), 64, True, 9_066_280),
    "convnextv2_nano": ((2, 2, 8, 2), 80, True, 15_623_800),
    "convnextv2_tiny": ((3, 3, 9, 3), 96, False, 28_635_496),
    "convnextv2_small": ((3, 3, 27, 3), 96, False, 50_318_440),
    "convnextv2_base": ((3, 3, 27, 3), 128, False, 88_717_800),
    "convnextv2_large": ((3, 3, 27, 3), 192, False, 197_956_840),
    "convnextv2_huge": ((3, 3, 27, 3), 352, False, 660_289_640),
}

for _name, (_layers, _width, _conv_mlp, _parameters) in _VARIANTS.items():
    register(
        ConvNeXtV2,
        name=_name,
        variant={
            "layers": _layers,
            "widths": tuple(_width * 2**stage for stage in range(4)),
            "conv_mlp": _conv_mlp,
        },
        dims=(1, 2, 3),
        source="Woo et al. 2023, arXiv 2301.00808; timm",
        shape=images(224),
        parameters=_parameters,
    )
