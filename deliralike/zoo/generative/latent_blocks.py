"""Residual blocks and attention over pictures for latent diffusion, named as in MONAI."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo import medical
from deliralike.zoo.generative.ddpm import add_time
from deliralike.zoo.layouts import as_grid, as_tokens, attend
from deliralike.zoo.setting_checks import numbers


@dataclass(frozen=True)
class Shared:
    """The settings that all blocks of a network share; see its class.

    `time_width` is 0 where no block reads a time, `cross_attention_dim` without a context.
    """

    dims: int
    norm_num_groups: int
    norm_eps: float
    time_width: int = 0
    transformer_num_layers: int = 1
    cross_attention_dim: int = 0

    def norm(self, nn: Any, channels: int) -> Any:
        """Make a normalisation."""
        return nn.GroupNorm(self.norm_num_groups, channels, self.norm_eps)

    def conv(
        self, in_channels: int, out_channels: int, kernel_size: int = 3, stride: int = 1
    ) -> Any:
        """Make a convolution."""
        sizes = (self.dims, kernel_size, stride)
        return medical.Convolution(in_channels, out_channels, *sizes, alone=True)


def per_level(
    what: str,
    channels: Sequence[int],
    num_res_blocks: int | Sequence[int],
    attention_levels: Sequence[bool],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...]]:
    """Return the width of each level, the number of its blocks, and whether it attends.

    Raises:
        SettingError: There is not one value for each level, or a number is none.
    """
    widths = numbers(channels, "channels", what)
    levels = len(widths)
    attends = medical.per_stage(attention_levels, levels, "attention_levels", what)
    layers = medical.per_stage(num_res_blocks, levels, "num_res_blocks", what)
    return widths, numbers(layers, "num_res_blocks", what), attends


class Residual(Network):
    """Two convolutions, each after a normalisation and SiLU, beside a shortcut.

    The time, where there is one, is added between them.

    Args:
        in_channels, out_channels: Channels before and after.
        shared: The settings that blocks share.

    Shapes:
        ``(batch, in_channels, *size)`` and ``(batch, time_width)`` give
        ``(batch, out_channels, *size)``.
    """

    shortcut: ClassVar[str] = "skip_connection"

    def __init__(self, in_channels: int, out_channels: int, shared: Shared) -> None:
        super().__init__()
        nn = self.nn
        self.norm1 = shared.norm(nn, in_channels)
        self.conv1 = shared.conv(in_channels, out_channels)
        if shared.time_width:
            self.time_emb_proj = nn.Linear(shared.time_width, out_channels)
        self.norm2 = shared.norm(nn, out_channels)
        self.conv2 = shared.conv(out_channels, out_channels)
        shortcut = nn.Identity()
        if in_channels != out_channels:
            shortcut = shared.conv(in_channels, out_channels, 1)
        setattr(self, self.shortcut, shortcut)

    def forward(self, x, time=None):
        nn = self.nn
        y = self.conv1(nn.silu(self.norm1(x)))  # (batch, out_channels, *size)
        if time is not None:
            y = add_time(nn, y, self.time_emb_proj, time)
        y = self.conv2(nn.silu(self.norm2(y)))
        return y + getattr(self, self.shortcut)(x)


class Attention(Network):
    """Attention of tokens to those of a context, which may be themselves.

    Source: MONAI's ``SABlock`` and ``CrossAttentionBlock``.

    Args:
        width: Width of the tokens.
        heads: Number of heads; divides the width.
        context_width: Width of the context.
        bias: Whether queries, keys and values have biases.

    Shapes:
        ``(batch, tokens, width)`` and ``(batch, others, context_width)`` give
        ``(batch, tokens, width)``.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        context_width: int,
        bias: bool = False,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.heads = heads
        self.out_proj = nn.Linear(width, width)
        self.to_q = nn.Linear(width, width, bias=bias)
        self.to_k = nn.Linear(context_width, width, bias=bias)
        self.to_v = nn.Linear(context_width, width, bias=bias)

    def forward(self, x, context):
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)
        return self.out_proj(attend(self.nn, q, k, v, self.heads))


class SpatialAttention(Network):
    """Attention between all places of a picture or volume, added to it.

    Source: MONAI's ``SpatialAttentionBlock``.

    Args:
        channels: Channels of input and output.
        head_width: Width of each head; one head when None.
        shared: The settings that blocks share.

    Shapes:
        ``(batch, channels, *size)`` gives the same, whatever the context.
    """

    def __init__(self, channels: int, head_width: int | None, shared: Shared) -> None:
        super().__init__()
        heads = 1 if head_width is None else head_count(channels, head_width)
        self.norm = shared.norm(self.nn, channels)
        self.attn = Attention(channels, heads, channels, True)

    def forward(self, x, context=None):
        tokens = as_tokens(self.nn, self.norm(x))
        y = self.attn(tokens, tokens)
        return x + as_grid(self.nn, y, x.shape[2:])


def head_count(channels: int, head_width: int) -> int:
    """Return the number of heads of that width.

    Raises:
        SettingError: The width does not divide the channels.
    """
    checks.positive(head_width, "num_head_channels", "attention")
    checks.divides(channels, head_width, "attention: channels", "num_head_channels")
    return channels // head_width
