"""EfficientFormer, as timm builds it.

Unlike the paper's figures, but as in the authors' code, there are two heads, one of them trained
with a teacher, and their outputs are averaged.
"""

from collections.abc import Sequence

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, Constant, Normal
from deliralike.zoo.blocks import (
    Mlp,
    by_stage,
    classifier,
    drop_rates,
    has_side,
    images_of_size,
    in_turn,
)
from deliralike.zoo.layouts import as_grid, as_tokens, attend_heads, split_heads
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import paired, positive

_MLP_RATIO = 4  # how many times wider the hidden layer of each perceptron is
_LAYER_SCALE = 1e-5  # where the scales of the branches start
_HEADS = 8
_KEY_WIDTH = 32
_VALUE_WIDTH = 128
_PACKED_WIDTH = 2 * _KEY_WIDTH + _VALUE_WIDTH


class Attention(Network):
    """Attention of eight heads over a square of places, with a bias for each distance.

    Source: Graham et al. 2021 (LeViT), arXiv 2104.01136, section 4.2; timm.

    Shapes:
        ``(batch, side * side, width)`` gives the same.
    """

    start_values = {
        "qkv.weight": Normal(0.02),
        "qkv.bias": ZEROS,
        "proj.weight": Normal(0.02),
        "proj.bias": ZEROS,
    }

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        nn = self.nn
        self.attention_biases = nn.Parameter((_HEADS, side * side), ZEROS)
        self.attention_bias_idxs = nn.Buffer(_distances(side))
        self.qkv = nn.Linear(width, _HEADS * _PACKED_WIDTH)
        self.proj = nn.Linear(_HEADS * _VALUE_WIDTH, width)

    def forward(self, x):
        nn = self.nn
        packed = split_heads(nn, self.qkv(x), _HEADS)
        query = packed[..., :_KEY_WIDTH]
        key = packed[..., _KEY_WIDTH : 2 * _KEY_WIDTH]
        value = packed[..., 2 * _KEY_WIDTH :]
        bias = nn.select(self.attention_biases, self.attention_bias_idxs, 1)
        return self.proj(attend_heads(nn, query, key, value, bias))


class LayerScale(Network):
    """A factor for each channel, which are the last axis, or the second one of a map."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.gamma = self.nn.Parameter((width,), Constant(start))

    def forward(self, x):
        if len(x.shape) == 4:
            return x * self.nn.reshape(self.gamma, (1, -1, 1, 1))
        return x * self.gamma


class Pooling(Network):
    """The difference between the average over a place's neighbourhood and the place itself."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = self.nn.AvgPool2d(3, stride=1, padding=1, count_include_pad=False)

    def forward(self, x):
        return self.pool(x) - x


class ConvMlp(Sequential):
    """Two 1x1 convolutions, each normalised, with a GELU between."""

    def __init__(self, width: int, inner: int) -> None:
        nn = self.nn
        layers = {
            "fc1": nn.Conv2d(width, inner, 1),
            "norm1": nn.BatchNorm2d(inner),
            "act": nn.GELU(),
            "fc2": nn.Conv2d(inner, width, 1),
            "norm2": nn.BatchNorm2d(width),
        }
        super().__init__(layers)


class TokenMlp(Mlp):
    """Two linear layers and a GELU between them, with timm's start values for transformers."""

    start_values = {"fc?.weight": Normal(0.02), "fc?.bias": ZEROS}


class PoolBlock(Network):
    """Pooling and convolutions of size 1, each scaled beside a shortcut.

    Source: Li et al. 2022, arXiv 2206.01191, section 4.1; timm.

    Shapes:
        ``(batch, channels, height, width)`` gives the same.
    """

    def __init__(self, width: int, stochastic_depth: float) -> None:
        super().__init__()
        nn = self.nn
        self.token_mixer = Pooling()
        self.ls1 = LayerScale(width, _LAYER_SCALE)
        self.drop_path1 = nn.DropPath(stochastic_depth)
        self.mlp = ConvMlp(width, _MLP_RATIO * width)
        self.ls2 = LayerScale(width, _LAYER_SCALE)
        self.drop_path2 = nn.DropPath(stochastic_depth)

    def forward(self, x):
        x = x + self.drop_path1(self.ls1(self.token_mixer(x)))
        return x + self.drop_path2(self.ls2(self.mlp(x)))


