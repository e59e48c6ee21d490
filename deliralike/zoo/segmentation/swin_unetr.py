"""Swin UNETR in 2 and 3 dimensions: shifted windows down, convolutions up, as in MONAI.

It follows the paper. MONAI 0.9 took two of the eight parts that a patch merging joins twice and two
never; weights of that time want ``downsample="merging0.9"``.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn import checks, geometry
from deliralike.nn.geometry import Sizes
from deliralike.nn.start import Normal
from deliralike.zoo import medical
from deliralike.zoo.blocks import by_dims, drop_rates
from deliralike.zoo.layouts import (
    attend_heads,
    channels_first,
    channels_last,
    unpacked_heads,
)
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.segmentation.dynunet import OutBlock, UpBlock
from deliralike.zoo.segmentation.unetr import MLP, ConvLayer
from deliralike.zoo.setting_checks import numbers, one_of
from deliralike.zoo.windows import relative_positions, within_windows

# The neighbours that merge in 3 dimensions, in order. MONAI's first version, from 0.9 on, took two
# of the eight twice and left two out; published weights are made with it. Later its "merging" takes
# each once, but in another order than "mergingv2".
MERGINGS = {
    "merging": (
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 0),
        (1, 0, 1),
        (0, 1, 1),
        (1, 1, 1),
    ),
    "mergingv2": tuple(product(range(2), repeat=3)),
    "merging0.9": (
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 0, 1),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 1),
    ),
}


class SwinUNETR(Model):
    """Four stages of attention within shifted windows, and convolutions on the way up.

    The output of each stage joins the way up through convolutions.

    Source: Hatamizadeh et al. 2022, arXiv 2201.01266; version 2: He et al. 2023, doi
    10.1007/978-3-031-43901-8_40. Names, order, shapes and start values are those of MONAI's
    ``SwinUNETR``. Patches have a side of 2: no other side fits the five steps up.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        feature_size: The width of the first stage's tokens, which each stage doubles.
        depths: The number of blocks in each of the four stages; every second one shifts its
            windows.
        num_heads: The number of attention heads in each stage.
        window_size: The windows' size, one number or one for each axis.
        mlp_ratio: How many times wider the inner layer of each block's perceptron is.
        norm: Of the convolutions: ``"instance"`` (without scale and shift), ``"batch"`` or
            ``"group"``.
        dropout: Probability of dropping an element of the tokens in training.
        attention_dropout: The same for the attention weights.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        dims: Number of spatial axes: 2 or 3.
        downsample: The order of the neighbours that merge between stages, in 3 dimensions:
            ``"merging"``, ``"mergingv2"`` or, for weights of that time, ``"merging0.9"``, which
            takes two of them twice.
        use_v2: Whether a residual block of convolutions comes before each stage.

    Shapes:
        ``(batch, in_channels, *size)`` gives ``(batch, out_channels, *size)``; the sizes must be
        multiples of 32.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: A size is no such multiple, or the coarsest stage would have a single element
            (the error names it); or the input has another number of axes or channels (the error
            names the layer).
    """

    head_paths = ("out.conv.conv",)
    outputs = "out_channels"

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 14,
        feature_size: int = 48,
        depths: Sequence[int] = (2, 2, 2, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: Sizes = 7,
        mlp_ratio: float = 4.0,
        norm: str = "instance",
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.0,
        dims: int = 3,
        downsample: str = "merging",
        use_v2: bool = False,
    ) -> None:
        super().__init__()
        one_of(downsample, MERGINGS, "downsample", "SwinUNETR")
        width = feature_size
        options: dict[str, Any] = {
            "dims": dims,
            "norm": norm,
            "affine": False,
            "res_block": True,
        }
        self.factors = (32,) * dims
        self.several = norm == "instance"
        block_options = {
            "mlp_ratio": mlp_ratio,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
        }
        self.swinViT = SwinTransformer(
            in_channels,
            width,
            numbers(depths, "depths", "SwinUNETR", count=4),
            numbers(num_heads, "num_heads", "SwinUNETR", count=4),
            geometry.steps(window_size, dims, "window_size"),
            use_v2,
            stochastic_depth,
            dropout,
            block_options,
            downsample,
        )
        self.encoder1 = ConvLayer(in_channels, width, **options)
        self.encoder2 = ConvLayer(width, width, **options)
        self.encoder3 = ConvLayer(2 * width, 2 * width, **options)
        self.encoder4 = ConvLayer(4 * width, 4 * width, **options)
        self.encoder10 = ConvLayer(16 * width, 16 * width, **options)
        self.decoder5 = UpBlock(16 * width, 8 * width, 3, 2, **options)
        self.decoder4 = UpBlock(8 * width, 4 * width, 3, 2, **options)
        self.decoder3 = UpBlock(4 * width, 2 * width, 3, 2, **options)
        self.decoder2 = UpBlock(2 * width, width, 3, 2, **options)
        self.decoder1 = UpBlock(width, width, 3, 2, **options)
        self.out = OutBlock(width, out_channels, dims)

    @property
    def stem_paths(self) -> tuple[str, ...]:  # type: ignore[override]
        """The patches, and the finest level's block with its shortcut."""
        paths = ("swinViT.patch_embed.proj", "encoder1.layer.conv1.conv")
        if hasattr(self.encoder1.layer, "conv3"):
            return (*paths, "encoder1.layer.conv3.conv")
        return paths

    def forward(self, x):
        return self.out(self.forward_stages(x)["decoder1"])

    def forward_stages(self, x):
        """Return the transformer's stages, and those of the way up.

        The former are ``(batch, feature_size * 2**i, *size / 2**(i + 1))``.
        """
        medical.divides(self, x, self.factors, "encoder10", self.several)
        names = ("patch_embed", "layers1", "layers2", "layers3", "layers4")
        hidden = [self._normalised(stage) for stage in self.swinViT(x)]
        stages = {
            f"swinViT.{name}": stage for name, stage in zip(names, hidden, strict=True)
        }
        skips = [
            self.encoder1(x),
            self.encoder2(hidden[0]),
            self.encoder3(hidden[1]),
            self.encoder4(hidden[2]),
            hidden[3],
        ]
        x = self.encoder10(hidden[4])
        stages["encoder10"] = x
        for i in (5, 4, 3, 2, 1):
            x = getattr(self, f"decoder{i}")(x, skips.pop())
            stages[f"decoder{i}"] = x
        return stages

    def _normalised(self, x):
        """Normalise each element over its channels, without scale and shift."""
        nn = self.nn
        y = nn.layer_norm(channels_last(nn, x), (x.shape[1],))
        return channels_first(nn, y)

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Add the index tables of this network, which follow from its window."""
        own = {}
        for path, block in self.named_blocks():
            if not isinstance(block, WindowAttention):
                continue
            if f"{path}.relative_position_bias_table" in state:
                own[f"{path}.relative_position_index"] = relative_positions(
                    block.window_size
                )
        return {**state, **own}


class SwinTransformer(Network):
    """Patches, then four stages, each of which halves the size.

    It returns the outputs of all five.

    Source: Liu et al. 2021, arXiv 2103.14030; MONAI's ``SwinTransformer``.

    Shapes:
        ``(batch, in_channels, *size)`` gives five times
        ``(batch, width * 2**i, *size / 2**(i + 1))``.
    """

    def __init__(
        self,
        in_channels: int,
        width: int,
        depths: Sequence[int],
        heads: Sequence[int],
        window: tuple[int, ...],
        use_v2: bool,
        stochastic_depth: float,
        dropout: float,
        options: Mapping[str, Any],
        downsample: str,
    ) -> None:
        super().__init__()
        nn = self.nn
        chances = drop_rates(stochastic_depth, depths)
        self.use_v2 = bool(use_v2)
        patches = by_dims(nn, len(window), "Conv")(in_channels, width, 2, 2)
        self.patch_embed = nn.Sequential({"proj": patches})
        self.pos_drop = nn.Dropout(dropout)
        for i, (rates, count) in enumerate(zip(chances, heads, strict=True)):
            stage = Stage(width * 2**i, count, window, rates, downsample, **options)
            setattr(self, f"layers{i + 1}", nn.ModuleList([stage]))
        if use_v2:
            convs = {
                "dims": len(window),
                "norm": "instance",
                "affine": False,
                "res_block": True,
            }
            for i in range(4):
                layer = ConvLayer(width * 2**i, width * 2**i, **convs)
                setattr(self, f"layers{i + 1}c", nn.ModuleList([layer]))

    def forward(self, x):
        x = self.pos_drop(self.patch_embed(x))
        stages = [x]
        for i in range(1, 5):
            if self.use_v2:
                x = getattr(self, f"layers{i}c")[0](x)
            x = getattr(self, f"layers{i}")[0](x)
            stages.append(x)
        return stages


class Stage(Network):
    """Blocks, every second one with shifted windows, and the merging of neighbours.

    Shapes:
        ``(batch, width, *size)`` gives ``(batch, 2 * width, *size / 2)``, rounded up.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        window: tuple[int, ...],
        chances: Sequence[float],
        downsample: str,
        **options: Any,
    ) -> None:
        super().__init__()
        blocks = []
        for i, chance in enumerate(chances):
            shift = tuple(side // 2 if i % 2 else 0 for side in window)
            blocks.append(SwinBlock(width, heads, window, shift, chance, **options))
        self.blocks = self.nn.ModuleList(blocks)
        self.downsample = PatchMerging(width, len(window), downsample)

    def forward(self, x):
        x = channels_last(self.nn, x)
        for block in self.blocks:
            x = block(x)
        return channels_first(self.nn, self.downsample(x))


class SwinBlock(Network):
    """Window attention and a perceptron, each behind a normalisation and beside a shortcut.

    Shapes:
        ``(batch, *size, width)`` gives the same.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        window: tuple[int, ...],
        shift: tuple[int, ...],
        chance: float,
        *,
        mlp_ratio: float,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.window, self.shift = window, shift
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, heads, window, dropout, attention_dropout)
        self.drop_path = nn.DropPath(chance)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = MLP(width, int(width * mlp_ratio), dropout)

    def forward(self, x):
        x = x + self.drop_path(self.attend(self.norm1(x)))
        return x + self.drop_path(self.mlp(self.norm2(x)))

    def attend(self, x):
        """Attend within windows, shifted along the axes that have several."""
        window, shift = _fitted(x.shape[1:-1], self.window, self.shift)
        return within_windows(self.nn, x, window, shift, self.attn)


class WindowAttention(Network):
    """Attention of a window's tokens to each other, with a learned bias for each relative position.

    Shapes:
        ``(batch, windows, tokens, width)`` gives the same.
    """

    start_values = {"relative_position_bias_table": Normal(0.02)}

    def __init__(
        self,
        width: int,
        heads: int,
        window: tuple[int, ...],
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        nn = self.nn
        checks.divides(width, heads, "SwinUNETR: the width of a stage", "num_heads")
        self.window_size, self.num_heads = window, heads
        rows = math.prod(2 * side - 1 for side in window)
        self.relative_position_bias_table = nn.Parameter((rows, heads), Normal(0.02))
        self.relative_position_index = nn.Buffer(relative_positions(window))
        self.qkv = nn.Linear(width, 3 * width)
        self.attn_drop = nn.Dropout(attention_dropout)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        nn = self.nn
        tokens = x.shape[-2]
        # Windows that an image is too small for are cut, but MONAI takes the first rows and columns
        # of the whole window's table, which are not those of the tokens' own positions.
        index = self.relative_position_index[:tokens, :tokens]
        bias = nn.select(self.relative_position_bias_table, index, 0)
        bias = nn.permute(bias, (2, 0, 1))  # (heads, tokens, tokens)
        if mask is not None:
            bias = bias + mask
        query, key, value = unpacked_heads(nn, self.qkv(x), self.num_heads)
        y = attend_heads(nn, query, key, value, bias, self.attn_drop)
        return self.proj_drop(self.proj(y))


class PatchMerging(Network):
    """Neighbours side by side, normalised, as one token of twice the width.

    Shapes:
        ``(batch, *size, width)`` gives ``(batch, *size / 2, 2 * width)``, rounded up.
    """

    def __init__(self, width: int, dims: int, downsample: str) -> None:
        super().__init__()
        nn = self.nn
        self.corners = _corners(dims, downsample)
        self.reduction = nn.Linear(2**dims * width, 2 * width, bias=False)
        self.norm = nn.LayerNorm(2**dims * width)

    def forward(self, x):
        nn = self.nn
        size = x.shape[1:-1]
        if any(n % 2 for n in size):
            x = nn.pad(x, [*((0, n % 2) for n in size), (0, 0)])
        corners = []
        for corner in self.corners:
            every_second = [slice(start, None, 2) for start in corner]
            corners.append(x[(slice(None), *every_second)])
        x = nn.concatenate(corners, dim=-1)  # (batch, *size / 2, 2**dims * width)
        return self.reduction(self.norm(x))


def _corners(dims: int, downsample: str) -> tuple[tuple[int, ...], ...]:
    """Return which of the neighbours merge, in order.

    In two dimensions the reference takes the last axis first.
    """
    if dims == 2:
        return tuple((down, right) for right, down in product(range(2), repeat=2))
    return MERGINGS[downsample]


def _fitted(
    size: Sequence[int], window: Sequence[int], shift: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the window and shift for a size.

    No window is longer than its axis, and nothing is shifted along an axis with a single window.
    """
    sides = []
    steps = []
    for n, side, step in zip(size, window, shift, strict=True):
        sides.append(min(n, side))
        steps.append(0 if n <= side else step)
    return sides, steps


_SOURCE = "MONAI SwinUNETR, as its tutorial on abdominal organs sets it"
_PAPERS = {
    "swin_unetr": "Hatamizadeh et al. 2022, arXiv 2201.01266",
    "swin_unetr_v2": "He et al. 2023, doi 10.1007/978-3-031-43901-8_40",
}

for _name, _paper in _PAPERS.items():
    register(
        SwinUNETR,
        name=_name,
        variant={"use_v2": _name == "swin_unetr_v2"},
        task="segmentation",
        dims=(2, 3),
        source=f"{_paper}; {_SOURCE}",
        shape=medical.volume((0, 256, 96)),
    )
