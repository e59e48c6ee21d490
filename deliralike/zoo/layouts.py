"""Orders of axes: places of an image as tokens, channels last, and attention by heads."""

from typing import Any


def as_tokens(nn: Any, x: Any) -> Any:
    """Turn ``(batch, channels, *size)`` into ``(batch, places, channels)``."""
    return nn.permute(nn.flatten(x, 2), (0, 2, 1))


def as_grid(nn: Any, tokens: Any, size: Any) -> Any:
    """Turn ``(batch, places, channels)`` into ``(batch, channels, *size)``."""
    batch, _, channels = tokens.shape
    return nn.reshape(nn.permute(tokens, (0, 2, 1)), (batch, channels, *size))


def channels_last(nn: Any, x: Any) -> Any:
    """Turn ``(batch, channels, *size)`` into ``(batch, *size, channels)``."""
    return nn.permute(x, (0, *range(2, len(x.shape)), 1))


def channels_first(nn: Any, x: Any) -> Any:
    """Turn ``(batch, *size, channels)`` into ``(batch, channels, *size)``."""
    last = len(x.shape) - 1
    return nn.permute(x, (0, last, *range(1, last)))


def split_heads(nn: Any, x: Any, heads: int) -> Any:
    """Turn ``(batch, tokens, heads * width)`` into ``(batch, heads, tokens, width)``."""
    batch, tokens, width = x.shape
    x = nn.reshape(x, (batch, tokens, heads, width // heads))
    return nn.permute(x, (0, 2, 1, 3))


def unpacked_heads(nn: Any, packed: Any, heads: int) -> tuple[Any, Any, Any]:
    """Return queries, keys and values that lie side by side.

    ``(..., tokens, 3 * heads * width)`` gives three times ``(..., heads, tokens, width)``.
    """
    *batch, tokens, width = packed.shape
    n = len(batch)
    packed = nn.reshape(packed, (*batch, tokens, 3, heads, width // (3 * heads)))
    packed = nn.permute(packed, (n + 1, *range(n), n + 2, n, n + 3))
    return packed[0], packed[1], packed[2]


def joined_heads(nn: Any, x: Any) -> Any:
    """Turn ``(..., heads, tokens, width)`` into ``(..., tokens, heads * width)``."""
    *batch, heads, tokens, width = x.shape
    n = len(batch)
    x = nn.permute(x, (*range(n), n + 1, n, n + 2))
    return nn.reshape(x, (*batch, tokens, heads * width))


def attend(
    nn: Any,
    query: Any,
    key: Any,
    value: Any,
    heads: int,
    bias: Any = None,
    dropout: Any = None,
) -> Any:
    """Attend with several heads between tokens that are projected already.

    Args:
        nn: The vocabulary.
        query, key, value: ``(batch, tokens, width)``; there are as many keys as values.
        heads: Their number; it divides the width.
        bias, dropout: As in `attend_heads`.
    """
    query = split_heads(nn, query, heads)
    key = split_heads(nn, key, heads)
    value = split_heads(nn, value, heads)
    return attend_heads(nn, query, key, value, bias, dropout)


def attend_heads(
    nn: Any,
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    dropout: Any = None,
    scale: float | None = None,
) -> Any:
    """Attend with heads that are split already, and put their outputs side by side.

    Args:
        nn: The vocabulary.
        query: ``(..., heads, queries, width)``; see `split_heads` and `unpacked_heads`.
        key, value: ``(..., heads, keys, width)``.
        bias: Added to the scores ``(..., heads, queries, keys)``, or None.
        dropout: The layer by whose probability weights are dropped in training, or None.
        scale: The factor of the scores; ``1 / sqrt(width)`` when not given.

    Returns:
        ``(..., queries, heads * width)``.
    """
    mask = None
    if dropout is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        mask = nn.dropout_factors(dropout, shape, query)
    y, _ = nn.attention(query, key, value, bias, mask, scale, need_weights=False)
    return joined_heads(nn, y)
