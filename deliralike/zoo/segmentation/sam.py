"""The image encoder of Segment Anything: a transformer over patches, most of it within windows.

It follows the paper. Prompts and masks are not part of it.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.start import ZEROS
from deliralike.zoo.blocks import Mlp, has_side, images_of_size
from deliralike.zoo.classification.convnext import ChannelNorm
from deliralike.zoo.keymaps import KeyMap, by_patterns, without
from deliralike.zoo.layouts import (
    attend_heads,
    channels_first,
    channels_last,
    unpacked_heads,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import by_column, register_each
from deliralike.zoo.setting_checks import indices, positive
from deliralike.zoo.tables import EDGES, resampled
from deliralike.zoo.windows import within_windows

# the parts of the whole network that read prompts and draw masks
_encoder_alone = partial(
    without,
    pattern=r"^(prompt_encoder|mask_decoder|shared_image_embedding)\.|^pixel_",
)

_ORIGINAL = KeyMap(
    "segment_anything",
    by_patterns(
        {
            r"blocks\.(\d+)\.mlp\.fc(\d)\.(.*)": r"image_encoder.blocks.\1.mlp.lin\2.\3",
            r"(.*)": r"image_encoder.\1",
        }
    ),
    mend=_encoder_alone,
)
_TRANSFORMERS = KeyMap(
    "transformers",
    by_patterns(
        {
            r"patch_embed\.proj\.(.*)": r"vision_encoder.patch_embed.projection.\1",
            r"blocks\.(\d+)\.norm(\d)\.(.*)": r"vision_encoder.layers.\1.layer_norm\2.\3",
            r"blocks\.(\d+)\.mlp\.fc(\d)\.(.*)": r"vision_encoder.layers.\1.mlp.lin\2.\3",
            r"blocks\.(\d+)\.attn\.(.*)": r"vision_encoder.layers.\1.attn.\2",
            r"neck\.0\.(.*)": r"vision_encoder.neck.conv1.\1",
            r"neck\.1\.(.*)": r"vision_encoder.neck.layer_norm1.\1",
            r"neck\.2\.(.*)": r"vision_encoder.neck.conv2.\1",
            r"neck\.3\.(.*)": r"vision_encoder.neck.layer_norm2.\1",
            r"(.*)": r"vision_encoder.\1",
        }
    ),
    mend=_encoder_alone,
)


class SAMEncoder(Model):
    """A transformer over patches with attention within windows, in some blocks across the image.

    Source: Kirillov et al. 2023, arXiv 2304.02643. Names, order, shapes and start values are those
    of timm's ``VisionTransformerSAM`` without a classifier. The key map ``"segment_anything"`` has
    the names of the paper's code (and MedSAM's), ``"transformers"`` those of Hugging Face's
    ``SamModel``; what belongs to prompts and masks in their files is left out.

    Args:
        image_size: Side of the (square) images. Tables of positions for another size are resampled
            when they are loaded (cubic for the table of places, linear for that of distances).
        patch_size: Side of a patch; divides `image_size`.
        embed_dim: Width of the tokens; a multiple of `num_heads`.
        depth: Number of blocks.
        num_heads: Number of heads in each.
        mlp_ratio: The perceptrons' inner width divided by `embed_dim`.
        window_size: Side of the windows, in patches.
        global_attn_indexes: The blocks whose attention goes across the image.
        neck_chans: Number of output channels.
        in_channels: Number of input channels.
        eps: The normalisations' epsilon: 1e-6 as in the paper's code (timm has 1e-5 in the blocks).

    Shapes:
        ``(batch, in_channels, image_size, image_size)`` gives
        ``(batch, neck_chans, image_size / patch_size, image_size / patch_size)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another size or (the error names ``patch_embed.proj``) number of
            channels.
    """

    stem_paths = ("patch_embed.proj",)
    keymaps = (_ORIGINAL, _TRANSFORMERS)

    def __init__(
        self,
        image_size: int = 1024,
        patch_size: int = 16,
        embed_dim: int = 768,
        depth: int = 12,
        num_heads: int = 12,
        mlp_ratio: float = 4.0,
        window_size: int = 14,
        global_attn_indexes: Sequence[int] = (2, 5, 8, 11),
        neck_chans: int = 256,
        in_channels: int = 3,
        eps: float = 1e-6,
    ) -> None:
        super().__init__()
        nn = self.nn
        positive(
            "SAMEncoder",
            depth=depth,
            num_heads=num_heads,
            window_size=window_size,
            patch_size=patch_size,
        )
        checks.divides(image_size, patch_size, "SAMEncoder: image_size", "patch_size")
        checks.divides(embed_dim, num_heads, "SAMEncoder: embed_dim", "num_heads")
        indices(global_attn_indexes, depth, "global_attn_indexes", "SAMEncoder")
        self.image_size = image_size
        side = image_size // patch_size
        self.pos_embed = nn.Parameter((1, side, side, embed_dim), ZEROS)
        patches = nn.Conv2d(in_channels, embed_dim, patch_size, patch_size)
        self.patch_embed = nn.Sequential({"proj": patches})
        inner = int(embed_dim * mlp_ratio)
        blocks = []
        for number in range(depth):
            window = None if number in global_attn_indexes else window_size
            blocks.append(Block(embed_dim, num_heads, inner, side, window, eps))
        self.blocks = nn.Sequential(*blocks)
        self.neck = nn.Sequential(
            nn.Conv2d(embed_dim, neck_chans, 1, bias=False),
            ChannelNorm(neck_chans, eps),
            nn.Conv2d(neck_chans, neck_chans, 3, padding=1, bias=False),
            ChannelNorm(neck_chans, eps),
        )

    def forward(self, x):
        return self.neck(self.last_stage(x))

    def forward_stages(self, x):
        """Return the patches and each block, ``(batch, embed_dim, *size / patch_size)``."""
        advice = ": pad them, or build it with another image_size, its tables are then resampled"
        has_side(self, x, self.image_size, advice)
        x = self.patch_embed(x)
        stages = {"patches": x}
        x = channels_last(self.nn, x) + self.pos_embed
        for number, block in enumerate(self.blocks):
            x = block(x)
            stages[f"block{number}"] = channels_first(self.nn, x)
        return stages

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Resample the positions of another image size."""
        if value.ndim != len(shape) or value.shape[-1] != shape[-1]:
            return None
        if name == "pos_embed" and value.shape[1] == value.shape[2]:
            return resampled(value[0], shape[1], EDGES)[None]
        if name.endswith((".rel_pos_h", ".rel_pos_w")):
            matrix = geometry.linear_matrix(len(value), shape[0], False, None)
            return (matrix @ value.astype(np.float64)).astype(value.dtype)
        return None


