"""ConvNeXt, as torchvision builds it, and timm's smaller ones.

It follows the paper; stochastic depth is as torchvision sets it for each variant.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.normalization import LayerNorm
from deliralike.nn.start import ZEROS, Constant, Normal
from deliralike.zoo.blocks import (
    by_dims,
    classifier,
    drop_rates,
    images,
    large_enough,
    run_stages,
)
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.layouts import channels_first, channels_last
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import paired

_TIMM_LAYERS = {
    "block.0": "conv_dw",
    "block.2": "norm",
    "block.3": "mlp.fc1",
    "block.5": "mlp.fc2",
}

# our features alternate: the stem, a stage, a downsampling, a stage …; timm's stages begin with
# their downsampling
_TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"features\.0\.(\d\.\w+)": r"stem.\1",
            r"features\.(\d+)\.(\d+)\.layer_scale": lambda m: (
                f"stages.{int(m[1]) // 2}.blocks.{m[2]}.gamma"
            ),
            r"features\.(\d+)\.(\d+)\.(block\.\d)\.(\w+)": lambda m: (
                f"stages.{int(m[1]) // 2}.blocks.{m[2]}.{_TIMM_LAYERS[m[3]]}.{m[4]}"
            ),
            r"features\.(\d+)\.(\d\.\w+)": lambda m: (
                f"stages.{int(m[1]) // 2}.downsample.{m[2]}"
            ),
            r"classifier\.0\.(\w+)": r"head.norm.\1",
            r"classifier\.2\.(\w+)": r"head.fc.\1",
        }
    ),
    {
        "*.layer_scale": (
            lambda gamma: gamma.reshape(-1, 1, 1),
            lambda scale: scale.reshape(-1),
        )
    },
)


class ChannelNorm(LayerNorm):
    """Layer normalisation over the channels at each place.

    Shapes:
        ``(batch, channels, *size)`` gives the same.
    """

    def forward(self, x):
        checks.channels(self, x, self.normalized_shape[0])
        return channels_first(self.nn, super().forward(channels_last(self.nn, x)))


class Permute(Network):
    """A permutation of axes in a row of layers, where torchvision counts it."""

    def __init__(self, dims: Sequence[int]) -> None:
        super().__init__()
        self.dims = tuple(dims)

    def forward(self, x):
        return self.nn.permute(x, self.dims)


class CNBlock(Network):
    """A 7x7 depthwise convolution and a perceptron over the channels, scaled, beside a shortcut.

    Source: Liu et al. 2022, arXiv 2201.03545, figure 4; torchvision, whose numbers count the
    permutations too.

    Shapes:
        ``(batch, channels, *size)`` gives the same.
    """

    start_values = {
        "block.?.weight": Normal(0.02),
        "block.?.bias": ZEROS,
        "block.2.weight": Constant(1.0),
    }

    def __init__(
        self,
        channels: int,
        layer_scale: float,
        stochastic_depth: float,
        conv_mlp: bool,
        dims: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        conv = by_dims(nn, dims, "Conv")
        first = Permute((0, *range(2, dims + 2), 1))
        last = Permute((0, dims + 1, *range(1, dims + 1)))
        norm: Any = nn.LayerNorm
        linear: Any = nn.Linear
        if conv_mlp:
            first, last = nn.Identity(), nn.Identity()
            norm, linear = ChannelNorm, partial(conv, kernel_size=1)
        self.layer_scale = nn.Parameter((channels, *(1,) * dims), Constant(layer_scale))
        self.block = nn.Sequential(
            conv(channels, channels, 7, padding=3, groups=channels),
            first,
            norm(channels, eps=1e-6),
            linear(channels, 4 * channels),
            nn.GELU(),
            linear(4 * channels, channels),
            last,
        )
        self.stochastic_depth = nn.DropPath(stochastic_depth)

    def forward(self, x):
        y = self.stochastic_depth(self.layer_scale * self.block(x))
        y += x  # in place on PyTorch, as torchvision
        return y


class ConvNeXt(Model):
    """ConvNeXt, as torchvision builds it; the same names in 1, 2 and 3 dimensions.

    Source: Liu et al. 2022, arXiv 2201.03545. Names, order, shapes and start values are those of
    ``torchvision.models.convnext``; the key map ``"timm"`` has timm's names.

    Args:
        layers: The number of blocks in each stage.
        widths: The channels in each stage.
        layer_scale: Where the scale of each block's channels starts.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features.
        in_channels: Number of input channels.
        dims: Number of spatial axes: 1, 2 or 3.
        conv_mlp: Use 1x1 convolutions in place of linear layers, as timm's small networks: the same
            numbers, and weights of other shapes.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, num_classes)``; the size becomes a quarter,
        then a half between stages, rounding down.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``features.0.0``), or is smaller than 32 along an axis (for four stages).
    """

    stem_paths = ("features.0.0",)
    head_paths = ("classifier.2",)
    can_stop = True
    keymaps = (_TIMM,)

    def __init__(
        self,
        layers: Sequence[int] = (3, 3, 9, 3),
        widths: Sequence[int] = (96, 192, 384, 768),
        layer_scale: float = 1e-6,
        stochastic_depth: float = 0.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        dims: int = 2,
        conv_mlp: bool = False,
    ) -> None:
        super().__init__()
        layers, widths = paired("ConvNeXt", layers=layers, widths=widths)
        nn = self.nn
        conv = by_dims(self.nn, dims, "Conv")
        chances = drop_rates(stochastic_depth, layers)
        features = [
            nn.Sequential(
                conv(in_channels, widths[0], 4, 4), ChannelNorm(widths[0], eps=1e-6)
            )
        ]
        for stage, (rates, width) in enumerate(zip(chances, widths, strict=True)):
            if stage:
                before = widths[stage - 1]
                halving = nn.Sequential(
                    ChannelNorm(before, eps=1e-6), conv(before, width, 2, 2)
                )
                features.append(halving)
            blocks = []
            for rate in rates:
                blocks.append(CNBlock(width, layer_scale, rate, conv_mlp, dims))
            features.append(nn.Sequential(*blocks))
        self.features = nn.Sequential(*features)
        self.avgpool = by_dims(nn, dims, "AdaptiveAvgPool")(1)
        self.classifier = nn.Sequential(
            ChannelNorm(widths[-1], eps=1e-6),
            nn.Flatten(1),
            classifier(nn, widths[-1], num_classes, "ConvNeXt"),
        )

    @property
    def start_values(self):  # type: ignore[override]
        """Torchvision's start values.

        It truncates at 2, which is a hundred standard deviations, so at nothing.
        """
        halvings = [f"features.{i}.1" for i in range(2, len(self.features), 2)]
        layers = ["features.0.0", *halvings, "classifier.2"]
        weights = {f"{layer}.weight": Normal(0.02) for layer in layers}
        return weights | {f"{layer}.bias": ZEROS for layer in layers}

    def forward(self, x):
        self._check_size(x)
        return self.classifier(self.avgpool(self.features(x)))

    def forward_stages(self, x, until=None):
        """Return the stem and each stage, ``stage1`` …: / 4, / 4, / 8, / 16 and / 32."""
        self._check_size(x)
        ends = [("stem", 1)]
        for i in range(1, len(self.features) // 2 + 1):
            ends.append((f"stage{i}", 2 * i))
        return run_stages(self.features, x, ends, until)

    def _check_size(self, x) -> None:
        count = len(self.features) // 2
        large_enough(self, x, 2 ** (count + 1), f"stage{count}")


_SOURCE = "Liu et al. 2022, arXiv 2201.03545; torchvision, timm"

# name: (blocks in each stage, channels of the first stage, stochastic depth, parameters); those of
# timm alone have `conv_mlp`
_VARIANTS = {
    "convnext_atto": ((2, 2, 6, 2), 40, 0.0, 3_695_520),
    "convnext_femto": ((2, 2, 6, 2), 48, 0.0, 5_217_784),
    "convnext_pico": ((2, 2, 6, 2), 64, 0.0, 9_045_672),
    "convnext_nano": ((2, 2, 8, 2), 80, 0.0, 15_593_560),
    "convnext_tiny": ((3, 3, 9, 3), 96, 0.1, 28_589_128),
    "convnext_small": ((3, 3, 27, 3), 96, 0.4, 50_223_688),
    "convnext_base": ((3, 3, 27, 3), 128, 0.5, 88_591_464),
    "convnext_large": ((3, 3, 27, 3), 192, 0.5, 197_767_336),
}

for _name, (_layers, _width, _chance, _parameters) in _VARIANTS.items():
    _settings: dict[str, Any] = {
        "layers": _layers,
        "widths": tuple(_width * 2**stage for stage in range(4)),
        "conv_mlp": _layers[0] == 2,
    }
    register(
        ConvNeXt,
        name=_name,
        variant=_settings | {"stochastic_depth": _chance},
        dims=(1, 2, 3),
        source=_SOURCE,
        shape=images(224),
        parameters=_parameters,
    )
