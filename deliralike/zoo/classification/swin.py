"""Swin transformers (version 1), as torchvision builds them.

They follow the paper. Sizes that no window divides are padded, as in the authors' code for
detection.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import ZEROS, Normal
from deliralike.zoo.blocks import classifier, images, run_stages
from deliralike.zoo.classification.convnext import Permute
from deliralike.zoo.keymaps import KeyMap, State, by_patterns
from deliralike.zoo.model import Model
from deliralike.zoo.registry import register
from deliralike.zoo.tables import resampled, square_side

# Torchvision subtracts this from the scores of tokens that are neighbours only after rolling.
_FORBIDDEN = 100.0


def _without_structure(state: State) -> State:
    """Leave out masks and indices, which are computed, and move each downsampling to its stage.

    Microsoft's files, and timm's before 0.9, have it at the end of the stage before, and a head
    without ``fc``.
    """
    old = any(name.startswith("layers.0.downsample.") for name in state)
    kept = {}
    for name, value in state.items():
        if not name.endswith(("attn_mask", "relative_position_index")):
            kept[_newer(name) if old else name] = value
    return kept


def _newer(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers" and parts[2] == "downsample":
        parts[1] = str(int(parts[1]) + 1)
    if parts[0] == "head" and "fc" not in parts:
        parts.insert(1, "fc")
    return ".".join(parts)


# our features alternate: the patches, a stage, a merging, a stage …; timm's stages begin with their
# merging
_TIMM = KeyMap(
    "timm",
    by_patterns(
        {
            r"features\.0\.0\.(\w+)": r"patch_embed.proj.\1",
            r"features\.0\.2\.(\w+)": r"patch_embed.norm.\1",
            r"features\.(\d+)\.(\d+)\.mlp\.(0|3)\.(\w+)": lambda m: (
                f"layers.{int(m[1]) // 2}.blocks.{m[2]}.mlp.fc{1 if m[3] == '0' else 2}.{m[4]}"
            ),
            r"features\.(\d+)\.(\d+)\.((?!.*relative_position_index).+)": lambda m: (
                f"layers.{int(m[1]) // 2}.blocks.{m[2]}.{m[3]}"
            ),
            r"features\.(\d+)\.((?:reduction|norm)\.\w+)": lambda m: (
                f"layers.{int(m[1]) // 2}.downsample.{m[2]}"
            ),
            r"(norm\.\w+)": r"\1",
            r"head\.(\w+)": r"head.fc.\1",
        }
    ),
    mend=_without_structure,
)


class PatchMerging(Network):
    """Four neighbours side by side, normalised, as one token of twice the width.

    Source: Liu et al. 2021, arXiv 2103.14030, section 3.1; torchvision.

    Shapes:
        ``(batch, height, width, channels)`` gives ``(batch, height / 2, width / 2, 2 * channels)``,
        rounded up.
    """

    start_values = {"reduction.weight": Normal(0.02)}

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduction = self.nn.Linear(4 * channels, 2 * channels, bias=False)
        self.norm = self.nn.LayerNorm(4 * channels)

    def forward(self, x):
        nn = self.nn
        batch, height, width, channels = x.shape
        if height % 2 or width % 2:
            x = nn.pad(x, [(0, height % 2), (0, width % 2), (0, 0)])
        rows = (height + 1) // 2
        columns = (width + 1) // 2
        x = nn.reshape(x, (batch, rows, 2, columns, 2, channels))
        x = nn.permute(x, (0, 1, 3, 4, 2, 5))
        x = nn.reshape(x, (batch, rows, columns, 4 * channels))
        return self.reduction(self.norm(x))


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
    ) -> None:
        super().__init__()
        nn = self.nn
        checks.divides(channels, heads, "SwinTransformer: width of a stage", "num_heads")
        self.window, self.shift, self.heads = window, shift, heads
        offsets = (2 * window - 1) ** 2
        self.relative_position_bias_table = nn.Parameter((offsets, heads), Normal(0.02))
        self.relative_position_index = nn.Buffer(_relative_positions(window))
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.attention_dropout = nn.Dropout(attention_dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        nn = self.nn
        side = self.window
        batch, height, width, channels = x.shape
        # the numbers of windows along both axes, rounded up
        rows = -(-height // side)
        columns = -(-width // side)
        extra = (rows * side - height, columns * side - width)
        if any(extra):
            x = nn.pad(x, [(0, extra[0]), (0, extra[1]), (0, 0)])
        shifts = [self.shift if windows > 1 else 0 for windows in (rows, columns)]
        if any(shifts):
            x = nn.roll(x, [-shift for shift in shifts], (1, 2))
        x = self._windows(x, batch, rows, columns, channels)
        x = self._attend(x, self._bias(x, rows, columns, shifts))
        x = self.dropout(self.proj(x))  # (batch, windows, tokens, channels)
        x = nn.reshape(x, (batch, rows, columns, side, side, channels))
        x = nn.permute(x, (0, 1, 3, 2, 4, 5))
        x = nn.reshape(x, (batch, rows * side, columns * side, channels))
        if any(shifts):
            x = nn.roll(x, shifts, (1, 2))
        if any(extra):
            x = x[:, :height, :width]
        return x

    def _windows(self, x, batch: int, rows: int, columns: int, channels: int):
        """Cut into windows: (batch, windows, tokens, channels)."""
        nn, side = self.nn, self.window
        x = nn.reshape(x, (batch, rows, side, columns, side, channels))
        x = nn.permute(x, (0, 1, 3, 2, 4, 5))
        return nn.reshape(x, (batch, rows * columns, side * side, channels))

    def _attend(self, x, bias):
        nn, heads = self.nn, self.heads
        batch, windows, tokens, channels = x.shape
        packed = nn.reshape(self.qkv(x), (batch, windows, tokens, 3, heads, channels // heads))
        packed = nn.permute(packed, (3, 0, 1, 4, 2, 5))  # (3, batch, windows, heads, tokens, width)
        dropped = None
        if self.training and self.attention_dropout.p:
            shape = (batch, windows, heads, tokens, tokens)
            dropped = self.attention_dropout(nn.zeros(shape, like=x) + 1.0)
        y, _ = nn.attention(packed[0], packed[1], packed[2], bias, dropped, need_weights=False)
        y = nn.permute(y, (0, 1, 3, 2, 4))  # (batch, windows, tokens, heads, width)
        return nn.reshape(y, (batch, windows, tokens, channels))

    def _bias(self, x, rows: int, columns: int, shifts: Sequence[int]):
        """Return the term of the scores: (heads, tokens, tokens).

        Where windows are shifted there is one for each window.
        """
        nn = self.nn
        tokens = self.window**2
        bias = nn.select(self.relative_position_bias_table, self.relative_position_index, 0)
        bias = nn.permute(nn.reshape(bias, (tokens, tokens, self.heads)), (2, 0, 1))
        if not any(shifts):
            return bias
        vertical = nn.reshape(self._regions(x, rows, shifts[0]), (-1, 1, 1))
        horizontal = nn.reshape(self._regions(x, columns, shifts[1]), (1, -1, 1))
        region = vertical * 3.0 + horizontal
        region = self._windows(region, 1, rows, columns, 1)[0]  # (windows, tokens, 1)
        apart = nn.clip(nn.abs(region - nn.permute(region, (0, 2, 1))), 0.0, 1.0)
        return bias - nn.expand_dims(apart, 1) * _FORBIDDEN

    def _regions(self, x, windows: int, shift: int):
        """Number the elements of an axis by what lay together before rolling.

        The first windows have 0, the two parts of the last one 1 and 2.
        """
        first = (windows - 1) * self.window
        numbers = [0.0] * first + [1.0] * (self.window - shift) + [2.0] * shift
        return self.nn.constant(np.array(numbers), like=x)


class SwinBlock(Network):
    """Window attention and a perceptron, each after a normalisation and beside a shortcut.

    Source: Liu et al. 2021, arXiv 2103.14030, figure 3b; torchvision.

    Shapes:
        ``(batch, height, width, channels)`` gives the same.
    """

    start_values = {"mlp.?.weight": Normal(0.02), "mlp.?.bias": ZEROS}

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
    ) -> None:
        super().__init__()
        nn = self.nn
        inner = int(channels * mlp_ratio)
        self.norm1 = nn.LayerNorm(channels)
        self.attn = WindowAttention(channels, window, shift, heads, dropout, attention_dropout)
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


class SwinTransformer(Model):
    """A transformer of shifted windows, which halves the size between stages.

    Source: Liu et al. 2021, arXiv 2103.14030. Names, order, shapes and start values are those of
    ``torchvision.models.swin_transformer``; the key map ``"timm"`` has timm's names and
    Microsoft's.

    Args:
        patch_size: Side of a patch.
        embed_dim: Width of the first stage's tokens; each stage doubles it.
        depths: The number of blocks in each stage; every second one shifts its windows.
        num_heads: The number of heads in each stage.
        window_size: Side of a window. A bias table for another one is resampled when it is loaded.
        mlp_ratio: How many times wider the hidden layer in each block is.
        dropout, attention_dropout: Probabilities of dropping elements of the tokens and of the
            attention weights.
        stochastic_depth: Probability of dropping the last residual branch; it grows linearly from
            the first.
        num_classes: Number of outputs; 0 for no head: the pooled, normalised features.
        in_channels: Number of input channels.

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
    keymaps = (_TIMM,)

    def __init__(
        self,
        patch_size: int = 4,
        embed_dim: int = 96,
        depths: Sequence[int] = (2, 2, 6, 2),
        num_heads: Sequence[int] = (3, 6, 12, 24),
        window_size: int = 7,
        mlp_ratio: float = 4.0,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        stochastic_depth: float = 0.2,
        num_classes: int = 1000,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        checks.positive(in_channels, "in_channels", "SwinTransformer")
        checks.positive(patch_size, "patch_size", "SwinTransformer")
        checks.positive(window_size, "window_size", "SwinTransformer")
        depths, num_heads = _stages(depths, num_heads)
        nn = self.nn
        total = sum(depths)
        patches = nn.Conv2d(in_channels, embed_dim, patch_size, patch_size)
        features = [nn.Sequential(patches, Permute((0, 2, 3, 1)), nn.LayerNorm(embed_dim))]
        options = {
            "mlp_ratio": mlp_ratio,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
        }
        for stage, (count, heads) in enumerate(zip(depths, num_heads, strict=True)):
            width = embed_dim * 2**stage
            start = sum(depths[:stage])
            if stage:
                features.append(PatchMerging(width // 2))
            blocks = []
            for i in range(count):
                shift = window_size // 2 if i % 2 else 0
                chance = stochastic_depth * (start + i) / max(1, total - 1)
                block = SwinBlock(
                    width, heads, window_size, shift, stochastic_depth=chance, **options
                )
                blocks.append(block)
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
        return {name: self.nn.permute(stage, (0, 3, 1, 2)) for name, stage in stages.items()}

    def adapt_weight(
        self, name: str, value: np.ndarray, shape: tuple[int, ...]
    ) -> np.ndarray | None:
        """Resample the bias table of another window.

        The interpolation is cubic with the cells' edges in place, as in Microsoft's code.
        """
        is_table = name.endswith("relative_position_bias_table") and value.ndim == 2
        if not is_table or value.shape[1] != shape[1]:
            return None
        old = square_side(value.shape[0])
        new = square_side(shape[0])
        if old is None or new is None:
            return None
        grid = value.reshape(old, old, -1)
        return resampled(grid, new, align_corners=False).reshape(shape)

    def adapt_state(self, state: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Add the index tables of this network, which follow from its window.

        timm's files lack them.
        """
        own = {}
        for path, block in self.named_blocks():
            if not isinstance(block, WindowAttention):
                continue
            if f"{path}.relative_position_bias_table" in state:
                own[f"{path}.relative_position_index"] = _relative_positions(block.window)
        return {**state, **own}


def _relative_positions(window: int) -> np.ndarray:
    """Return the row of the bias table for each pair of tokens in a window, flat."""
    rows, columns = (axis.ravel() for axis in np.indices((window, window)))
    down = rows[:, None] - rows[None, :] + window - 1
    right = columns[:, None] - columns[None, :] + window - 1
    return (down * (2 * window - 1) + right).ravel().astype(np.int64)


def _stages(depths: Sequence[int], heads: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the blocks and the heads of each stage."""
    plain = any(isinstance(numbers, int | str) for numbers in (depths, heads))
    if plain or not depths or len(depths) != len(heads):
        raise SettingError(
            f"SwinTransformer: depths={depths!r}, num_heads={heads!r}; wanted two numbers a stage"
        )
    counts = tuple(checks.positive(count, "depths", "SwinTransformer") for count in depths)
    return counts, tuple(checks.positive(count, "num_heads", "SwinTransformer") for count in heads)


_SOURCE = "Liu et al. 2021, arXiv 2103.14030; torchvision"

# name: (width of the first stage, blocks and heads in each stage, stochastic depth, parameters)
_VARIANTS: dict[str, tuple[int, tuple[int, ...], tuple[int, ...], float, int]] = {
    "swin_t": (96, (2, 2, 6, 2), (3, 6, 12, 24), 0.2, 28_288_354),
    "swin_s": (96, (2, 2, 18, 2), (3, 6, 12, 24), 0.3, 49_606_258),
    "swin_b": (128, (2, 2, 18, 2), (4, 8, 16, 32), 0.5, 87_768_224),
}

for _name, (_width, _depths, _heads, _chance, _parameters) in _VARIANTS.items():
    register(
        SwinTransformer,
        name=_name,
        variant={
            "embed_dim": _width,
            "depths": _depths,
            "num_heads": _heads,
            "stochastic_depth": _chance,
        },
        source=_SOURCE,
        shape=images(224),
        parameters=_parameters,
    )
