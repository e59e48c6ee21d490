"""Swin transformers of versions 1 and 2, as torchvision builds them.

They follow the papers. Sizes that no window divides are padded, as in the authors' code for
detection.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.linear import Linear
from deliralike.nn.start import ZEROS, Constant, Normal
from deliralike.zoo import swin_layouts
from deliralike.zoo.blocks import classifier, drop_rates, images, run_stages
from deliralike.zoo.classification.convnext import Permute
from deliralike.zoo.layouts import attend_heads, channels_first, unpacked_heads
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.setting_checks import numbers, paired
from deliralike.zoo.tables import EDGES, resampled_rows
from deliralike.zoo.windows import relative_positions, within_windows


class PatchMerging(Network):
    """Four neighbours side by side, normalised, as one token of twice the width.

    Source: Liu et al. 2021, arXiv 2103.14030, section 3.1; torchvision.

    Shapes:
        ``(batch, height, width, channels)`` gives ``(batch, height / 2, width / 2, 2 * channels)``,
        rounded up.
    """

    start_values = {"reduction.weight": Normal(0.02)}
    normalised: ClassVar[int] = 4  # times the channels

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduction = self.nn.Linear(4 * channels, 2 * channels, bias=False)
        self.norm = self.nn.LayerNorm(self.normalised * channels)

    def forward(self, x):
        return self.reduction(self.norm(self._neighbours(x)))

    def _neighbours(self, x):
        """Bring the channels of four neighbours together: (batch, rows, columns, 4 * channels)."""
        nn = self.nn
        batch, height, width, channels = x.shape
        if height % 2 or width % 2:
            x = nn.pad(x, [(0, height % 2), (0, width % 2), (0, 0)])
        rows = (height + 1) // 2
        columns = (width + 1) // 2
        x = nn.reshape(x, (batch, rows, 2, columns, 2, channels))
        x = nn.permute(x, (0, 1, 3, 4, 2, 5))
        return nn.reshape(x, (batch, rows, columns, 4 * channels))


class PatchMergingV2(PatchMerging):
    """As `PatchMerging`, but normalised after the reduction.

    Source: Liu et al. 2022, arXiv 2111.09883; torchvision.
    """

    normalised = 2

    def forward(self, x):
        return self.norm(self.reduction(self._neighbours(x)))


class WindowAttention(Network):
    """Attention within windows, shifted or not, with a learned bias for each relative position.

    Source: Liu et al. 2021, arXiv 2103.14030, section 3.2; torchvision's
    ``ShiftedWindowAttention``. Windows that are not full are padded with zeros, which take part in
    the attention. Along an axis with one window nothing is shifted.

    Shapes:
        ``(batch, height, width, channels)`` gives the same.
    """

    start_values = {
        "qkv.weight": Normal(0.02),
        "qkv.bias": ZEROS,
        "proj.weight": Normal(0.02),
        "proj.bias": ZEROS,
    }

    def __init__(
        self,
        channels: int,
        window: int,
        shift: int,
        heads: int,
        dropout: float,
        attention_dropout: float,
        pretrained_window: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        checks.divides(
            channels, heads, "SwinTransformer: width of a stage", "num_heads"
        )
        self.window, self.shift, self.heads = window, shift, heads
        self.pretrained_window = pretrained_window
        self.sides = (window, window)
        self._make_positions()
        self._make_layers(channels)
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.dropout = nn.Dropout(dropout)

    def _make_positions(self) -> None:
        nn = self.nn
        offsets = (2 * self.window - 1) ** 2
        self.relative_position_bias_table = nn.Parameter(
            (offsets, self.heads), Normal(0.02)
        )
        self.relative_position_index = nn.Buffer(relative_positions(self.sides).ravel())

    def _make_layers(self, channels: int) -> None:
        self.qkv = self.nn.Linear(channels, 3 * channels)
        self.proj = self.nn.Linear(channels, channels)

    def tables(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state that follow from the window alone."""
        return {"relative_position_index": relative_positions(self.sides).ravel()}

    def forward(self, x):
        shift = [self.shift if size > self.window else 0 for size in x.shape[1:3]]
        return within_windows(self.nn, x, self.sides, shift, self._attended)

    def _attended(self, x, mask):
        bias = self._bias()
        if mask is not None:
            bias = bias + mask
        # (batch, windows, tokens, channels)
        return self.dropout(self.proj(self._attend(x, bias)))

    def _attend(self, x, bias):
        nn = self.nn
        query, key, value = unpacked_heads(nn, self.qkv(x), self.heads)
        query, key, scale = self._scaled(query, key)
        dropout = self.attention_dropout
        return attend_heads(nn, query, key, value, bias, dropout, scale)

    def _scaled(self, query, key):
        """Return queries, keys, and the factor of their products; None for the usual one."""
        return query, key, None

    def _offsets(self):
        """Return the term of each relative position: ((2 * window - 1) ** 2, heads)."""
        return self.relative_position_bias_table

    def _bias(self):
        """Return the term of the scores: (heads, tokens, tokens)."""
        nn = self.nn
        tokens = self.window**2
        bias = nn.select(self._offsets(), self.relative_position_index, 0)
        return nn.permute(nn.reshape(bias, (tokens, tokens, self.heads)), (2, 0, 1))