class Block(Network):
    """Attention and a perceptron, each after a normalisation and beside a shortcut.

    Args:
        width, heads, inner: Width of tokens, number of heads, inner width of the perceptron.
        side: Side of the grid of patches.
        window: Side of the windows that attention stays in; None for the whole grid. The grid is
            padded with zeros to whole windows.
        eps: The normalisations' epsilon.

    Shapes:
        ``(batch, side, side, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        inner: int,
        side: int,
        window: int | None,
        eps: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.window = side if window is None else window
        self.norm1 = nn.LayerNorm(width, eps)
        self.attn = Attention(width, heads, self.window)
        self.norm2 = nn.LayerNorm(width, eps)
        self.mlp = Mlp(width, inner)

    def forward(self, x):
        sides = (self.window, self.window)
        x = x + within_windows(self.nn, self.norm1(x), sides, (0, 0), self.attn)
        return x + self.mlp(self.norm2(x))


class Attention(Network):
    """Attention within windows, with a term for rows and columns between two places.

    The term depends on the query: its product with a learned vector for each distance.

    Source: Li et al. 2022, arXiv 2112.01526.

    Shapes:
        ``(batch, windows, side * side, width)`` gives the same.
    """

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        nn = self.nn
        self.heads = heads
        self.side = side
        self.rel_pos_h = nn.Parameter((2 * side - 1, width // heads), ZEROS)
        self.rel_pos_w = nn.Parameter((2 * side - 1, width // heads), ZEROS)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, windows, _):
        nn = self.nn
        # PyTorch's fused attention wants one axis of batches
        tokens = nn.flatten(windows, 0, 1)
        q, k, v = unpacked_heads(nn, self.qkv(tokens), self.heads)
        y = attend_heads(nn, q, k, v, self._bias(q))
        return nn.reshape(self.proj(y), tuple(windows.shape))

    def _bias(self, q):
        """Return the term of the scores, ``(batch * windows, heads, places, places)``."""
        nn = self.nn
        side = self.side
        places = nn.arange(side, like=q)
        # (query, key)
        distance = nn.unsqueeze(places, 1) - nn.unsqueeze(places, 0) + (side - 1)
        batch, heads, _, channels = q.shape
        q = nn.reshape(q, (-1, side, side, channels))
        rows = nn.einsum("bhwc,hkc->bhwk", q, nn.take(self.rel_pos_h, distance))
        columns = nn.einsum("bhwc,wkc->bhwk", q, nn.take(self.rel_pos_w, distance))
        bias = nn.unsqueeze(rows, -1) + nn.unsqueeze(columns, -2)
        return nn.reshape(bias, (batch, heads, side * side, side * side))


# name: (width, blocks, heads, blocks across the image, parameters)
_VARIANTS = {
    "samvit_base_patch16": (768, 12, 12, (2, 5, 8, 11), 89_670_912),
    "samvit_large_patch16": (1024, 24, 16, (5, 11, 17, 23), 308_278_272),
    "samvit_huge_patch16": (1280, 32, 16, (7, 15, 23, 31), 637_026_048),
}

register_each(
    SAMEncoder,
    by_column(("embed_dim", "depth", "num_heads", "global_attn_indexes"), _VARIANTS),
    task="feature extraction",
    source="Kirillov et al. 2023, arXiv 2304.02643; timm VisionTransformerSAM",
    shape=images_of_size,
)
