"""Attention over pictures and volumes for latent diffusion, named as in MONAI."""

from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo.keymaps import KeyMap, by_patterns
from deliralike.zoo.layouts import as_grid, as_tokens, attend

# MONAI Generative Models, the extension in which these networks were before MONAI 1.4.
GENERATIVE_MODELS = KeyMap(
    "monai-generative",
    by_patterns(
        {
            r"(.*)\.attn\.to_(.*)": r"\1.to_\2",
            r"(.*)\.attn\.out_proj\.(.*)": r"\1.proj_attn.\2",
            r"(.*transformer_blocks.*)\.out_proj\.(.*)": r"\1.to_out.0.\2",
            r"(.*)\.postconv\.(.*)": r"\1.conv.\2",
            r"(.*)": r"\1",
        }
    ),
)


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
        num_groups, eps: Of the normalisation.

    Shapes:
        ``(batch, channels, *size)`` gives the same, whatever the context.
    """

    def __init__(
        self,
        channels: int,
        head_width: int | None,
        num_groups: int,
        eps: float,
    ) -> None:
        super().__init__()
        heads = 1 if head_width is None else head_count(channels, head_width)
        self.norm = self.nn.GroupNorm(num_groups, channels, eps)
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
