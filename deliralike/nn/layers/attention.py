"""Multi-head attention with PyTorch's packed parameters."""

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.nn.layers.dropout import Dropout
from deliralike.nn.layers.linear import Linear
from deliralike.nn.start import ZEROS, XavierNormal, XavierUniform


class MultiheadAttention(Network):
    """Attention with several heads. Source: Vaswani et al. 2017, arXiv 1706.03762.

    Args:
        embed_dim: Width of the tokens; a multiple of `num_heads`.
        num_heads: Number of heads.
        dropout: Probability of dropping a weight in training.
        bias: Whether the projections have biases.
        add_bias_kv: Whether a learned key and value come after the others.
        add_zero_attn: Whether a key and value of zeros come after the others.
        kdim, vdim: Widths of keys and values; `embed_dim` when not given.
        batch_first: ``(batch, tokens, width)`` instead of ``(tokens, batch, width)``.
    """

    start_values = {"out_proj.bias": ZEROS}

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__()
        self.embed_dim = checks.positive(embed_dim, "embed_dim", "MultiheadAttention")
        self.num_heads = checks.positive(num_heads, "num_heads", "MultiheadAttention")
        checks.divides(
            embed_dim, num_heads, "MultiheadAttention: embed_dim", "num_heads"
        )
        self.batch_first = batch_first
        kdim, vdim = (embed_dim if dim is None else dim for dim in (kdim, vdim))
        self.kdim = checks.positive(kdim, "kdim", "MultiheadAttention")
        self.vdim = checks.positive(vdim, "vdim", "MultiheadAttention")
        self.add_zero_attn = add_zero_attn
        self.is_packed = self.kdim == self.vdim == embed_dim
        if self.is_packed:
            self.in_proj_weight = self.nn.Parameter(
                (3 * embed_dim, embed_dim), XavierUniform()
            )
        else:
            widths = {"q": embed_dim, "k": self.kdim, "v": self.vdim}
            for part, width in widths.items():
                weight = self.nn.Parameter((embed_dim, width), XavierUniform())
                setattr(self, f"{part}_proj_weight", weight)
        self.in_proj_bias = self.nn.Parameter((3 * embed_dim,), ZEROS) if bias else None
        shape = (1, 1, embed_dim)
        self.bias_k = self.nn.Parameter(shape, XavierNormal()) if add_bias_kv else None
        self.bias_v = self.nn.Parameter(shape, XavierNormal()) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        self.attention_dropout = Dropout(dropout)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """Attend from each query to the keys.

        Args:
            query, key, value: Tokens.
            key_padding_mask: ``(batch, keys)``; True where a key is padding.
            need_weights: Whether to return the weights as well.
            attn_mask: ``(queries, keys)`` or ``(batch * num_heads, queries, keys)``: True where
                attention is forbidden, or numbers that are added to the scores.
            average_attn_weights: Whether the weights are averaged over the heads.
            is_causal: A hint, as in PyTorch: that `attn_mask`, which must be given, is causal.

        Returns:
            The outputs, and the weights ``(batch, queries, keys)`` or None.
        """
        nn = self.nn
        if is_causal and attn_mask is None:
            raise SettingError(
                f"{checks.where(self)}: is_causal=True needs an attn_mask as well"
            )
        self._check(query, key, value)
        self_attention = query is key is value
        if not self.batch_first:
            query, key, value = (
                nn.permute(tokens, (1, 0, 2)) for tokens in (query, key, value)
            )
        if self_attention and self.is_packed:
            q, k, v = self._project_packed(query)
        else:
            q = self._project(query, 0)
            k = self._project(key, 1)
            v = self._project(value, 2)
        bias = self._bias(q, k.shape[2], attn_mask, key_padding_mask)
        k, v, bias = self._with_more(k, v, bias)
        shape = (*q.shape[:3], k.shape[2])
        mask = nn.dropout_factors(self.attention_dropout, shape, q)
        y, weights = nn.attention(q, k, v, bias, mask, need_weights=need_weights)
        y = nn.permute(y, (0, 2, 1, 3))  # (batch, tokens, heads, width)
        y = self.out_proj(nn.reshape(y, tuple(query.shape)))
        if not self.batch_first:
            y = nn.permute(y, (1, 0, 2))
        if not need_weights:
            return y, None
        if mask is not None:
            weights = weights * mask
        if average_attn_weights:
            weights = nn.mean(weights, 1)
        return y, weights

    def _check(self, query, key, value) -> None:
        widths = (self.embed_dim, self.kdim, self.vdim)
        for tokens, width in zip((query, key, value), widths, strict=True):
            checks.last_axes(self, tokens, (width,))
        shapes = [tuple(tokens.shape) for tokens in (query, key, value)]
        batch = 0 if self.batch_first else 1
        three_axes = all(len(shape) == 3 for shape in shapes)
        if (
            three_axes
            and shapes[0][batch] == shapes[1][batch]
            and shapes[1][:2] == shapes[2][:2]
        ):
            return
        axes = "batch, tokens" if self.batch_first else "tokens, batch"
        raise ShapeError(
            f"{checks.where(self)}: got query, key and value of shapes {shapes}, wanted "
            f"({axes}, {self.embed_dim}) with one batch size, and as many values as keys"
        )

    def _project_packed(self, tokens):
        """Queries, keys and values of the same tokens by one product.

        Shapes:
            Each is ``(batch, heads, tokens, width)``.
        """
        projected = self.nn.linear(tokens, self.in_proj_weight, self.in_proj_bias)
        parts = self.nn.split(projected, self.embed_dim, dim=-1)
        return tuple(map(self._heads, parts))

    def _project(self, tokens, part: int):
        """The queries (`part` 0), keys (1) or values (2): (batch, heads, tokens, width)."""
        width = self.embed_dim
        rows = slice(part * width, (part + 1) * width)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        if self.is_packed:
            weight = self.in_proj_weight[rows]
        else:
            weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[part]
        return self._heads(self.nn.linear(tokens, weight, bias))

    def _heads(self, projected):
        """Give each head its part: (batch, tokens, width) gives (batch, heads, tokens, part)."""
        part = self.embed_dim // self.num_heads
        shape = (*projected.shape[:2], self.num_heads, part)
        return self.nn.permute(self.nn.reshape(projected, shape), (0, 2, 1, 3))

    def _with_more(self, k, v, bias):
        """Keys, values and mask with the learned ones and those of zeros, where there are any."""
        nn = self.nn
        batch, heads, _, width = k.shape
        more = []
        if self.bias_k is not None:
            shape = (1, heads, 1, width)
            more.append(
                (nn.reshape(self.bias_k, shape), nn.reshape(self.bias_v, shape))
            )
        if self.add_zero_attn:
            zeros = nn.zeros((1, heads, 1, width), like=k)
            more.append((zeros, zeros))
        for key, value in more:
            k = nn.concatenate(
                [k, nn.broadcast_to(key, (batch, heads, 1, width))], dim=2
            )
            v = nn.concatenate(
                [v, nn.broadcast_to(value, (batch, heads, 1, width))], dim=2
            )
            if bias is not None:
                bias = nn.pad(bias, (0, 1))
        return k, v, bias

    def _bias(self, q, keys: int, attn_mask, key_padding_mask):
        """Both masks as one term of the scores; (batch or 1, heads or 1, queries or 1, keys)."""
        nn = self.nn
        batch, heads, queries, _ = q.shape
        bias = None
        if attn_mask is not None:
            shapes = (queries, keys), (batch * heads, queries, keys)
            term = self._scores_term("attn_mask", attn_mask, q, shapes)
            leading = (1, 1) if term.ndim == 2 else (batch, heads)
            bias = nn.reshape(term, (*leading, queries, keys))
        if key_padding_mask is not None:
            term = self._scores_term(
                "key_padding_mask", key_padding_mask, q, [(batch, keys)]
            )
            term = nn.reshape(term, (batch, 1, 1, keys))
            bias = term if bias is None else bias + term
        return bias

    def _scores_term(self, name, mask, q, shapes):
        if tuple(mask.shape) not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise ShapeError(
                f"{checks.where(self)}: got {name} of shape {tuple(mask.shape)}, wanted {wanted}"
            )
        if "bool" not in str(mask.dtype):
            return mask
        forbidden = self.nn.constant(np.array(-np.inf), like=q)
        allowed = self.nn.constant(np.array(0.0), like=q)
        return self.nn.where(mask, forbidden, allowed)
