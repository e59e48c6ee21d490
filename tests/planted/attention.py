"""Mistakes of attention: scale, masks, heads, packing, positions and what surrounds it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods

# The core: queries, keys and values (batch, heads, tokens, width)
# -----------------------------------------------------------------------------


def _swapped(nn: Any, x: Any) -> Any:
    """The last two axes exchanged."""
    return nn.permute(x, (0, 1, 3, 2))


def _core(nn: Any, q: Any, k: Any, v: Any, bias: Any, mask: Any, scale: float | None = None) -> Any:
    """What the right one computes: the weighted values."""
    return nn.attention(q, k, v, bias, mask, scale=scale)[0]


def _scaled(scale: Callable[[Any, Any], float]) -> Callable[..., Any]:
    return lambda nn, q, k, v, bias, mask: _core(nn, q, k, v, bias, mask, scale(q, k))


def _over_queries(nn, q, k, v, bias, mask):
    """Weights of each key that sum to one over the queries."""
    scores = nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1])) + nn.clip(
        bias, -30.0, 0.0
    )
    weights = nn.softmax(scores, 2)
    return nn.matmul(weights if mask is None else weights * mask, v)


def _over_heads(nn, q, k, v, bias, mask):
    scores = nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1])) + nn.clip(
        bias, -30.0, 0.0
    )
    weights = nn.softmax(scores, 1)
    return nn.matmul(weights if mask is None else weights * mask, v)


def _soft_mask(value: float) -> Callable[..., Any]:
    """A finite number in the place of minus infinity."""
    return lambda nn, q, k, v, bias, mask: _core(nn, q, k, v, nn.clip(bias, value, 0.0), mask)


def _masked_afterwards(nn, q, k, v, bias, mask):
    """Weights of forbidden keys are set to zero; the others do not sum to one."""
    weights = nn.softmax(nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1])), -1)
    weights = weights * nn.exp(bias)
    return nn.matmul(weights if mask is None else weights * mask, v)


def _dropped_before(nn, q, k, v, bias, mask):
    """Dropout of scores in the place of weights."""
    scores = nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1]))
    return nn.matmul(nn.softmax((scores if mask is None else scores * mask) + bias, -1), v)


def _dropped_after(nn, q, k, v, bias, mask):
    """Weights that are divided by their sum again after dropout."""
    weights = nn.softmax(nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1])) + bias, -1)
    weights = weights if mask is None else weights * mask
    return nn.matmul(weights / (nn.sum(weights, -1, keepdim=True) + 1e-9), v)


def _one_more_key(nn, q, k, v, bias, mask):
    """One more in the denominator: "attention is off by one"."""
    scores = nn.matmul(q, _swapped(nn, k)) * (1.0 / math.sqrt(q.shape[-1])) + bias
    weights = nn.exp(scores)
    weights = weights / (1.0 + nn.sum(weights, -1, keepdim=True))
    return nn.matmul(weights if mask is None else weights * mask, v)


def _no_gradient_of_weights(nn, q, k, v, bias, mask):
    return _core(nn, nn.stop_gradient(q), nn.stop_gradient(k), v, bias, mask)


def _attention(
    core: Callable[..., Any] = _core,
    parts: Callable[..., Any] = lambda q, k, v: (q, k, v),
    padding: Callable[..., Any] = lambda nn, mask, q: mask,
    merged: Callable[..., Any] = lambda nn, y: nn.permute(y, (0, 2, 1, 3)),
    dropped: bool = True,
    **methods: Callable[..., Any],
) -> Plant:
    """Plant attention with another core, mask, inputs or way to join the heads."""

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None):
        nn = self.nn
        q, k, v = parts(*self._project_packed(query))
        bias = self._bias(q, k.shape[2], attn_mask, padding(nn, key_padding_mask, q))
        y = core(nn, q, k, v, bias, self._dropout_mask(q, k) if dropped else None)
        return self.out_proj(nn.reshape(merged(nn, y), tuple(query.shape))), None

    return with_methods("attention", forward=forward, **methods)


def _packed_as(split: tuple[int, ...], order: Callable[[Any], tuple[int, ...]]) -> Plant:
    """Projections cut into queries, keys, values and heads in another order.

    Args:
        split: The last axis of the projections, as the places of (3, heads, width) in it.
        order: The axes that make (3, batch, heads, tokens, width) of it.
    """

    def _project_packed(self, tokens):
        sizes = (3, self.num_heads, self.embed_dim // self.num_heads)
        projected = self.nn.linear(tokens, self.in_proj_weight, self.in_proj_bias)
        cut = self.nn.reshape(projected, (*tokens.shape[:2], *(sizes[place] for place in split)))
        packed = self.nn.permute(cut, order(split))
        return packed[0], packed[1], packed[2]

    return _attention(_project_packed=_project_packed)


def _in_order(split: tuple[int, ...]) -> tuple[int, ...]:
    part, heads, width = (2 + split.index(place) for place in range(3))
    return (part, 0, heads, 1, width)


def _no_input_bias(self, tokens):
    nn, heads = self.nn, self.num_heads
    split = nn.reshape(
        nn.linear(tokens, self.in_proj_weight),
        (*tokens.shape[:2], 3, heads, self.embed_dim // heads),
    )
    packed = nn.permute(split, (2, 0, 3, 1, 4))
    return packed[0], packed[1], packed[2]


def _upside_down(nn: Any, mask: Any, q: Any) -> Any:
    """True where a token is to be seen; a token sees itself, so that no row is empty."""
    return mask == False  # noqa: E712


def _no_padding(nn: Any, mask: Any, q: Any) -> Any:
    return None


# What surrounds it
# -----------------------------------------------------------------------------


def _seen(allowed: Callable[[np.ndarray], np.ndarray]) -> Plant:
    """Plant a mask by the distance of tokens.

    Forbidden tokens count a little, so that no row is empty.
    """

    def mask(self, tokens, like):
        places = np.arange(tokens.shape[1])
        distance = places - places[:, None]  # positive for what comes later
        return self.nn.constant(np.where(allowed(distance), 0.0, -30.0), like=like)

    return with_methods("", mask=mask)


def _mean_of_all(self, x, padding):
    return self.nn.mean(x, 1)


def _first_token(self, x, padding):
    return x[:, 0]


def _kept_but_divided_by_all(self, x, padding):
    kept = self.nn.cast(self.nn.expand_dims(padding, -1) == False, x)  # noqa: E712
    return self.nn.mean(x * kept, 1)


def _places(change: Callable[[int], np.ndarray]) -> Plant:
    def embedded(self, tokens):
        places = self.nn.constant(change(tokens.shape[1]), like=tokens)
        return self.embedding(tokens) + self.positions(places)

    return with_methods("", embedded=embedded)


def _no_places(self, tokens):
    return self.embedding(tokens)


def _scaled_tokens(self, tokens):
    """Tokens times the root of their width, as in the paper."""
    places = self.nn.constant(np.arange(tokens.shape[1]), like=tokens)
    return self.embedding(tokens) * math.sqrt(6.0) + self.positions(places)


def _forward(run: Callable[..., Any]) -> Plant:
    """The network with its blocks in another order."""

    def forward(self, tokens):
        padding = self.padding(tokens)

        def attend(x):
            mask = self.mask(tokens, x)
            return self.attention(
                x, x, x, key_padding_mask=padding, attn_mask=mask, need_weights=False
            )[0]

        return self.fc(self.pooled(run(self, self.embedded(tokens), attend), padding))

    return with_methods("", forward=forward)


def _norm_afterwards(net: Any, x: Any, attend: Callable[..., Any]) -> Any:
    return net.norm(x + attend(x))


def _skip_around_norm(net: Any, x: Any, attend: Callable[..., Any]) -> Any:
    return x + attend(net.norm(x))


def _no_skip(net: Any, x: Any, attend: Callable[..., Any]) -> Any:
    return attend(net.norm(x))


def _attended_twice(net: Any, x: Any, attend: Callable[..., Any]) -> Any:
    x = net.norm(x)
    return x + attend(attend(x))


def _mha(name: str, plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"attention: {name}", "attention", plant, ("attention",), cause, "attention")


def _around(name: str, place: tuple[str, ...], plant: Plant, *cause: str) -> Mistake:
    return Mistake(f"tokens: {name}", "attention", plant, place, cause, "attention")


_SWAPPED_PARTS = {
    "queries and keys exchanged": lambda q, k, v: (k, q, v),
    "keys and values exchanged": lambda q, k, v: (q, v, k),
    "queries and values exchanged": lambda q, k, v: (v, k, q),
    "queries in the place of keys": lambda q, k, v: (q, q, v),
    "keys in the place of values": lambda q, k, v: (q, k, k),
}

MISTAKES = [
    _mha("softmax over the queries", _attention(_over_queries), "softmax", "axis", "quer"),
    _mha("softmax over the heads", _attention(_over_heads), "softmax", "axis", "heads"),
    _mha("no scale", _attention(_scaled(lambda q, k: 1.0)), "scale"),
    _mha(
        "scale by the width of all heads",
        _attention(_scaled(lambda q, k: 1.0 / math.sqrt(6.0))),
        "scale",
    ),
    _mha(
        "scale by the width, not its root",
        _attention(_scaled(lambda q, k: 1.0 / q.shape[-1])),
        "scale",
    ),
    _mha(
        "scale twice", _attention(_scaled(lambda q, k: 1.0 / math.sqrt(q.shape[-1]) ** 4)), "scale"
    ),
    _mha(
        "scale by the number of heads",
        _attention(_scaled(lambda q, k: 1.0 / math.sqrt(q.shape[1]))),
        "scale",
    ),
    _mha(
        "scale by the number of keys",
        _attention(_scaled(lambda q, k: 1.0 / math.sqrt(k.shape[2]))),
        "scale",
    ),
    _mha("scale 0.6, which no framework has", _attention(_scaled(lambda q, k: 0.6)), "scale"),
    _mha("forbidden scores of -1", _attention(_soft_mask(-1.0)), "mask"),
    _mha("forbidden scores of -10", _attention(_soft_mask(-10.0)), "mask"),
    _mha("masked after the softmax", _attention(_masked_afterwards), "mask"),
    _mha("padding seen", _attention(padding=_no_padding), "padding", "mask"),
    _mha(
        "padding mask inverted",
        _attention(
            lambda nn, q, k, v, bias, mask: _core(nn, q, k, v, nn.clip(bias, -30.0, 0.0), mask),
            padding=_upside_down,
        ),
        "padding",
        "mask",
        "invert",
    ),
    _mha("dropout of scores", _attention(_dropped_before), "dropout"),
    _mha("weights rescaled after dropout", _attention(_dropped_after), "dropout", "rescal", "sum"),
    _mha("no dropout", _attention(dropped=False), "dropout"),
    _mha("one more in the denominator", _attention(_one_more_key), "denominator", "one"),
    _mha("no gradient of the weights", _attention(_no_gradient_of_weights), "gradient"),
    _mha(
        "heads joined without moving their axis",
        _attention(merged=lambda nn, y: y),
        "head",
        "permut",
        "order",
    ),
    _mha(
        "heads interleaved when joined",
        _attention(merged=lambda nn, y: nn.permute(y, (0, 2, 3, 1))),
        "head",
        "interleav",
        "order",
    ),
    *(
        _mha(name, _attention(parts=parts), "exchanged", "quer", "key", "value", "order")
        for name, parts in _SWAPPED_PARTS.items()
    ),
    _mha(
        "heads, then parts, in the packed weights",
        _packed_as((1, 0, 2), _in_order),
        "pack",
        "order",
        "interleav",
    ),
    _mha(
        "width, then heads, in the packed weights",
        _packed_as((0, 2, 1), _in_order),
        "pack",
        "order",
        "interleav",
        "heads",
    ),
    _mha(
        "parts last in the packed weights",
        _packed_as((1, 2, 0), _in_order),
        "pack",
        "order",
        "interleav",
    ),
    _mha("no bias of the projections", _attention(_project_packed=_no_input_bias), "bias"),
    Mistake(
        "attention: no output projection",
        "attention",
        with_methods("attention.out_proj", forward=lambda self, x: x),
        ("out_proj", "attention"),
        ("projection", "identity", "unchanged"),
        "attention",
    ),
    Mistake(
        "attention: no bias of the output projection",
        "attention",
        with_methods("attention.out_proj", forward=lambda self, x: self.nn.linear(x, self.weight)),
        ("out_proj", "attention"),
        ("bias",),
        "attention",
    ),
    _around("all tokens seen", ("attention", "Attention"), _seen(lambda d: d < 99), "mask"),
    _around(
        "earlier tokens seen only",
        ("attention", "Attention"),
        _seen(lambda d: d <= 0),
        "mask",
        "causal",
    ),
    _around(
        "later tokens seen only",
        ("attention", "Attention"),
        _seen(lambda d: d >= 0),
        "mask",
        "causal",
    ),
    _around(
        "one token less seen",
        ("attention", "Attention"),
        _seen(lambda d: np.abs(d) <= 1),
        "mask",
        "off by one",
    ),
    _around(
        "not seen by itself",
        ("attention", "Attention"),
        _seen(lambda d: (np.abs(d) <= 2) & (d != 0)),
        "mask",
    ),
    _around(
        "mean over padding too",
        ("fc", "Attention", "sum", "mean"),
        with_methods("", pooled=_mean_of_all),
        "mean",
        "padding",
    ),
    _around(
        "sum without padding, divided by all",
        ("fc", "Attention", "sum", "mean"),
        with_methods("", pooled=_kept_but_divided_by_all),
        "mean",
        "padding",
        "divided",
    ),
    _around(
        "the first token alone",
        ("fc", "Attention", "sum", "mean"),
        with_methods("", pooled=_first_token),
        "token",
        "first",
    ),
    _around(
        "positions from one on",
        ("positions", "Attention"),
        _places(lambda n: (np.arange(n) + 1) % 5),
        "position",
        "off by one",
        "input",
    ),
    _around(
        "positions backwards",
        ("positions", "Attention"),
        _places(lambda n: np.arange(n)[::-1].copy()),
        "position",
        "revers",
        "input",
    ),
    _around(
        "one position for all",
        ("positions", "Attention"),
        _places(lambda n: np.zeros(n, np.int64)),
        "position",
        "input",
    ),
    _around(
        "no positions",
        ("positions", "Attention", "norm"),
        with_methods("", embedded=_no_places),
        "position",
        "missing",
        "input",
    ),
    _around(
        "times the root of their width",
        ("norm", "Attention"),
        with_methods("", embedded=_scaled_tokens),
        "scale",
        "width",
        "input",
    ),
    _around(
        "norm after the sum",
        ("norm", "attention", "Attention"),
        _forward(_norm_afterwards),
        "order",
        "norm",
        "input",
    ),
    _around(
        "norm within the branch",
        ("Attention", "fc", "add"),
        _forward(_skip_around_norm),
        "skip",
        "shortcut",
        "residual",
        "input",
    ),
    _around(
        "no shortcut",
        ("Attention", "fc", "add"),
        _forward(_no_skip),
        "skip",
        "shortcut",
        "residual",
        "input",
    ),
    _around(
        "attended twice", ("attention", "Attention"), _forward(_attended_twice), "twice", "call"
    ),
    _around(
        "padding is the last word",
        ("attention", "Attention"),
        with_methods("", padding=lambda self, tokens: tokens == 10),
        "padding",
        "mask",
    ),
]