class LinearWithoutKeyBias(Linear):
    """Queries, keys and values, of which the keys' part of the bias is not used."""

    def forward(self, x):
        used = np.repeat([1.0, 0.0, 1.0], self.out_features // 3)
        bias = self.bias * self.nn.constant(used, like=x)
        return self.nn.linear(x, self.weight, bias)


class WindowAttentionV2(WindowAttention):
    """Cosine attention within windows; a perceptron gives the bias of each relative position.

    Source: Liu et al. 2022, arXiv 2111.09883, section 3; torchvision's
    ``ShiftedWindowAttentionV2``. Cosines are scaled by a factor for each head, at most 100.
    Positions grow logarithmically, relative to the window's side or `pretrained_window`.

    Shapes:
        ``(batch, height, width, channels)`` gives the same.
    """

    start_values = {
        **WindowAttention.start_values,
        "cpb_mlp.?.weight": Normal(0.02),
        "cpb_mlp.0.bias": ZEROS,
    }

    def _make_positions(self) -> None:
        nn = self.nn
        self.logit_scale = nn.Parameter((self.heads, 1, 1), Constant(math.log(10.0)))
        tables = self.tables()
        self.relative_coords_table = nn.Buffer(tables["relative_coords_table"])
        self.relative_position_index = nn.Buffer(tables["relative_position_index"])

    def _make_layers(self, channels: int) -> None:
        nn = self.nn
        self.qkv = LinearWithoutKeyBias(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.cpb_mlp = nn.Sequential(
            nn.Linear(2, 512), nn.ReLU(), nn.Linear(512, self.heads, bias=False)
        )

    def tables(self) -> dict[str, np.ndarray]:
        """Return the arrays of the state that follow from the windows alone."""
        coordinates = _relative_coordinates(self.window, self.pretrained_window)
        return {**super().tables(), "relative_coords_table": coordinates}

    def _scaled(self, query, key):
        nn = self.nn
        factor = nn.exp(nn.clamp(self.logit_scale, -math.inf, math.log(100.0)))
        return nn.normalize(query, dim=-1) * factor, nn.normalize(key, dim=-1), 1.0

    def _offsets(self):
        offsets = self.cpb_mlp(self.relative_coords_table)
        return 16.0 * self.nn.sigmoid(self.nn.reshape(offsets, (-1, self.heads)))


class SwinBlock(Network):
    """Window attention and a perceptron, each after a normalisation and beside a shortcut.

    Source: Liu et al. 2021, arXiv 2103.14030, figure 3b; torchvision.

    Shapes:
        ``(batch, height, width, channels)`` gives the same.
    """

    start_values = {"mlp.?.weight": Normal(0.02), "mlp.?.bias": ZEROS}
    attention: ClassVar[type[WindowAttention]] = WindowAttention

    def __init__(
        self,
        channels: int,
        heads: int,
        window: int,
        shift: int,
        mlp_ratio: float,
        dropout: float,
        attention_dropout: float,
        stochastic_depth: float,
        pretrained_window: int,
    ) -> None:
        super().__init__()
        nn = self.nn
        inner = int(channels * mlp_ratio)
        self.norm1 = nn.LayerNorm(channels)
        self.attn = self.attention(
            channels,
            window,
            shift,
            heads,
            dropout,
            attention_dropout,
            pretrained_window,
        )
        self.drop_path1 = nn.DropPath(stochastic_depth)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, inner),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(inner, channels),
            nn.Dropout(dropout),
        )
        self.drop_path2 = nn.DropPath(stochastic_depth)

    def forward(self, x):
        x = x + self.drop_path1(self.attn(self.norm1(x)))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class SwinBlockV2(SwinBlock):
    """As `SwinBlock`, but with cosine attention, and each normalisation ends its branch.

    Source: Liu et al. 2022, arXiv 2111.09883, figure 1; torchvision.

    Shapes:
        ``(batch, height, width, channels)`` gives the same.
    """

    attention = WindowAttentionV2

    def forward(self, x):
        x = x + self.drop_path1(self.norm1(self.attn(x)))
        return x + self.drop_path2(self.norm2(self.mlp(x)))


