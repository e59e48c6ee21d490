"""Parts of networks over tokens: checks of the input, masks, attention, positions."""

from typing import Any

import numpy as np

from deliralike.errors import ShapeError
from deliralike.network.base import Network
from deliralike.nn import checks
from deliralike.zoo.layouts import attend_heads, split_heads

# The least number of float16. It is finite, so that a sequence of padding alone gives no NaN.
FORBIDDEN = -65504.0


def check_tokens(
    model: Any, tokens: Any, most: int | None = None, setting: str = ""
) -> None:
    """Check token numbers ``(batch, tokens)``: no more of them than there are positions.

    Args:
        model: The network that checks; the error names it.
        tokens: The input.
        most: The number of positions; None for as many as one likes.
        setting: The name of the setting that holds it.

    Raises:
        ShapeError: There is another number of axes, no token, or the sequence is too long.
        SettingError: They are no whole numbers.
    """
    shape = tuple(tokens.shape)
    where = checks.where(model)
    if len(shape) != 2 or not shape[1]:
        raise ShapeError(
            f"{where}: got tokens of shape {shape}, wanted (batch, tokens), one token at least"
        )
    checks.whole_numbers(tokens, f"{where}: tokens")
    count = shape[1]
    if most is not None and count > most:
        raise ShapeError(
            f"{where}: a sequence of {count} tokens is too long: there are positions for "
            f"{setting}={most}; cut it, or build the network with a larger {setting}"
        )


def check_mask(model: Any, mask: Any, tokens: Any, name: str) -> None:
    """Check that a mask has one entry for each token.

    Raises:
        ShapeError: It has another shape than the tokens.
    """
    wanted = tuple(tokens.shape[:2])
    came = tuple(mask.shape)
    if came != wanted:
        raise ShapeError(
            f"{checks.where(model)}: got {name} of shape {came}, wanted (batch, tokens): {wanted}"
        )


def position_numbers(nn: Any, tokens: Any) -> Any:
    """Return the numbers 0, 1, 2 … of the tokens in ``(batch, tokens)``, as ``(1, tokens)``."""
    return nn.unsqueeze(nn.arange(tokens.shape[1], like=tokens), 0)


def padding_bias(nn: Any, attention_mask: Any, like: Any) -> Any:
    """Return the term of the scores that forbids attention to padding.

    A mask ``(batch, tokens)`` with ones for tokens gives ``(batch, 1, 1, tokens)``.
    """
    batch, count = attention_mask.shape
    bias = (1.0 - nn.cast(attention_mask, like)) * FORBIDDEN
    return nn.reshape(bias, (batch, 1, 1, count))


def out_of_sight(nn: Any, keys: Any, queries: Any, window: int | None) -> Any:
    """Return at which positions keys are later than queries, or no more within their window."""
    forbidden = keys > queries
    if window is None:
        return forbidden
    return nn.logical_or(forbidden, keys <= queries - window)


def causal_bias(nn: Any, tokens: Any, like: Any, window: int | None = None) -> Any:
    """Return the term of the scores that forbids attention to later tokens.

    With a window also to all but the last so many. It is ``(tokens, tokens)``.
    """
    positions = position_numbers(nn, tokens)
    forbidden = out_of_sight(nn, positions, nn.permute(positions, (1, 0)), window)
    return nn.cast(forbidden, like) * FORBIDDEN


def decoder_positions(
    model: Any, tokens: Any, cache: Any, most: int, setting: str
) -> Any:
    """Return the positions of a decoder's tokens, which follow those in a cache if there is one.

    `most` and `setting` are as in `check_tokens`.
    """
    if cache is not None:
        return cache.positions(tokens)
    check_tokens(model, tokens, most, setting)
    return position_numbers(model.nn, tokens)


def decoder_bias(
    model: Any,
    tokens: Any,
    attention_mask: Any,
    cache: Any,
    like: Any,
    window: int | None = None,
) -> Any:
    """Return the term of a decoder's scores: later tokens are forbidden, and so is padding.

    With a window a token sees so many at most, itself among them. The term is ``(tokens, tokens)``,
    with a mask ``(batch, 1, tokens, tokens)`` and with a cache ``(batch, 1, tokens, slots)``.
    """
    nn = model.nn
    if cache is None:
        bias = causal_bias(nn, tokens, like, window)
    else:
        bias = cache.bias(tokens, like, window)
    if attention_mask is None:
        return bias
    check_mask(model, attention_mask, tokens, "attention_mask")
    return bias + padding_bias(nn, attention_mask, like)


class Attention(Network):
    """Attention of tokens to keys and values, with Hugging Face's names and order of the maps.

    Shapes:
        ``(batch, tokens, width)`` gives the same.
    """

    def __init__(self, width: int, heads: int, key_bias: bool = True) -> None:
        super().__init__()
        nn = self.nn
        self.heads = heads
        self.k_proj = nn.Linear(width, width, bias=key_bias)
        self.v_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def keys(self, x):
        """Return keys and values, each ``(batch, heads, tokens, width)``."""
        key = split_heads(self.nn, self.k_proj(x), self.heads)
        value = split_heads(self.nn, self.v_proj(x), self.heads)
        return key, value

    def forward(self, x, keys, bias=None):
        key, value = keys
        query = split_heads(self.nn, self.q_proj(x), self.heads)
        return self.out_proj(attend_heads(self.nn, query, key, value, bias))


def sinusoids(count: int, width: int) -> np.ndarray:
    """Return sines and cosines of each position, in turn.

    Their wavelengths go from ``2 pi`` to ``10000 * 2 pi``.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.5.

    Returns:
        ``(count, width)``.

    Example:
        >>> sinusoids(2, 4).round(4).tolist()
        [[0.0, 1.0, 0.0, 1.0], [0.8415, 0.5403, 0.01, 1.0]]
    """
    angles = np.arange(count)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=2)
    return pairs.reshape(count, -1)[:, :width]
