"""Mistakes of attention: scale, masks, heads, packing, positions and what surrounds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods

# The core: queries, keys and values (batch, heads, tokens, width)
# -----------------------------------------------------------------------------


def _nearly_forbidden(nn, q, k, v, bias, mask):
    """With scores of -30, so that no row is empty."""
    return nn.attention(q, k, v, nn.clip(bias, -30.0, 0.0), mask)[0]


def _attention(
    core: Callable[..., Any], padding: Callable[[Any], Any] = lambda mask: mask
) -> Plant:
    """Plant attention with another core or mask."""

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
    ):
        nn = self.nn
        q, k, v = self._project_packed(query)
        bias = self._bias(q, k.shape[2], attn_mask, padding(key_padding_mask))
        y = nn.permute(core(nn, q, k, v, bias, self._dropout_mask(q, k)), (0, 2, 1, 3))
        return self.out_proj(nn.reshape(y, tuple(query.shape))), None

    return with_methods("attention", forward=forward)


def _upside_down(mask: Any) -> Any:
    """True where a token is to be seen."""
    return mask == False  # noqa: E712


MISTAKES = [
    Mistake(
        "attention: padding mask inverted",
        "attention",
        _attention(_nearly_forbidden, _upside_down),
        ("attention",),
        ("padding", "mask", "invert"),
        "attention",
    ),
]