_VERSIONS = {1: (SwinBlock, PatchMerging), 2: (SwinBlockV2, PatchMergingV2)}


class SwinTransformer(Model):
    """A transformer of shifted windows, which halves the size between stages.

    Source: Liu et al. 2021, arXiv 2103.14030; version 2: Liu et al. 2022, arXiv 2111.09883. Names,
    order, shapes and start values are those of ``torchvision.models.swin_transformer``; the key map
    ``"timm"`` has timm's names and Microsoft's.

    Args:
        patch_size: Side of a patch.
        embed_dim: Width of the first stage's tokens; each stage doubles it.
        depths: The number of blocks in each stage; every second one shifts its windows.
        num_heads: The number of heads in each stage.
        window_size: Side of a window, or that in each stage. A bias table for another one is
            resampled when it is loaded; version 2 has none.
        mlp_ratio: How many times wider the hidden layer in each block is.
        dropout, attention_dropout: Probabilities of dropping elements of the tokens and of the
            attention weights.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features.
        in_channels: Number of input channels.
        version: 1, or 2 for cosine attention, a perceptron over positions, and normalisation at the
            end of branches.
        pretrained_window_size: For version 2, the side of the window (or that in each stage) of the
            training in which the perceptron over positions was learned, where it is another one.

    Shapes:
        ``(batch, in_channels, height, width)`` gives ``(batch, num_classes)``; the size is divided
        by `patch_size`, rounding down, then halved between stages, rounding up.

    Raises:
        SettingError: A setting makes no sense.
        ShapeError: The input has another number of axes or channels or is smaller than a patch; the
            error names ``features.0.0``.
    """

    stem_paths = ("features.0.0",)
    head_paths = ("head",)
    can_stop = True
    keymaps = (swin_layouts.TIMM,)

    def __init__(
        self,
        patch_size: int = 4,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int | Sequence[int] = 7,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.2,
        num_classes: int = 1000,
        in_channels: int = 3,
        version: int = 1,
        pretrained_window_size: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        depths, num_heads = paired(
            "SwinTransformer", depths=depths, num_heads=num_heads
        )
        windows = _windows(window_size, len(depths), "window_size")
        pretrained = windows
        if pretrained_window_size is not None:
            pretrained = _windows(
                pretrained_window_size, len(depths), "pretrained_window_size"
            )
        block, merging = _kinds(version, pretrained_window_size)
        nn = self.nn
        chances = drop_rates(stochastic_depth, depths)
        patches = nn.Conv2d(in_channels, embed_dim, patch_size, patch_size)
        features = [
            nn.Sequential(patches, Permute((0, 2, 3, 1)), nn.LayerNorm(embed_dim))
        ]
        options: dict[str, Any] = {
            "mlp_ratio": mlp_ratio,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
        }
        for stage, (rates, heads) in enumerate(zip(chances, num_heads, strict=True)):
            width = embed_dim * 2**stage
            window = windows[stage]
            options["pretrained_window"] = pretrained[stage]
            if stage:
                features.append(merging(width // 2))
            blocks = []
            for i, rate in enumerate(rates):
                shift = window // 2 if i % 2 else 0
                blocks.append(
                    block(width, heads, window, shift, stochastic_depth=rate, **options)
                )
            features.append(nn.Sequential(*blocks))
        self.features = nn.Sequential(*features)
        self.norm = nn.LayerNorm(width)
        self.head = classifier(nn, width, num_classes, "SwinTransformer")

    start_values = {"head.weight": Normal(0.02), "head.bias": ZEROS}

    def forward(self, x):
        x = self.norm(self.features(x))  # (batch, height, width, channels)
        return self.head(self.nn.mean(x, (1, 2)))

    def forward_stages(self, x, until=None):
        """Return the patches and each stage, ``stage1`` …, the last one not yet normalised.

        Each is ``(batch, channels, *size)``.
        """
        ends = [("patches", 1)]
        for i in range(1, len(self.features) // 2 + 1):
            ends.append((f"stage{i}", 2 * i))
        stages = run_stages(self.features, x, ends, until)
        return {name: channels_first(self.nn, stage) for name, stage in stages.items()}

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Resample the bias table of another window.

        The interpolation is cubic with the cells' edges in place, as in Microsoft's code.
        """
        is_table = name.endswith("relative_position_bias_table") and value.ndim == 2
        if not is_table or value.shape[1] != shape[1]:
            return None
        return resampled_rows(value, shape[0], EDGES)

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Add the tables of this network that follow from its windows.

        timm's files lack them.
        """
        own = {}
        for path, block in self.named_blocks():
            if (
                not isinstance(block, WindowAttention)
                or f"{path}.qkv.weight" not in state
            ):
                continue
            for name, table in block.tables().items():
                own[f"{path}.{name}"] = table
        return {**state, **own}


def _relative_coordinates(window: int, pretrained: int) -> np.ndarray:
    """Return the logarithmic coordinates of all relative positions.

    They are ``(1, 2 * window - 1, 2 * window - 1, 2)``. The farthest ones within a window of side
    `pretrained` have about 1.
    """
    steps = np.arange(1 - window, window) * (8.0 / max(1, pretrained - 1))
    steps = np.sign(steps) * np.log2(np.abs(steps) + 1.0) / 3.0
    return np.stack(np.meshgrid(steps, steps, indexing="ij"), axis=-1)[None]


def _windows(sides: int | Sequence[int], stages: int, name: str) -> tuple[int, ...]:
    """Return the side of the windows in each stage."""
    if isinstance(sides, int):
        sides = (sides,) * stages
    return numbers(sides, name, "SwinTransformer", count=stages)


def _kinds(version: int, pretrained: Any) -> tuple[type[SwinBlock], type[PatchMerging]]:
    """Return the kinds of blocks and of merging of a version."""
    if version not in _VERSIONS:
        raise SettingError(f"SwinTransformer: version={version!r}; wanted 1 or 2")
    if version == 1 and pretrained is not None:
        raise SettingError(
            f"SwinTransformer: pretrained_window_size={pretrained!r} needs version=2; the bias "
            "tables of version 1 are resampled when they are loaded"
        )
    return _VERSIONS[version]


_V1 = "Liu et al. 2021, arXiv 2103.14030; torchvision"
_V2 = "Liu et al. 2022, arXiv 2111.09883; torchvision"
_T = {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
_S = {"embed_dim": 96, "depths": (2, 2, 18, 2), "num_heads": (3, 6, 12, 24)}
_B = {"embed_dim": 128, "depths": (2, 2, 18, 2), "num_heads": (4, 8, 16, 32)}
_SECOND = {"window_size": 8, "version": 2}

# name: (settings, stochastic depth, side of the images, parameters, source)
_VARIANTS = {
    "swin_t": (_T, 0.2, 224, 28_288_354, _V1),
    "swin_s": (_S, 0.3, 224, 49_606_258, _V1),
    "swin_b": (_B, 0.5, 224, 87_768_224, _V1),
    "swin_v2_t": (_T | _SECOND, 0.2, 256, 28_351_570, _V2),
    "swin_v2_s": (_S | _SECOND, 0.3, 256, 49_737_442, _V2),
    "swin_v2_b": (_B | _SECOND, 0.5, 256, 87_930_848, _V2),
}

for _name, (_settings, _chance, _side, _parameters, _source) in _VARIANTS.items():
    register(
        SwinTransformer,
        name=_name,
        variant=_settings | {"stochastic_depth": _chance},
        source=_source,
        shape=images(_side),
        parameters=_parameters,
    )
