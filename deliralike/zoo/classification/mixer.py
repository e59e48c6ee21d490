"""MLP-Mixer and ResMLP, as timm builds them: networks of perceptrons over image patches.

They follow the papers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import (
    ONES,
    ZEROS,
    Constant,
    Normal,
    TruncatedNormal,
    XavierUniform,
)
from deliralike.zoo.blocks import Mlp, classifier, has_side, images_of_size
from deliralike.zoo.layouts import as_grid, as_tokens
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import one_of, positive


class MixerMlp(Mlp):
    """A perceptron with the start values of the paper's code."""

    start_values = {"fc?.weight": XavierUniform(), "fc?.bias": Normal(1e-6)}


class Affine(Network):
    """A scale and a shift for each channel, in the place of a normalisation.

    Source: arXiv 2105.03404; timm.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = self.nn.Parameter((1, 1, width), ONES)
        self.beta = self.nn.Parameter((1, 1, width), ZEROS)

    def forward(self, x):
        return self.alpha * x + self.beta


class MixerBlock(Network):
    """A perceptron over tokens, then one over channels, each beside a shortcut.

    Source: Tolstikhin et al. 2021, arXiv 2105.01601, figure 1; timm.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        tokens: int,
        mlp_ratio: Sequence[float],
        stochastic_depth: float,
        layer_scale: float,
    ) -> None:
        super().__init__()
        self.norm1 = self.nn.LayerNorm(width, eps=1e-6)
        self.mlp_tokens = MixerMlp(tokens, int(mlp_ratio[0] * width))
        self.drop_path1 = self.nn.DropPath(stochastic_depth)
        self.norm2 = self.nn.LayerNorm(width, eps=1e-6)
        self.mlp_channels = MixerMlp(width, int(mlp_ratio[1] * width))
        self.drop_path2 = self.nn.DropPath(stochastic_depth)

    def forward(self, x):
        x = x + self.drop_path1(self._over_tokens(self.norm1(x)))
        return x + self.drop_path2(self.mlp_channels(self.norm2(x)))

    def _over_tokens(self, x):
        x = self.nn.permute(x, (0, 2, 1))  # (batch, width, tokens)
        return self.nn.permute(self.mlp_tokens(x), (0, 2, 1))


