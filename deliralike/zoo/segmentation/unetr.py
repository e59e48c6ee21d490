"""UNETR: a vision transformer down, convolutions up, in 1, 2 and 3 dimensions, as MONAI builds it.

It follows the paper.
"""

import math
from typing import Any

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.layers.containers import Sequential
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import by_dims, each_output
from deliralike.zoo.layouts import (
    as_grid,
    as_tokens,
    attend_heads,
    unpacked_heads,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.segmentation.dynunet import Block, Conv, OutBlock, UpBlock

# the reference has no other: four steps up lead from patches to elements
PATCH = 16
LAYERS = 12


class UNETR(Model):
    """A U-Net whose way down is twelve transformer blocks on patches.

    The output of every third block is brought to the sizes of the way up.

    Source: Hatamizadeh et al. 2022, arXiv 2103.10504. Names, order, shapes and start values are
    those of MONAI's ``UNETR``.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        img_size: The inputs' size, one number or one for each axis: multiples of 16, the side of a
            patch.
        feature_size: The width of the finest level.
        hidden_size: The width of the tokens; a multiple of `num_heads`.
        mlp_dim: The inner width of each block's perceptron.
        num_heads: The number of attention heads.
        norm: ``"instance"`` (without scale and shift), ``"batch"`` or ``"group"``.
        dropout: Probability of dropping an element of tokens and attention weights in training.
        dims: Number of spatial axes: 1, 2 or 3.

    Shapes:
        ``(batch, in_channels, *img_size)`` gives ``(batch, out_channels, *img_size)``.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another size, or another number of axes or channels (the error
            names the layer).
    """

    stem_paths = (
        "vit.patch_embedding.patch_embeddings",
        "encoder1.layer.conv1.conv",
        "encoder1.layer.conv3.conv",
    )
    head_paths = ("out.conv.conv",)
    outputs = "out_channels"
    # attention across sequences, which MONAI's files had for a while, unused
    ignored_names = r"\.cross_attn\."

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 14,
        img_size: Sizes = 96,
        feature_size: int = 16,
        hidden_size: int = 768,
        mlp_dim: int = 3072,
        num_heads: int = 12,
        norm: str = "instance",
        dropout: float = 0.0,
        dims: int = 3,
    ) -> None:
        super().__init__()
        by_dims(self.nn, dims, "Conv")
        size = geometry.steps(img_size, dims, "img_size")
        if any(n % PATCH for n in size):
            raise SettingError(
                f"UNETR: img_size={img_size!r}; wanted multiples of {PATCH}, the side of a patch"
            )
        checks.positive(num_heads, "num_heads", "UNETR")
        checks.divides(hidden_size, num_heads, "UNETR: hidden_size", "num_heads")
        width, wide = feature_size, hidden_size
        options: dict[str, Any] = {
            "dims": dims,
            "norm": norm,
            "affine": False,
            "res_block": True,
        }
        self.img_size = size
        self.grid = tuple(n // PATCH for n in size)
        self.vit = ViT(
            in_channels,
            self.grid,
            wide,
            mlp_dim,
            num_heads,
            dropout,
        )
        self.encoder1 = ConvLayer(in_channels, width, **options)
        self.encoder2 = ProjectedUp(wide, 2 * width, 2, **options)
        self.encoder3 = ProjectedUp(wide, 4 * width, 1, **options)
        self.encoder4 = ProjectedUp(wide, 8 * width, 0, **options)
        self.decoder5 = UpBlock(wide, 8 * width, 3, 2, **options)
        self.decoder4 = UpBlock(8 * width, 4 * width, 3, 2, **options)
        self.decoder3 = UpBlock(4 * width, 2 * width, 3, 2, **options)
        self.decoder2 = UpBlock(2 * width, width, 3, 2, **options)
        self.out = OutBlock(width, out_channels, dims)

    def forward(self, x):
        return self.out(self.forward_stages(x)["decoder2"])

    def forward_stages(self, x):
        """Return tokens after every third block, the levels beside the way up, and the way up.

        Tokens are images of patches.
        """
        if tuple(x.shape[2:]) != tuple(self.img_size):
            raise ShapeError(
                f"UNETR: got an input of shape {tuple(x.shape)}, wanted the size "
                f"{tuple(self.img_size)}: the position table in 'vit.patch_embedding' is made for "
                "it, set img_size"
            )
        every, last = self.vit(x)
        stages = {f"vit.blocks.{i}": self._image(every[i]) for i in (3, 6, 9)}
        stages["vit.norm"] = self._image(last)
        stages["encoder1"] = self.encoder1(x)
        for i, block in ((2, 3), (3, 6), (4, 9)):
            stages[f"encoder{i}"] = getattr(self, f"encoder{i}")(
                stages[f"vit.blocks.{block}"]
            )
        x = stages["vit.norm"]
        for i in (5, 4, 3, 2):
            x = getattr(self, f"decoder{i}")(x, stages[f"encoder{i - 1}"])
            stages[f"decoder{i}"] = x
        return stages

    def _image(self, tokens):
        """Lay out tokens as an image: ``(batch, hidden_size, *grid)``."""
        return as_grid(self.nn, tokens, self.grid)


class ViT(Network):
    """A vision transformer without a head.

    It returns the tokens after each block, and those of the last block normalised.

    Source: Dosovitskiy et al. 2021, arXiv 2010.11929; MONAI's ``ViT``.

    Shapes:
        ``(batch, in_channels, *size)`` gives a list of ``(batch, tokens, hidden_size)`` and another
        one of these.
    """

    def __init__(
        self,
        in_channels: int,
        grid: tuple[int, ...],
        hidden_size: int,
        mlp_dim: int,
        num_heads: int,
        dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.patch_embedding = PatchEmbedding(in_channels, grid, hidden_size, dropout)
        settings = (hidden_size, mlp_dim, num_heads, dropout)
        self.blocks = nn.ModuleList(
            [TransformerBlock(*settings) for _ in range(LAYERS)]
        )
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, x):
        x = self.patch_embedding(x)
        every = each_output(x, self.blocks)
        return every, self.norm(every[-1])


class PatchEmbedding(Network):
    """Patches as tokens, and a learned vector for each position added.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, tokens, hidden_size)``.
    """

    start_values = {"position_embeddings": Normal(0.02)}

    def __init__(
        self, in_channels: int, grid: tuple[int, ...], hidden_size: int, dropout: float
    ) -> None:
        super().__init__()
        nn = self.nn
        shape = (1, math.prod(grid), hidden_size)
        self.position_embeddings = nn.Parameter(shape, ZEROS)
        conv = by_dims(nn, len(grid), "Conv")
        self.patch_embeddings = conv(in_channels, hidden_size, PATCH, PATCH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = as_tokens(self.nn, self.patch_embeddings(x))
        return self.dropout(x + self.position_embeddings)


class TransformerBlock(Network):
    """Attention and a perceptron, each after a normalisation and beside a shortcut.

    The shape stays.
    """

    def __init__(
        self, hidden_size: int, mlp_dim: int, num_heads: int, dropout: float
    ) -> None:
        super().__init__()
        nn = self.nn
        self.mlp = MLP(hidden_size, mlp_dim, dropout)
        self.norm1 = nn.LayerNorm(hidden_size)
        self.attn = SelfAttention(hidden_size, num_heads, dropout)
        self.norm2 = nn.LayerNorm(hidden_size)
        # never used, but in MONAI's files
        self.norm_cross_attn = nn.LayerNorm(hidden_size)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MLP(Sequential):
    """Two linear maps, GELU between them; the shape stays."""

    def __init__(self, hidden_size: int, mlp_dim: int, dropout: float) -> None:
        nn = self.nn
        layers = {
            "linear1": nn.Linear(hidden_size, mlp_dim),
            "fn": nn.GELU(),
            "drop1": nn.Dropout(dropout),
            "linear2": nn.Linear(mlp_dim, hidden_size),
            "drop2": nn.Dropout(dropout),
        }
        super().__init__(layers)


class SelfAttention(Network):
    """Attention of tokens to each other; ``(batch, tokens, hidden_size)`` gives the same."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        nn = self.nn
        self.num_heads = num_heads
        self.out_proj = nn.Linear(hidden_size, hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size, bias=False)
        self.drop_output = nn.Dropout(dropout)
        self.drop_weights = nn.Dropout(dropout)

    def forward(self, x):
        nn = self.nn
        query, key, value = unpacked_heads(nn, self.qkv(x), self.num_heads)
        x = attend_heads(nn, query, key, value, dropout=self.drop_weights)
        return self.drop_output(self.out_proj(x))


class ConvLayer(Sequential):
    """A block of convolutions under the name ``layer``.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``.
    """

    def __init__(self, in_channels: int, out_channels: int, **options: Any) -> None:
        super().__init__({"layer": Block(in_channels, out_channels, **options)})


class ProjectedUp(Sequential):
    """A transposed convolution, and `count` more of them, each with a block of convolutions.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size * 2 ** (1 + count))``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        count: int,
        **options: Any,
    ) -> None:
        nn = self.nn
        dims = options["dims"]
        first = Conv(in_channels, out_channels, 2, 2, dims, transposed=True)
        blocks = []
        for _ in range(count):
            up = Conv(out_channels, out_channels, 2, 2, dims, transposed=True)
            block = Block(out_channels, out_channels, **options)
            blocks.append(nn.Sequential(up, block))
        layers = {"transp_conv_init": first, "blocks": nn.Sequential(*blocks)}
        super().__init__(layers)


register(
    UNETR,
    name="unetr",
    task="segmentation",
    dims=(1, 2, 3),
    source=(
        "Hatamizadeh et al. 2022, arXiv 2103.10504; MONAI UNETR, as its tutorial on abdominal "
        "organs sets it"
    ),
    shape=lambda s: (
        s["in_channels"],
        *geometry.steps(s["img_size"], s["dims"], "img_size"),
    ),
)
