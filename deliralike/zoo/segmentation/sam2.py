"""The image encoder of Segment Anything 2: Hiera's trunk and a small pyramid of features.

It follows the paper's code. Prompts, masks and memory are not part of it.
"""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ONES, ZEROS, Normal
from deliralike.zoo.blocks import Mlp, images, run_stages
from deliralike.zoo.keymaps import KeyMap, by_patterns, without
from deliralike.zoo.layouts import (
    attend_heads,
    channels_first,
    channels_last,
    unpacked_heads,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import indices, numbers, positive
from deliralike.zoo.windows import within_windows

_EPS = 1e-6
_STRIDE = 4  # of the patches

# all but the encoder: what reads prompts, draws masks and remembers
_encoder_alone = partial(without, pattern=r"^(?!image_encoder\.|vision_encoder\.)")

_ORIGINAL = KeyMap(
    "segment_anything_2",
    by_patterns(
        {
            r"neck\.(\d)\.(.*)": r"image_encoder.neck.convs.\1.conv.\2",
            r"blocks\.(\d+)\.mlp\.fc1\.(.*)": r"image_encoder.trunk.blocks.\1.mlp.layers.0.\2",
            r"blocks\.(\d+)\.mlp\.fc2\.(.*)": r"image_encoder.trunk.blocks.\1.mlp.layers.1.\2",
            r"(.*)": r"image_encoder.trunk.\1",
        }
    ),
    mend=_encoder_alone,
)
_BACKBONE = "vision_encoder.backbone."
_BLOCK = rf"{_BACKBONE}blocks.\1."
_TRANSFORMERS = KeyMap(
    "transformers",
    by_patterns(
        {
            r"neck\.(\d)\.(.*)": r"vision_encoder.neck.convs.\1.\2",
            r"patch_embed\.proj\.(.*)": rf"{_BACKBONE}patch_embed.projection.\1",
            r"blocks\.(\d+)\.norm(\d)\.(.*)": rf"{_BLOCK}layer_norm\2.\3",
            r"blocks\.(\d+)\.mlp\.fc1\.(.*)": rf"{_BLOCK}mlp.proj_in.\2",
            r"blocks\.(\d+)\.mlp\.fc2\.(.*)": rf"{_BLOCK}mlp.proj_out.\2",
            r"(.*)": rf"{_BACKBONE}\1",
        }
    ),
    mend=_encoder_alone,
)


class SAM2Encoder(Model):
    """Hiera's trunk, whose positions are those within a window and coarse ones, and a neck.

    The trunk has four stages of attention, each with half the size and twice the width of the one
    before.

    Source: Ravi et al. 2024, arXiv 2408.00714; trunk: Ryali et al. 2023, arXiv 2306.00989;
    positions: Bolya et al. 2023, arXiv 2311.05613. Names of the trunk are those of timm's
    ``HieraDet``, start values those of Hugging Face's ``Sam2VisionModel``. The key map
    ``"segment_anything_2"`` has the names of the paper's code, ``"transformers"`` those of
    ``Sam2Model``; what belongs to prompts, masks and memory in their files is left out. The
    encodings of positions that both give beside the maps do not depend on weights, and are not
    computed.

    Args:
        embed_dim: Width of the tokens in the first stage; each stage doubles it.
        num_heads: Number of heads in the first stage; each stage doubles it.
        layers: The number of blocks in each of the four stages.
        window_size: The side of the windows in each stage, in patches. All but the last one are
            even, the first one is a multiple of 8.
        global_attn_indexes: The blocks whose attention goes across the image.
        coarse_positions: The side of the table of positions that is stretched over the image.
        neck_chans: Number of channels of each output; 0 for no neck: the trunk's four stages.
        in_channels: Number of input channels.

    Shapes:
        ``(batch, in_channels, *size)`` gives a tuple of three maps ``(batch, neck_chans, *size /
        reduction)`` for reductions 4, 8 and 16. A quarter of the size, rounded up, is a multiple of
        the first stage's window.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another size or (the error names ``patch_embed.proj``) number of
            channels.
    """

    keymaps = (_ORIGINAL, _TRANSFORMERS)
    ignored_names = r"^head\.norm\."  # of timm's files, whose networks end in features
    stem_paths = ("patch_embed.proj",)
    can_stop = True
    start_values = {
        "patch_embed.proj.weight": Normal(0.02),
        "blocks.*.weight": Normal(0.02),
        "blocks.*.norm?.weight": ONES,
        "neck.*.weight": Normal(0.02),
        "*.bias": ZEROS,
    }

    def __init__(
        self,
        embed_dim: int = 96,
        num_heads: int = 1,
        layers: Sequence[int] = (2, 3, 16, 3),
        window_size: Sequence[int] = (8, 4, 14, 7),
        global_attn_indexes: Sequence[int] = (12, 16, 20),
        coarse_positions: int = 7,
        neck_chans: int = 256,
        in_channels: int = 3,
    ) -> None:
        windows = numbers(window_size, "window_size", "SAM2Encoder", count=4)
        first, *halved, _ = windows
        if first % 8 or any(side % 2 for side in halved):
            raise SettingError(
                f"SAM2Encoder: window_size={window_size!r}; wanted a multiple of 8, two even "
                "numbers and any other, since a stage's first block halves the windows of the "
                "stage before"
            )
        super().__init__()
        positive("SAM2Encoder", num_heads=num_heads)
        checks.divides(embed_dim, num_heads, "SAM2Encoder: embed_dim", "num_heads")
        layers = numbers(layers, "layers", "SAM2Encoder", count=4)
        indices(global_attn_indexes, sum(layers), "global_attn_indexes", "SAM2Encoder")
        nn = self.nn
        patches = nn.Conv2d(in_channels, embed_dim, 7, _STRIDE, padding=3)
        self.patch_embed = nn.ModuleDict({"proj": patches})
        blocks: list[Network] = []
        before, window = embed_dim, first
        for stage, count in enumerate(layers):
            width, heads = embed_dim * 2**stage, num_heads * 2**stage
            for _ in range(count):
                side = None if len(blocks) in global_attn_indexes else window
                blocks.append(Block(before, width, heads, side))
                # a stage's first block has the windows of the stage before
                before, window = width, windows[stage]
        self.blocks = nn.Sequential(*blocks)
        names = [f"stage{number}" for number in range(1, 5)]
        self.stage_ends = tuple(zip(names, accumulate(layers), strict=True))
        self.window = first
        coarse = checks.positive(coarse_positions, "coarse_positions", "SAM2Encoder")
        self.pos_embed = nn.Parameter((1, embed_dim, coarse, coarse), ZEROS)
        self.pos_embed_window = nn.Parameter((1, embed_dim, first, first), ZEROS)
        convs = []
        if neck_chans:
            for factor in (8, 4, 2, 1):
                convs.append(nn.Conv2d(factor * embed_dim, neck_chans, 1))
        self.neck = nn.ModuleList(convs)

    def forward(self, x):
        maps = list(self.forward_stages(x).values())
        if not len(self.neck):
            return tuple(maps)
        maps.reverse()  # the neck begins with the smallest one
        pairs = zip(self.neck, maps, strict=True)
        smallest, small, *others = [conv(stage) for conv, stage in pairs]
        small = small + self.nn.interpolate(smallest, scale_factor=2)
        return (*reversed(others), small)

    def forward_stages(self, x, until=None):
        """Return each stage, ``stage1`` …: / 4, / 8, / 16 and / 32."""
        nn = self.nn
        x = channels_last(nn, self.patch_embed["proj"](x))
        x = x + self._positions(x.shape[1:3])
        stages = run_stages(self.blocks, x, self.stage_ends, until)
        return {name: channels_first(nn, stage) for name, stage in stages.items()}

    def _positions(self, size):
        """Return the coarse positions, stretched, and those within each window."""
        nn = self.nn
        if any(side % self.window for side in size):
            raise ShapeError(
                f"{checks.where(self)}: got an input of {' x '.join(map(str, size))} patches, "
                f"wanted multiples of {self.window}: pad images to multiples of {4 * self.window}"
            )
        coarse = nn.interpolate(self.pos_embed, size=tuple(size), mode="bicubic")
        counts = [side // self.window for side in size]
        within = nn.tile(self.pos_embed_window, (1, 1, *counts))
        return channels_last(nn, coarse + within)


class Block(Network):
    """Attention and a perceptron, each after a normalisation and beside a shortcut.

    Args:
        width, out_width: Width of the tokens before and after; where it grows, the grid is halved.
        heads: Number of heads.
        window: Side of the windows that attention stays in, before they are halved; None for the
            whole grid. The grid is padded with zeros to whole windows.

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
    ) -> None:
        super().__init__()
        nn = self.nn
        self.window = window
        self.stride = 1 if width == out_width else 2
        self.norm1 = nn.LayerNorm(width, _EPS)
        self.proj = None if width == out_width else nn.Linear(width, out_width)
        self.attn = PooledAttention(width, out_width, heads, self.stride)
        self.norm2 = nn.LayerNorm(out_width, _EPS)
        self.mlp = Mlp(out_width, 4 * out_width)

    def forward(self, x):
        normed = self.norm1(x)
        if self.proj is not None:
            x = _halved(self.nn, self.proj(normed))
        x = x + self._attended(normed)
        return x + self.mlp(self.norm2(x))

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


_WINDOWS = (8, 4, 14, 7)
# name: (width, heads, blocks in each stage, windows, blocks across the image, side of the coarse
# positions, parameters)
_VARIANTS = {
    "sam2_hiera_tiny": (96, 1, (1, 2, 7, 2), _WINDOWS, (5, 7, 9), 7, 27_219_136),
    "sam2_hiera_small": (96, 1, (1, 2, 11, 2), _WINDOWS, (7, 10, 13), 7, 34_316_992),
    "sam2_hiera_base_plus": (
        112,
        2,
        (2, 3, 16, 3),
        _WINDOWS,
        (12, 16, 20),
        14,
        69_106_816,
    ),
    "sam2_hiera_large": (
        144,
        2,
        (2, 6, 36, 4),
        (8, 4, 16, 8),
        (23, 33, 43),
        7,
        212_703_280,
    ),
}
_SETTINGS = (
    "embed_dim",
    "num_heads",
    "layers",
    "window_size",
    "global_attn_indexes",
    "coarse_positions",
)

register_each(
    SAM2Encoder,
    by_column(_SETTINGS, _VARIANTS),
    task="feature extraction",
    source="Ravi et al. 2024, arXiv 2408.00714; transformers, timm",
    shape=images(1024),
)
