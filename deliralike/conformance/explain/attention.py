"""Conventions of attention: scales, axes, masks, positions, heads and projections.

It is a function, or a layer with packed projections.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
    rules,
    setting,
    values,
)
from deliralike.conformance.explain.enumeration import divisors, other_orders
from deliralike.conformance.kinds import Shape

_PARTS = ("query", "key", "value")
_ROWS = ("part", "head", "width")  # of the packed projection


# What all kinds share
# -----------------------------------------------------------------------------


def _attend(nn: Any, q: Any, k: Any, v: Any, bias: Any, given: Arguments) -> tuple[Any, Any, Any]:
    """Outputs ``(..., tokens, width)``, and the weights before and after their dropout."""
    axis = given.get("axis", -1)
    bias = _masked(nn, bias, q, k, given)
    scores = _scores(nn, q, k, given)
    if bias is not None:
        # no column may be forbidden altogether
        scores = scores + (bias if axis == -1 else nn.clip(bias, -30.0, 0.0))
    weights = scores if given.get("weigh") == "none" else nn.softmax(scores, axis)
    dropped, used = given.get("dropped"), weights
    if dropped is not None and given.get("drop") != "nothing":
        used = weights * dropped
    return nn.matmul(used, v), weights, used


def _scores(nn: Any, q: Any, k: Any, given: Arguments) -> Any:
    scale = given.get("scale")
    if scale is None:
        scale = q.shape[-1] ** -0.5
    return nn.matmul(q, nn.transpose(k, -1, -2)) * scale


def _masked(nn: Any, bias: Any, q: Any, k: Any, given: Arguments) -> Any:
    """What is added to the scores: the given term, or another one."""
    if "shift" in given:  # how far a token sees; of the future where it is turned round
        allowed = np.tri(q.shape[-2], k.shape[-2], given["shift"], bool)
        if given.get("future"):
            allowed = np.tri(k.shape[-2], q.shape[-2], given["shift"], bool).T
        causal = nn.constant(np.where(allowed, 0.0, -np.inf), like=q)
        return causal if bias is None else bias + causal
    if bias is not None and given.get("least score") is not None:
        bias = nn.clip(bias, given["least score"], 0.0)
    return bias


def _split(nn: Any, x: Any, heads: int, how: str) -> Any:
    """``(batch, tokens, heads * width)`` as ``(batch, heads, tokens, width)``."""
    batch, tokens = x.shape[:2]
    if how == "none":
        return nn.reshape(x, (batch, heads, tokens, -1))
    if how == "minor":
        x = nn.reshape(x, (batch, tokens, -1, heads))
        return nn.permute(x, (0, 3, 1, 2))
    x = nn.reshape(x, (batch, tokens, heads, -1))
    return nn.permute(x, (0, 2, 1, 3))


def _merged(nn: Any, y: Any, shape: Shape, how: str) -> Any:
    """The heads side by side."""
    if how == "minor":
        y = nn.permute(y, (0, 2, 3, 1))
    elif how == "major":
        y = nn.permute(y, (0, 2, 1, 3))
    return nn.reshape(y, shape)


# The function and the layer
# -----------------------------------------------------------------------------


def _function(nn: Any, given: Arguments) -> Any:
    q, k, v = (given[_PARTS[i]] for i in given.get("picked", (0, 1, 2)))
    rule = {"dropped": given.get("weights_mask"), **given}
    y, weights, _ = _attend(nn, q, k, v, given.get("bias"), rule)
    return y, weights if given["need_weights"] else None


def _multihead(nn: Any, given: Arguments) -> Any:
    """Multi-head attention as `deliralike.nn.layers.attention`, by rules of its own."""
    tokens = [_batch_first(nn, given, given[name]) for name in _PARTS]
    packed = _rows(given)
    made = [_projected(nn, given, x, rows) for x, rows in zip(tokens, packed, strict=True)]
    q, k, v = (made[i] for i in given.get("picked", (0, 1, 2)))
    rule = {"dropped": _dropped(nn, given, q, k), **given}
    y, _, weights = _attend(nn, q, k, v, _term(nn, given, q, k.shape[2]), rule)
    y = _merged(nn, y, tuple(tokens[0].shape), given.get("merge", "major"))
    if given.get("projected", True):
        y = nn.linear(y, given["out_proj.weight"], given.get("out_proj.bias"))
    y = _batch_first(nn, given, y)
    if not given["need_weights"]:
        return y, None
    return y, nn.mean(weights, 1) if given["average_attn_weights"] else weights


def _batch_first(nn: Any, given: Arguments, x: Any) -> Any:
    """Tokens as ``(batch, tokens, width)``, or back in the order of the axes that is given."""
    return x if given["batch_first"] else nn.permute(x, (1, 0, 2))


def _rows(given: Arguments) -> Sequence[np.ndarray]:
    """The rows of the packed projection that make queries, keys and values."""
    width, heads = given["embed_dim"], given["num_heads"]
    rows = _parts_of(heads, width // heads, given.get("packed", _ROWS))
    return [rows[part] for part in given.get("order", (0, 1, 2))]


def _parts_of(heads: int, width: int, packed: Sequence[str]) -> np.ndarray:
    """Where the three parts of a packed projection are: ``(3, heads * width)``."""
    sizes = {"part": 3, "head": heads, "width": width}
    rows = np.arange(3 * heads * width).reshape([sizes[axis] for axis in packed])
    return rows.transpose([packed.index(axis) for axis in _ROWS]).reshape(3, heads * width)


def _projected(nn: Any, given: Arguments, x: Any, rows: np.ndarray) -> Any:
    """Tokens after their part of the packed projection: ``(batch, heads, tokens, width)``."""
    weight, bias = given["in_proj_weight"], given.get("in_proj_bias")
    index = nn.constant(rows, like=weight)
    if bias is not None:
        bias = nn.select(bias, index, 0)
    y = nn.linear(x, nn.select(weight, index, 0), bias)
    return _split(nn, y, given["num_heads"], given.get("split", "major"))


def _dropped(nn: Any, given: Arguments, q: Any, k: Any) -> Any:
    """The reference's own mask of the weights, scaled; None where nothing is dropped."""
    p = given["dropout"]
    if not p or not given["training"]:
        return None
    place = SimpleNamespace(block_path=f"{given['path']}.attention_dropout".lstrip("."))
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    return nn.keep_mask(place, (*q.shape[:3], k.shape[2]), p, q) * scale


