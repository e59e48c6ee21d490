"""MaxViT, as torchvision builds it.

It follows the paper, but for the factor of the scores in attention, which is that of the authors'
code: one over the root of all channels, not of those of a head.
"""

from collections.abc import Sequence
from typing import Any

from deliralike.errors import ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import by_stage, classifier, drop_rates, images, in_turn
from deliralike.zoo.layouts import attend_heads, unpacked_heads
from deliralike.zoo.mobile import SqueezeExcitation
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import paired
from deliralike.zoo.windows import relative_positions

_NORM: dict[str, Any] = {"eps": 1e-3, "momentum": 0.01}
# For each output of a bottleneck: channels within it, and between the two layers of its gate.
_EXPANSION = 4
_SQUEEZE = 0.25
_MLP_RATIO = 4  # of the hidden layer of each perceptron

# For each kind of partition: which of six axes (batch, channels, and both spatial axes cut in two)
# come first as numbers of a group, then as places within it, then as channels; and the way back.
_ORDERS = {
    "window": ((0, 2, 4, 3, 5, 1), (0, 5, 1, 3, 2, 4)),
    "grid": ((0, 3, 5, 2, 4, 1), (0, 5, 3, 1, 4, 2)),
}


class MBConv(Network):
    """An inverted bottleneck with a normalisation first, beside a shortcut.

    The shortcut is an average and a 1x1 convolution where the size or the channels change.

    Source: Tu et al. 2022, arXiv 2204.01697, appendix; torchvision.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, out_channels, height / stride, width
        / stride)``, rounded up.
    """

    start_values = {
        "proj.?.weight": Normal(0.02),
        "proj.?.bias": ZEROS,
        "layers.conv_?.0.weight": Normal(0.02),
        "layers.conv_c.weight": Normal(0.02),
        "layers.conv_c.bias": ZEROS,
        "layers.squeeze_excitation.fc?.weight": Normal(0.02),
        "layers.squeeze_excitation.fc?.bias": ZEROS,
    }

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        stochastic_depth: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        inner = out_channels * _EXPANSION
        squeezed = int(out_channels * _SQUEEZE)
        if stride == 1 and in_channels == out_channels:
            self.proj = nn.Identity()
        else:
            shortcut = [nn.Conv2d(in_channels, out_channels, 1)]
            if stride == 2:
                shortcut.insert(0, nn.AvgPool2d(3, stride, padding=1))
            self.proj = nn.Sequential(*shortcut)
        self.stochastic_depth = nn.DropPath(stochastic_depth)
        layers = {
            "pre_norm": nn.BatchNorm2d(in_channels, **_NORM),
            "conv_a": _conv_norm_gelu(nn, in_channels, inner, 1),
            "conv_b": _conv_norm_gelu(nn, inner, inner, 3, stride, groups=inner),
            "squeeze_excitation": SqueezeExcitation(inner, squeezed, "SiLU"),
            "conv_c": nn.Conv2d(inner, out_channels, 1),
        }
        self.layers = nn.Sequential(layers)

    def forward(self, x):
        return self.proj(x) + self.stochastic_depth(self.layers(x))


class RelativeAttention(Network):
    """Attention within groups of tokens that are a square, with a bias for relative positions.

    Source: torchvision's ``RelativePositionalMultiHeadAttention``.

    Shapes:
        ``(batch, groups, tokens, channels)`` gives the same.
    """

    start_values = {
        "to_qkv.weight": Normal(0.02),
        "to_qkv.bias": ZEROS,
        "merge.weight": Normal(0.02),
        "merge.bias": ZEROS,
    }

    def __init__(self, channels: int, head_dim: int, side: int) -> None:
        super().__init__()
        nn = self.nn
        checks.divides(channels, head_dim, "MaxViT: channels of a stage", "head_dim")
        self.heads = channels // head_dim
        table = ((2 * side - 1) ** 2, self.heads)
        index = relative_positions((side, side))
        self.relative_position_bias_table = nn.Parameter(table, Normal(0.02))
        self.relative_position_index = nn.Buffer(index)
        self.to_qkv = nn.Linear(channels, 3 * channels)
        self.merge = nn.Linear(channels, channels)

    def forward(self, x):
        nn = self.nn
        query, key, value = unpacked_heads(nn, self.to_qkv(x), self.heads)
        bias = nn.select(
            self.relative_position_bias_table, self.relative_position_index, 0
        )
        bias = nn.permute(bias, (2, 0, 1))  # (heads, tokens, tokens)
        scale = self.to_qkv.in_features**-0.5
        return self.merge(attend_heads(nn, query, key, value, bias, scale=scale))


