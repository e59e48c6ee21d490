"""Hiera, as timm builds it, and its trunk, which Segment Anything 2 has as well.

It follows the paper, but for the classifier, which starts at zero, as timm's does.
"""

import math
from collections.abc import Collection, Sequence
from itertools import accumulate
from typing import Any

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ONES, ZEROS, Constant, Normal
from deliralike.zoo.blocks import (
    Mlp,
    classifier,
    drop_rates,
    has_side,
    images_of_size,
    run_stages,
)
from deliralike.zoo.layouts import (
    attend_heads,
    channels_first,
    channels_last,
    unpacked_heads,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import numbers
from deliralike.zoo.windows import within_windows

_EPS = 1e-6
_STRIDE = 4  # of the patches
# sides of the windows of each stage, in patches; None for attention across the image
_MASK_UNITS = (8, 4, None, None)


class HieraTrunk(Model):
    """Four stages of attention, each with half the size and twice the width of the one before.

    A subclass has tables of positions, and gives those of a grid by `positions`.

    Args:
        in_channels: Number of input channels.
        embed_dim: Width of the tokens in the first stage.
        num_heads: Number of heads in the first stage; each stage doubles it.
        layers: The number of blocks in each stage.
        windows: The sides of the windows in each stage; None for attention across the image. The
            first block of a stage has the windows of the stage before.
        global_blocks: Numbers of further blocks whose attention goes across the image.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
    """

    stem_paths = ("patch_embed.proj",)
    can_stop = True
    start_values = {
        "patch_embed.proj.weight": Normal(0.02),
        "blocks.*.weight": Normal(0.02),
        "blocks.*.norm?.weight": ONES,
        "blocks.*.bias": ZEROS,
    }

    def __init__(
        self,
        in_channels: int,
        embed_dim: int,
        num_heads: int,
        layers: Sequence[int],
        windows: Sequence[int | None],
        global_blocks: Collection[int] = (),
        stochastic_depth: float = 0.0,
    ) -> None:
        super().__init__()
        nn = self.nn
        what = type(self).__name__
        checks.positive(num_heads, "num_heads", what)
        checks.divides(embed_dim, num_heads, f"{what}: embed_dim", "num_heads")
        layers = numbers(layers, "layers", what, count=4)
        patches = nn.Conv2d(in_channels, embed_dim, 7, _STRIDE, padding=3)
        self.patch_embed = nn.ModuleDict({"proj": patches})
        blocks: list[Network] = []
        before, window = embed_dim, windows[0]
        for stage, rates in enumerate(drop_rates(stochastic_depth, layers)):
            width, heads = embed_dim * 2**stage, num_heads * 2**stage
            for rate in rates:
                side = None if len(blocks) in global_blocks else window
                blocks.append(Block(before, width, heads, side, rate))
                # a stage's first block has the windows of the stage before
                before, window = width, windows[stage]
        self.blocks = nn.Sequential(*blocks)
        names = [f"stage{number}" for number in range(1, 5)]
        self.stage_ends = tuple(zip(names, accumulate(layers), strict=True))

    def positions(self, size: Sequence[int]) -> Any:
        """Return what is added to a grid of patches: ``(1, *size, embed_dim)``."""
        raise NotImplementedError

    def forward_stages(self, x, until=None):
        """Return each stage, ``stage1`` …: / 4, / 8, / 16 and / 32."""
        nn = self.nn
        x = channels_last(nn, self.patch_embed["proj"](x))
        x = x + self.positions(x.shape[1:3])
        stages = run_stages(self.blocks, x, self.stage_ends, until)
        return {name: channels_first(nn, stage) for name, stage in stages.items()}


class Hiera(HieraTrunk):
    """A transformer in four stages, of which the first two attend within windows ("mask units").

    Source: Ryali et al. 2023, arXiv 2306.00989. Names, order, shapes and start values are those of
    timm's ``Hiera``.

    Args:
        image_size: Side of the (square) images, a multiple of 32.
        embed_dim: Width of the tokens in the first stage; each stage doubles it.
        num_heads: Number of heads in the first stage; each stage doubles it.
        layers: The number of blocks in each of the four stages.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives ``(batch, num_classes)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another size or (the error names ``patch_embed.proj``) number of
            channels.
    """

    head_paths = ("head.fc",)

    def __init__(
        self,
        image_size: int = 224,
        embed_dim: int = 96,
        num_heads: int = 1,
        layers: Sequence[int] = (2, 3, 16, 3),
        stochastic_depth: float = 0.0,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__(
            in_channels,
            embed_dim,
            num_heads,
            layers,
            windows=_MASK_UNITS,
            stochastic_depth=stochastic_depth,
        )
        nn = self.nn
        checks.divides(
            image_size, 32, "Hiera: image_size", "its last stage's reduction"
        )
        self.image_size = image_size
        patches = (image_size // _STRIDE) ** 2
        self.pos_embed = nn.Parameter((1, patches, embed_dim), Normal(0.02))
        width = embed_dim * 2**3
        head = {
            "norm": nn.LayerNorm(width, _EPS),
            "fc": classifier(nn, width, num_classes, "Hiera"),
        }
        self.head = nn.ModuleDict(head)

    @property
    def start_values(self):  # type: ignore[override]
        """timm's: the deeper a block, the smaller start the last layers of its branches."""
        values = super().start_values | {
            "blocks.*.bias": Constant(0.02),
            "blocks.*.norm?.bias": ZEROS,
            "head.fc.*": ZEROS,
        }
        for number in range(len(self.blocks)):
            smaller = Normal(0.02 / math.sqrt(2 * (number + 1)))
            values[f"blocks.{number}.attn.proj.weight"] = smaller
            values[f"blocks.{number}.mlp.fc2.weight"] = smaller
        return values

    def forward(self, x):
        last = self.last_stage(x)
        features = self.head["norm"](self.nn.mean(last, dim=(2, 3)))
        return self.head["fc"](features)

    def forward_stages(self, x, until=None):
        """Return each stage, ``stage1`` …: / 4, / 8, / 16 and / 32."""
        has_side(self, x, self.image_size)
        return super().forward_stages(x, until)

    def positions(self, size: Sequence[int]) -> Any:
        """Return the table as a grid."""
        return self.nn.reshape(self.pos_embed, (1, *size, -1))


class Block(Network):
    """Attention and a perceptron, each after a normalisation and beside a shortcut.

    Args:
        width, out_width: Width of the tokens before and after; where it grows, the grid is halved.
        heads: Number of heads.
        window: Side of the windows that attention stays in, before they are halved; None for the
            whole grid. The grid is padded with zeros to whole windows.
        stochastic_depth: Probability of dropping either branch.

    Shapes:
        ``(batch, height, width, channels)`` gives the same, or half the size and `out_width`
        channels.
    """

    def __init__(
        self,
        width: int,
        out_width: int,
        heads: int,
        window: int | None,
        stochastic_depth: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.window = window
        self.stride = 1 if width == out_width else 2
        self.norm1 = nn.LayerNorm(width, _EPS)
        self.proj = None if width == out_width else nn.Linear(width, out_width)
        self.attn = PooledAttention(width, out_width, heads, self.stride)
        self.drop_path = nn.DropPath(stochastic_depth)
        self.norm2 = nn.LayerNorm(out_width, _EPS)
        self.mlp = Mlp(out_width, 4 * out_width)

    def forward(self, x):
        normed = self.norm1(x)
        if self.proj is not None:
            x = _halved(self.nn, self.proj(normed))
        x = x + self.drop_path(self._attended(normed))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def _attended(self, x):
        size = x.shape[1:3]
        sides = size if self.window is None else (self.window, self.window)

        def attend(windows, _):
            return self.attn(windows, sides)

        return within_windows(self.nn, x, sides, (0, 0), attend, self.stride)


class PooledAttention(Network):
    """Attention within windows, whose queries are the maxima of 2 x 2 places where it halves.

    It takes the windows and the lengths of their sides.

    Shapes:
        ``(batch, windows, tokens, width)`` gives ``(batch, windows, tokens / stride**2,
        out_width)``.
    """

    def __init__(self, width: int, out_width: int, heads: int, stride: int) -> None:
        super().__init__()
        self.heads = heads
        self.stride = stride
        self.qkv = self.nn.Linear(width, 3 * out_width)
        self.proj = self.nn.Linear(out_width, out_width)

    def forward(self, windows, sides):
        nn = self.nn
        # PyTorch's fused attention wants one axis of batches
        tokens = nn.flatten(windows, 0, 1)
        query, key, value = unpacked_heads(nn, self.qkv(tokens), self.heads)
        if self.stride == 2:
            grids = nn.unflatten(nn.flatten(query, 0, 1), 1, sides)
            halved = nn.flatten(_halved(nn, grids), 1, 2)
            query = nn.unflatten(halved, 0, tuple(query.shape[:2]))
        y = self.proj(attend_heads(nn, query, key, value))
        return nn.unflatten(y, 0, tuple(windows.shape[:2]))


def _halved(nn: Any, grid: Any) -> Any:
    """Return the maxima of 2 x 2 places of ``(batch, height, width, channels)``."""
    return channels_last(nn, nn.max_pool2d(channels_first(nn, grid), 2))


# name: (width, heads, blocks in each stage, parameters)
_VARIANTS = {
    "hiera_tiny_224": (96, 1, (1, 2, 7, 2), 27_910_216),
    "hiera_small_224": (96, 1, (1, 2, 11, 2), 35_008_072),
    "hiera_base_224": (96, 1, (2, 3, 16, 3), 51_524_968),
    "hiera_base_plus_224": (112, 2, (2, 3, 16, 3), 69_896_616),
    "hiera_large_224": (144, 2, (2, 6, 36, 4), 213_739_912),
}

_COLUMNS = ("embed_dim", "num_heads", "layers")

register_each(
    Hiera,
    by_column(_COLUMNS, _VARIANTS),
    source="Ryali et al. 2023, arXiv 2306.00989; timm",
    shape=images_of_size,
)
