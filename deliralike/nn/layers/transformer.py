"""Transformer layers with PyTorch's names."""

from typing import Any, ClassVar

from deliralike.errors import SettingError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.start import XavierUniform


class _TransformerLayer(Network):
    """What the layers of encoder and decoder share: the parts, and the feed-forward one."""

    attentions: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        nn = self.nn
        self.norm_first = norm_first
        self.activation = activation
        if activation not in ("relu", "gelu") and not callable(activation):
            raise SettingError(
                f"{type(self).__name__}: activation={activation!r}; wanted 'relu', 'gelu' or a "
                "function"
            )
        for name in self.attentions:
            attention = nn.MultiheadAttention(
                d_model, nhead, dropout, bias=bias, batch_first=batch_first
            )
            setattr(self, name, attention)
        self.linear1 = nn.Linear(d_model, dim_feedforward, bias)
        self.dropout = nn.Dropout(dropout)
        self.linear2 = nn.Linear(dim_feedforward, d_model, bias)
        parts = range(1, len(self.attentions) + 2)
        for number in parts:
            setattr(
                self, f"norm{number}", nn.LayerNorm(d_model, layer_norm_eps, bias=bias)
            )
        for number in parts:
            setattr(self, f"dropout{number}", nn.Dropout(dropout))

    def _with_residual(self, x, part, norm):
        """Tokens and what a part makes of them, with a norm before the part or behind the sum."""
        if self.norm_first:
            return x + part(norm(x))
        return norm(x + part(x))

    def _feed_forward(self, x):
        activate = self.activation
        if not callable(activate):
            activate = getattr(self.nn, activate)
        hidden = self.dropout(activate(self.linear1(x)))
        return self.linear2(hidden)


class TransformerEncoderLayer(_TransformerLayer):
    """Self-attention and a feed-forward part, each with a residual and a norm.

    Source: Vaswani et al. 2017, arXiv 1706.03762.

    Args:
        d_model: Width of the tokens.
        nhead: Number of heads.
        dim_feedforward: Width of the feed-forward part.
        dropout: Probability of dropping, in all places.
        activation: ``"relu"``, ``"gelu"`` or a function of arrays.
        layer_norm_eps: Epsilon of the norms.
        batch_first: ``(batch, tokens, width)`` instead of ``(tokens, batch, width)``.
        norm_first: Whether norms come before the parts, not after the residuals.
        bias: Whether linear maps and norms have biases.
    """

    attentions = ("self_attn",)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        """Return the tokens after this layer; masks are those of `MultiheadAttention`."""

        def attend(x):
            attended, _ = self.self_attn(
                x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal
            )
            return self.dropout1(attended)

        def feed(x):
            return self.dropout2(self._feed_forward(x))

        src = self._with_residual(src, attend, self.norm1)
        return self._with_residual(src, feed, self.norm2)


class TransformerDecoderLayer(_TransformerLayer):
    """Self-attention, attention to a memory and a feed-forward part.

    The arguments are those of `TransformerEncoderLayer`.
    """

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        """Return the tokens after this layer; masks are those of `MultiheadAttention`."""

        def attend(x):
            attended, _ = self.self_attn(
                x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal
            )
            return self.dropout1(attended)

        def remember(x):
            mask = (memory_key_padding_mask, False, memory_mask)
            attended, _ = self.multihead_attn(
                x, memory, memory, *mask, is_causal=memory_is_causal
            )
            return self.dropout2(attended)

        def feed(x):
            return self.dropout3(self._feed_forward(x))

        tgt = self._with_residual(tgt, attend, self.norm1)
        tgt = self._with_residual(tgt, remember, self.norm2)
        return self._with_residual(tgt, feed, self.norm3)


class _Stack(Network):
    """Layers like a given one, which is the first of them, and a norm at the end."""

    def __init__(self, layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        self.num_layers = checks.positive(num_layers, "num_layers", type(self).__name__)
        others = [type(layer)(**layer.init_kwargs) for _ in range(num_layers - 1)]
        self.layers = self.nn.ModuleList([layer, *others])
        self.norm = norm

    def _normed(self, x):
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """So many layers made like `encoder_layer`, and a `norm` at the end.

    Unlike PyTorch's, layers do not start as copies: each draws start values of its own.
    """

    def __init__(
        self,
        encoder_layer: Any,
        num_layers: int,
        norm: Any = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=False):
        """Return the tokens after all layers."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return self._normed(src)


class TransformerDecoder(_Stack):
    """So many layers made like `decoder_layer`, and a `norm` at the end."""

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        """Return the tokens after all layers."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
        return self._normed(tgt)


class Transformer(Network):
    """Encoder and decoder. Source: Vaswani et al. 2017, arXiv 1706.03762.

    The settings are those of `TransformerEncoderLayer`. Start values of matrices are Xavier's.
    """

    start_values = {
        "*.linear?.weight": XavierUniform(),
        "*.in_proj_weight": XavierUniform(),
        "*.out_proj.weight": XavierUniform(),
    }

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = "relu",
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        widths = (d_model, nhead, dim_feedforward)
        order = (batch_first, norm_first, bias)
        settings = (*widths, dropout, activation, layer_norm_eps, *order)
        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*settings),
            num_encoder_layers,
            self.nn.LayerNorm(d_model, layer_norm_eps, bias=bias),
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*settings),
            num_decoder_layers,
            self.nn.LayerNorm(d_model, layer_norm_eps, bias=bias),
        )

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=False,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        """Return the decoder's tokens."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)