class PartitionAttention(Network):
    """Attention within windows or over a grid, and a perceptron, each beside a shortcut.

    Source: Tu et al. 2022, arXiv 2204.01697, section 3.2; torchvision.

    Args:
        kind: ``"window"``: neighbours attend to each other. ``"grid"``: places that lie apart by
            equal steps through the whole image do.
        side: The side of a window, or the number of a grid's places along each axis.

    Shapes:
        ``(batch, channels, height, width)``, both divisible by `side`, gives the same.
    """

    start_values = {"mlp_layer.[13].weight": Normal(0.02), "mlp_layer.[13].bias": ZEROS}

    def __init__(
        self,
        kind: str,
        channels: int,
        head_dim: int,
        side: int,
        stochastic_depth: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.kind, self.side = kind, side
        self.attn_layer = nn.Sequential(
            nn.LayerNorm(channels),
            RelativeAttention(channels, head_dim, side),
        )
        self.mlp_layer = nn.Sequential(
            nn.LayerNorm(channels),
            nn.Linear(channels, channels * _MLP_RATIO),
            nn.GELU(),
            nn.Linear(channels * _MLP_RATIO, channels),
        )
        self.drop_path1 = nn.DropPath(stochastic_depth)
        self.drop_path2 = nn.DropPath(stochastic_depth)

    def forward(self, x):
        nn, side = self.nn, self.side
        batch, channels, height, width = x.shape
        rows, columns = height // side, width // side
        cut = (batch, channels, rows, side, columns, side)
        if self.kind == "grid":
            cut = (batch, channels, side, rows, side, columns)
        there, back = _ORDERS[self.kind]
        groups = nn.permute(nn.reshape(x, cut), there)
        y = nn.reshape(groups, (batch, rows * columns, side * side, channels))
        y = y + self.drop_path1(self.attn_layer(y))
        y = y + self.drop_path2(self.mlp_layer(y))
        y = nn.permute(nn.reshape(y, groups.shape), back)
        return nn.reshape(y, (batch, channels, height, width))


def _layer(
    nn: Any,
    in_channels: int,
    out_channels: int,
    stride: int,
    stochastic_depth: float,
    head_dim: int,
    side: int,
) -> Any:
    """Make an inverted bottleneck, attention within windows and attention over a grid."""
    attention = (out_channels, head_dim, side, stochastic_depth)
    layers = {
        "MBconv": MBConv(in_channels, out_channels, stride, stochastic_depth),
        "window_attention": PartitionAttention("window", *attention),
        "grid_attention": PartitionAttention("grid", *attention),
    }
    return nn.Sequential({"layers": nn.Sequential(layers)})


def _stage(
    nn: Any,
    in_channels: int,
    out_channels: int,
    chances: Sequence[float],
    *settings: int,
) -> Any:
    """Make layers, of which the first one halves the size; see `_layer`."""
    layers = [_layer(nn, in_channels, out_channels, 2, chances[0], *settings)]
    for chance in chances[1:]:
        layers.append(_layer(nn, out_channels, out_channels, 1, chance, *settings))
    return nn.Sequential({"layers": nn.Sequential(*layers)})


class MaxViT(Model):
    """Convolutions, attention within windows and attention over grids, in every block.

    Source: Tu et al. 2022, arXiv 2204.01697. Names, order, shapes and start values are those of
    ``torchvision.models.maxvit``, which takes square images of one size alone.

    Args:
        stem_channels: The channels of the two convolutions before the stages.
        block_channels: The channels in each stage.
        block_layers: The number of blocks in each stage.
        partition_size: Side of a window, and number of a grid's places along each axis.
        head_dim: Width of each head of attention; divides all `block_channels`.
        stochastic_depth: Probability of dropping the last residual branches; it grows linearly from
            the first block.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features after a
            linear layer and tanh.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; stem and stages
        halve the size, rounding up, and `partition_size` divides the size of every stage.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels (the error names
            ``stem.0.0``), or a size that partitions do not divide in some stage.
    """

    stem_paths = ("stem.0.0",)
    head_paths = ("classifier.5",)
    can_stop = True
    start_values = {
        "stem.?.0.weight": Normal(0.02),
        "stem.1.0.bias": ZEROS,
        "classifier.[35].weight": Normal(0.02),
        "classifier.3.bias": ZEROS,
    }

    def __init__(
        self,
        stem_channels: int = 64,
        block_channels: Sequence[int] = (64, 128, 256, 512),
        block_layers: Sequence[int] = (2, 2, 5, 2),
        partition_size: int = 7,
        head_dim: int = 32,
        stochastic_depth: float = 0.2,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        self.partition_size = checks.positive(
            partition_size, "partition_size", "MaxViT"
        )
        block_channels, block_layers = paired(
            "MaxViT", block_channels=block_channels, block_layers=block_layers
        )
        nn = self.nn
        self.stem = nn.Sequential(
            _conv_norm_gelu(nn, in_channels, stem_channels, 3, 2),
            nn.Sequential(nn.Conv2d(stem_channels, stem_channels, 3, padding=1)),
        )
        chances = drop_rates(stochastic_depth, block_layers)
        blocks = []
        before = stem_channels
        for width, rates in zip(block_channels, chances, strict=True):
            stage = _stage(nn, before, width, rates, head_dim, partition_size)
            blocks.append(stage)
            before = width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.LayerNorm(before),
            nn.Linear(before, before),
            nn.Tanh(),
            classifier(nn, before, num_classes, "MaxViT", bias=False),
        )

    def forward(self, x):
        self._check_size(x)
        return self.classifier(self.blocks(self.stem(x)))

    def forward_stages(self, x, until=None):
        """Return the stem and each stage, ``stage1`` …: / 2, / 4, / 8, / 16 and / 32."""
        self._check_size(x)
        return in_turn(x, by_stage(self.stem, self.blocks), until)

    def _check_size(self, x) -> None:
        count = len(self.blocks)
        for i in range(1, count + 1):
            # the stem has halved the size once, and each stage does, rounding up
            sizes = [-(-size // 2 ** (i + 1)) for size in x.shape[2:]]
            if any(size % self.partition_size for size in sizes):
                raise ShapeError(
                    f"{checks.where(self)}: an input of shape {tuple(x.shape)} has size {sizes} in "
                    f"'stage{i}', which partition_size={self.partition_size} does not divide; "
                    f"multiples of {2 ** (count + 1) * self.partition_size} are right"
                )


def _conv_norm_gelu(
    nn: Any,
    in_channels: int,
    out_channels: int,
    kernel: int,
    stride: int = 1,
    groups: int = 1,
) -> Any:
    options = {"padding": kernel // 2, "groups": groups, "bias": False}
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel, stride, **options),
        nn.BatchNorm2d(out_channels, **_NORM),
        nn.GELU(),
    )


register(
    MaxViT,
    name="maxvit_t",
    source="Tu et al. 2022, arXiv 2204.01697; torchvision",
    shape=images(224),
    parameters=30_919_624,
)