def _term(nn: Any, given: Arguments, q: Any, keys: int) -> Any:
    """Both masks as one term of the scores; None without any."""
    batch, heads, queries, _ = q.shape
    shape, shared = (-1, heads, queries, keys), given.get("attn_mask")
    if shared is not None and len(shared.shape) == 2:  # the same for all
        shape = (1, 1, queries, keys)
    total = None
    for name, its in (("attn_mask", shape), ("key_padding_mask", (batch, 1, 1, keys))):
        mask = given.get(name)
        if mask is None:
            continue
        mask = nn.reshape(_added(nn, mask, name in given.get("inverted", ()), q), its)
        total = mask if total is None else total + mask
    return total


def _added(nn: Any, mask: Any, is_inverted: bool, like: Any) -> Any:
    """What a mask adds to scores: its own numbers, or minus infinity where it is true."""
    if "bool" not in str(mask.dtype):
        return -mask if is_inverted else mask
    forbidden, seen = (nn.constant(np.array(value), like=like) for value in (-np.inf, 0.0))
    if is_inverted:
        return nn.where(mask, seen, forbidden)
    return nn.where(mask, forbidden, seen)


# What is known
# -----------------------------------------------------------------------------

_AXES = {
    "over the queries (axis -2) instead of the keys": -2,
    "over the heads (axis -3)": -3,
}
_WEIGHTS = {"missing": "none"}
_SOFTMAX = [values("axis", _AXES, "softmax"), values("weigh", _WEIGHTS, "softmax")]
_FLOORS = {
    f"forbidden scores of {least:g} instead of minus infinity": least for least in (-1e4, -1e9)
}
_MASK = [
    values("least score", _FLOORS, "mask:"),
]
_CAUSAL = {
    "that the reference does not have": {"shift": 0},
    "of the future instead of the past": {"shift": 0, "future": True},
}
_HEADS = {
    "merged wrongly (heads and tokens not exchanged back)": {"merge": "none"},
    "merged wrongly (heads as the minor axis)": {"merge": "minor"},
    "split and merged as the minor axis of the width": {"split": "minor", "merge": "minor"},
    "split and merged without exchanging heads and tokens": {"split": "none", "merge": "none"},
}