class ResBlock(Network):
    """A linear layer over tokens, then a perceptron over channels, each scaled beside a shortcut.

    There is no normalisation.

    Source: Touvron et al. 2021, arXiv 2105.03404, section 2; timm.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    start_values = {
        "linear_tokens.weight": XavierUniform(),
        "linear_tokens.bias": ZEROS,
    }

    def __init__(
        self,
        width: int,
        tokens: int,
        mlp_ratio: Sequence[float],
        stochastic_depth: float,
        layer_scale: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.ls1 = nn.Parameter((width,), Constant(layer_scale))
        self.ls2 = nn.Parameter((width,), Constant(layer_scale))
        self.norm1 = Affine(width)
        self.linear_tokens = nn.Linear(tokens, tokens)
        self.drop_path1 = nn.DropPath(stochastic_depth)
        self.norm2 = Affine(width)
        self.mlp_channels = MixerMlp(width, int(mlp_ratio[1] * width))
        self.drop_path2 = nn.DropPath(stochastic_depth)

    def forward(self, x):
        y = self.nn.permute(self.norm1(x), (0, 2, 1))  # (batch, width, tokens)
        y = self.nn.permute(self.linear_tokens(y), (0, 2, 1))
        x = x + self.drop_path1(self.ls1 * y)
        return x + self.drop_path2(self.ls2 * self.mlp_channels(self.norm2(x)))


BLOCKS: Mapping[str, Any] = {"mixer": MixerBlock, "residual": ResBlock}


class MlpMixer(Model):
    """MLP-Mixer or, with other blocks, ResMLP, as timm builds them.

    Source: Tolstikhin et al. 2021, arXiv 2105.01601; ResMLP: Touvron et al. 2021, arXiv 2105.03404.
    Names, order, shapes and start values are those of ``timm.models.mlp_mixer``.

    Args:
        image_size: Side of the (square) images; the weights over tokens fit no other.
        patch_size: Side of a patch; divides `image_size`.
        num_blocks: Number of blocks.
        embed_dim: Width of the tokens.
        block: ``"mixer"`` or ``"residual"`` (ResMLP's, with affine maps for normalisations).
        mlp_ratio: How many times the width the hidden layers over tokens and over channels have.
        layer_scale: Where the scales of residual blocks start.
        dropout: Probability before the head.
        stochastic_depth: Probability of dropping a residual branch, the same in all blocks.
        num_classes: Number of outputs; 0 for no head: the features, averaged over the tokens.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels (the error names ``stem.proj``) or
            another size.
    """

    stem_paths = ("stem.proj",)
    head_paths = ("head",)

    def __init__(
        self,
        image_size: int = 224,
        patch_size: int = 16,
        num_blocks: int = 8,
        embed_dim: int = 512,
        block: str = "mixer",
        mlp_ratio: tuple[float, float] = (0.5, 4.0),
        layer_scale: float = 1e-4,
        dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        positive(
            "MlpMixer",
            image_size=image_size,
            patch_size=patch_size,
            num_blocks=num_blocks,
        )
        checks.divides(image_size, patch_size, "MlpMixer: image_size", "patch_size")
        one_of(block, BLOCKS, "block", "MlpMixer")
        nn = self.nn
        tokens = (image_size // patch_size) ** 2
        self.image_size = image_size
        self.patch_size = patch_size
        self.fan_in = in_channels * patch_size**2
        patches = nn.Conv2d(in_channels, embed_dim, patch_size, patch_size)
        self.stem = nn.Sequential({"proj": patches})
        settings = (embed_dim, tokens, mlp_ratio, stochastic_depth, layer_scale)
        blocks = [BLOCKS[block](*settings) for _ in range(num_blocks)]
        self.blocks = nn.Sequential(*blocks)
        if block == "residual":
            self.norm = Affine(embed_dim)
        else:
            self.norm = nn.LayerNorm(embed_dim, eps=1e-6)
        self.head_drop = nn.Dropout(dropout)
        self.head = classifier(nn, embed_dim, num_classes, "MlpMixer")

    @property
    def start_values(self):  # type: ignore[override]
        """Timm's start values.

        The patches' convolution has LeCun's variance after truncation; the head starts at zero.
        """
        truncated = (
            0.87962566103423978  # the deviation of a standard normal cut off at two
        )
        std = 1 / math.sqrt(self.fan_in) / truncated
        return {
            "stem.proj.weight": TruncatedNormal(std),
            "stem.proj.bias": ZEROS,
            "head.*": ZEROS,
        }

    def forward(self, x):
        tokens = self.norm(self.blocks(self._tokens(x)))
        return self.head(self.head_drop(self.nn.mean(tokens, 1)))

    def forward_stages(self, x):
        """Return the patches and each block, ``block0`` …, not yet normalised.

        Each is ``(batch, embed_dim, *size / patch_size)``.
        """
        tokens = self._tokens(x)
        stages = {"patches": self._map(tokens)}
        for index, block in enumerate(self.blocks):
            tokens = block(tokens)
            stages[f"block{index}"] = self._map(tokens)
        return stages

    def _map(self, tokens):
        side = self.image_size // self.patch_size
        return as_grid(self.nn, tokens, (side, side))

    def _tokens(self, x):
        """Return the patches as tokens: (batch, tokens, embed_dim)."""
        has_side(self, x, self.image_size)
        return as_tokens(self.nn, self.stem(x))


# name: (patch, blocks, width, parameters)
_MIXERS = {
    "mixer_s32_224": (32, 8, 512, 19_104_624),
    "mixer_s16_224": (16, 8, 512, 18_528_264),
    "mixer_b32_224": (32, 12, 768, 60_293_428),
    "mixer_b16_224": (16, 12, 768, 59_880_472),
    "mixer_l32_224": (32, 24, 1024, 206_939_264),
    "mixer_l16_224": (16, 24, 1024, 208_196_168),
}

# name: (patch, blocks, width, start of the scales, parameters)
_RESIDUAL = {
    "resmlp_12_224": (16, 12, 384, 1e-4, 15_350_872),
    "resmlp_24_224": (16, 24, 384, 1e-5, 30_020_680),
    "resmlp_36_224": (16, 36, 384, 1e-6, 44_690_488),
    "resmlp_big_24_224": (8, 24, 768, 1e-6, 129_138_280),
}


register_each(
    MlpMixer,
    by_column(("patch_size", "num_blocks", "embed_dim"), _MIXERS),
    source="Tolstikhin et al. 2021, arXiv 2105.01601; timm",
    shape=images_of_size,
)

register_each(
    MlpMixer,
    by_column(
        ("patch_size", "num_blocks", "embed_dim", "layer_scale"),
        _RESIDUAL,
        block="residual",
        mlp_ratio=(4.0, 4.0),
    ),
    source="Touvron et al. 2021, arXiv 2105.03404; timm",
    shape=images_of_size,
)