class TokenBlock(Network):
    """Attention and a perceptron after normalisations, each scaled beside a shortcut.

    Source: Li et al. 2022, arXiv 2206.01191, section 4.1; timm.

    Shapes:
        ``(batch, side * side, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        stochastic_depth: float,
        side: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.norm1 = nn.LayerNorm(width)
        self.token_mixer = Attention(width, side)
        self.ls1 = LayerScale(width, _LAYER_SCALE)
        self.drop_path1 = nn.DropPath(stochastic_depth)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = TokenMlp(width, _MLP_RATIO * width)
        self.ls2 = LayerScale(width, _LAYER_SCALE)
        self.drop_path2 = nn.DropPath(stochastic_depth)

    def forward(self, x):
        x = x + self.drop_path1(self.ls1(self.token_mixer(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))


class Flat(Network):
    """The places of a map as tokens.

    Shapes:
        ``(batch, channels, *size)`` gives ``(batch, places, channels)``.
    """

    def forward(self, x):
        return as_tokens(self.nn, x)


class Stage(Sequential):
    """Blocks, from the second stage on after a downsampling.

    Args:
        before: The channels of the stage before; None for the first one.
        width: The channels of the stage.
        chances: The probability of dropping the residual branches of each block.
        num_vit: The number of blocks with attention, which are the last ones.
        side: The side of the map.
    """

    def __init__(
        self,
        before: int | None,
        width: int,
        chances: Sequence[float],
        num_vit: int,
        side: int,
    ) -> None:
        nn = self.nn
        downsample = nn.Identity()
        if before is not None:
            halving = nn.Conv2d(before, width, 3, 2, 1)
            layers = {"conv": halving, "norm": nn.BatchNorm2d(width)}
            downsample = nn.Sequential(layers)
        first = len(chances) - num_vit
        blocks = [PoolBlock(width, chance) for chance in chances[:first]]
        if num_vit:
            blocks.append(Flat())
            blocks += [TokenBlock(width, chance, side) for chance in chances[first:]]
        super().__init__({"downsample": downsample, "blocks": nn.Sequential(*blocks)})


class EfficientFormer(Model):
    """Stages of pooling, the last of which ends with attention, as timm builds them.

    Source: Li et al. 2022, arXiv 2206.01191. Names, order, shapes and start values are those of
    ``timm.models.efficientformer``, which takes images of 224 x 224 alone.

    Args:
        image_size: Side of the (square) images; the biases of attention fit one size alone.
        layers: The number of blocks in each stage.
        widths: The channels in each stage.
        num_vit: The number of blocks with attention, which are the last ones of the last stage.
        stochastic_depth: Probability of dropping the last residual branches; it grows linearly from
            the first block.
        num_classes: Number of outputs; 0 for no heads: the features, averaged over the tokens.
        in_channels: Number of input channels.
        distilled_training: Whether the outputs of both heads come in training mode, that for labels
            and that for a teacher; otherwise it is their average.

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``; with
        `distilled_training` two of these in training mode.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of channels (the error names ``stem.conv1``) or
            another size.
    """

    stem_paths = ("stem.conv1",)
    head_paths = ("head", "head_dist")
    start_values = {"head*.weight": Normal(0.02), "head*.bias": ZEROS}

    def __init__(
        self,
        image_size: int = 224,
        layers: Sequence[int] = (3, 2, 6, 4),
        widths: Sequence[int] = (48, 96, 224, 448),
        num_vit: int = 1,
        stochastic_depth: float = 0.0,
        num_classes: int = 1000,
        in_channels: int = 3,
        distilled_training: bool = False,
    ) -> None:
        super().__init__()
        positive("EfficientFormer", image_size=image_size)
        layers, widths = paired("EfficientFormer", layers=layers, widths=widths)
        if not 1 <= num_vit <= layers[-1]:
            raise SettingError(
                f"EfficientFormer: num_vit={num_vit!r}; wanted 1 to {layers[-1]}, the number of "
                "blocks in the last stage"
            )
        nn = self.nn
        self.image_size = image_size
        self.distilled_training = distilled_training
        # of the last stage, rounded up
        self.side = -(-image_size // 2 ** (len(layers) + 1))
        half = widths[0] // 2
        stem = {
            "conv1": nn.Conv2d(in_channels, half, 3, 2, 1),
            "norm1": nn.BatchNorm2d(half),
            "act1": nn.ReLU(),
            "conv2": nn.Conv2d(half, widths[0], 3, 2, 1),
            "norm2": nn.BatchNorm2d(widths[0]),
            "act2": nn.ReLU(),
        }
        self.stem = nn.Sequential(stem)
        chances = drop_rates(stochastic_depth, layers)
        stages = []
        before = None
        for stage, (rates, width) in enumerate(zip(chances, widths, strict=True), 1):
            tokens = num_vit if stage == len(layers) else 0
            stages.append(Stage(before, width, rates, tokens, self.side))
            before = width
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(widths[-1])
        self.head = classifier(nn, widths[-1], num_classes, "EfficientFormer")
        self.head_dist = classifier(nn, widths[-1], num_classes, "EfficientFormer")

    def forward(self, x):
        has_side(self, x, self.image_size, ": build it with another image_size")
        x = self.norm(self.stages(self.stem(x)))  # (batch, tokens, width)
        x = self.nn.mean(x, 1)
        by_label = self.head(x)
        by_teacher = self.head_dist(x)
        if self.training and self.distilled_training:
            return by_label, by_teacher
        return (by_label + by_teacher) / 2

    def forward_stages(self, x):
        """Return the stem and each stage, ``stage1`` …: / 4, / 4, / 8, / 16 and / 32."""
        has_side(self, x, self.image_size, ": build it with another image_size")
        stages = in_turn(x, by_stage(self.stem, self.stages))
        name = f"stage{len(self.stages)}"
        stages[name] = as_grid(self.nn, stages[name], (self.side, self.side))
        return stages


def _distances(side: int) -> np.ndarray:
    """Return the number of the distance between each pair of places: rows * side + columns."""
    rows, columns = (axis.ravel() for axis in np.indices((side, side)))
    down = np.abs(rows[:, None] - rows[None, :])
    right = np.abs(columns[:, None] - columns[None, :])
    return (down * side + right).astype(np.int64)


# name: (blocks and channels in each stage, blocks with attention, parameters)
_VARIANTS = {
    "efficientformer_l1": ((3, 2, 6, 4), (48, 96, 224, 448), 1, 12_289_928),
    "efficientformer_l3": ((4, 4, 12, 6), (64, 128, 320, 512), 4, 31_406_000),
    "efficientformer_l7": ((6, 6, 18, 8), (96, 192, 384, 768), 8, 82_229_328),
}


_COLUMNS = ("layers", "widths", "num_vit")

register_each(
    EfficientFormer,
    by_column(_COLUMNS, _VARIANTS),
    source="Li et al. 2022, arXiv 2206.01191; timm",
    shape=images_of_size,
)