def attention(given: Arguments) -> Known:
    """The function of `nn`."""
    width = given["query"].shape[-1]
    return _function, _of_scores(width, width, given.get("scale"), given.get("bias") is not None)


def multihead(given: Arguments) -> Known:
    """The layer, with its projections and heads."""
    heads, whole = given["num_heads"], given["embed_dim"]
    masks = [name for name in ("attn_mask", "key_padding_mask") if given.get(name) is not None]
    treated: dict[str, dict[str, Any]] = {f"{name} ignored": {name: None} for name in masks}
    for name in masks:
        treated[f"{name} inverted"] = {"inverted": (name,)}
        # A row that is forbidden altogether has no numbers with minus infinity.
        finite = {"inverted": (name,), "least score": -1e9}
        treated[f"{name} inverted, forbidden scores of -1e9"] = finite
    orders = {}
    for order in other_orders(3):
        words = ", ".join("qkv"[order.index(i)] for i in range(3))
        orders[words] = order
    return _multihead, [
        rules("", treated),
        *_of_scores(whole // heads, whole, None, bool(masks)),
        rules("heads", _HEADS),
        _packings(),
        values("order", orders, "packed projection in the order", usual="q, k, v"),
        values("projected", {"not projected (out_proj missing)": False}, "output"),
        setting("batch_first", (True, False)),
        setting("average_attn_weights", (True, False)),
        setting("num_heads", divisors(whole)),
    ]


def _packings() -> Convention:
    """Other orders of the axes that a packed projection is split into."""
    packed = {", ".join(order): order for order in permutations(_ROWS)}
    words = "rows of the packed projection in the order"
    return values("packed", packed, words, usual=", ".join(_ROWS))


def _of_scores(width: int, whole: int, scale: float | None, masked: bool) -> list[Convention]:
    """What is known of scores and weights, with or without heads."""
    picked = {_in_place(some): some for some in other_orders(3)}
    found = [
        *_scales(width, whole, scale),
        *_SOFTMAX,
        rules("causal mask", _CAUSAL),
        values("drop", {"missing": "nothing"}, "dropout"),
        values("picked", picked),
    ]
    return [*found, *_MASK] if masked else found


def _scales(width: int, whole: int, scale: float | None) -> list[Convention]:
    """Other factors of the scores; `whole` is the width of all heads together."""
    usual = width**-0.5 if scale is None else scale
    known = {
        f"no scale instead of {usual:.10g}": 1.0,
        f"scale 1/sqrt({whole}) (whole width) instead of {usual:.10g}": whole**-0.5,
        f"scale 1/{width} instead of {usual:.10g}": 1.0 / width,
        f"scale sqrt({width}) instead of {usual:.10g}": width**0.5,
        f"scale 1/sqrt({width}) instead of {usual:.10g}": width**-0.5,
    }
    others = {words: one for words, one in known.items() if abs(one - usual) > 1e-12}
    return [
        values("scale", others),
        values("scale", (usual, 0.5, 1.0), "scale", free=True, usual=usual),
    ]


def _in_place(some: Sequence[int]) -> str:
    """Which of queries, keys and values take which places; no words for the usual ones."""
    names = ("queries", "keys", "values")
    moved, said = [], []
    for name, came in zip(names, some, strict=True):
        if names[came] != name:
            moved.append(name)
            said.append(f"{names[came]} in the place of {name}")
    words = ", ".join(said)
    if len(moved) != 2 or len(set(some)) < 3:
        return words
    return f"{' and '.join(moved)} exchanged ({words})"
