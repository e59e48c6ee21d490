"""Conventions of attention: scales, axes, masks, positions, heads and projections.

It is a function, or a layer with packed projections.
"""

from __future__ import annotations

from functools import partial
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
from deliralike.nn.layers import LAYERS

_PARTS = ("query", "key", "value")
_LAYER = LAYERS["MultiheadAttention"]


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
    if dropped is not None:
        used = weights * dropped
    return nn.matmul(used, v), weights, used


def _scores(nn: Any, q: Any, k: Any, given: Arguments) -> Any:
    scale = given.get("scale")
    if scale is None:
        scale = q.shape[-1] ** -0.5
    return nn.matmul(q, nn.transpose(k, -1, -2)) * scale


def _masked(nn: Any, bias: Any, q: Any, k: Any, given: Arguments) -> Any:
    """What is added to the scores: the given term, or another one."""
    if "shift" in given:  # how far a token sees
        allowed = np.tri(q.shape[-2], k.shape[-2], given["shift"], bool)
        causal = nn.constant(np.where(allowed, 0.0, -np.inf), like=q)
        return causal if bias is None else bias + causal
    if bias is not None and given.get("least score") is not None:
        bias = nn.clip(bias, given["least score"], 0.0)
    return bias


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
    order = given.get("order", (0, 1, 2))
    made = [_projected(nn, given, x, part) for x, part in zip(tokens, order, strict=True)]
    q, k, v = (made[i] for i in given.get("picked", (0, 1, 2)))
    bias, dropped = _own(nn, given, q, k.shape[2])
    y, _, weights = _attend(nn, q, k, v, bias, {"dropped": dropped, **given})
    y = nn.permute(y, (0, 2, 1, 3)) if given.get("merged", True) else y
    y = nn.reshape(y, tuple(tokens[0].shape))
    if given.get("projected", True):
        y = nn.linear(y, given["out_proj.weight"], given.get("out_proj.bias"))
    y = _batch_first(nn, given, y)
    if not given["need_weights"]:
        return y, None
    return y, nn.mean(weights, 1) if given["average_attn_weights"] else weights


def _batch_first(nn: Any, given: Arguments, x: Any) -> Any:
    """Tokens as ``(batch, tokens, width)``, or back in the order of the axes that is given."""
    return x if given["batch_first"] else nn.permute(x, (1, 0, 2))


def _projected(nn: Any, given: Arguments, x: Any, part: int) -> Any:
    """Tokens after their part of the packed projection: ``(batch, heads, tokens, width)``."""
    width, bias = given["embed_dim"], given.get("in_proj_bias")
    rows = slice(part * width, (part + 1) * width)
    y = nn.linear(x, given["in_proj_weight"][rows], None if bias is None else bias[rows])
    heads = given["num_heads"]
    return nn.permute(nn.reshape(y, (*x.shape[:2], heads, width // heads)), (0, 2, 1, 3))


def _own(nn: Any, given: Arguments, q: Any, keys: int) -> tuple[Any, Any]:
    """The layer's own term of the scores, and its own mask of the weights; None for none."""
    place = f"{given['path']}.attention_dropout".lstrip(".")
    dropout = SimpleNamespace(p=given["dropout"], block_path=place)
    layer = SimpleNamespace(nn=nn, training=given["training"], attention_dropout=dropout)
    layer._scores_term = partial(_LAYER._scores_term, layer)
    masks = []
    for name in ("attn_mask", "key_padding_mask"):
        mask = given.get(name)
        if mask is not None and name in given.get("inverted", ()):
            mask = mask == False if "bool" in str(mask.dtype) else -mask  # noqa: E712
        masks.append(mask)
    bias = _LAYER._bias(layer, q, keys, *masks)
    return bias, _LAYER._dropout_mask(layer, q, SimpleNamespace(shape=(*q.shape[:2], keys)))


# What is known
# -----------------------------------------------------------------------------

_SOFTMAX = {
    "over the queries (axis -2) instead of the keys": {"axis": -2},
    "over the heads (axis -3)": {"axis": -3},
    "missing": {"weigh": "none"},
}
_CAUSAL = {
    "that the reference does not have": {"shift": 0},
}
_PICKED = {
    "queries and keys exchanged (keys in the place of queries)": (1, 0, 2),
    "keys and values exchanged (values in the place of keys)": (0, 2, 1),
    "queries and values exchanged (values in the place of queries)": (2, 1, 0),
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
        orders[", ".join("qkv"[order.index(i)] for i in range(3))] = order
    return _multihead, [
        rules("", treated),
        *_of_scores(whole // heads, whole, None, bool(masks)),
        values("merged", {"merged wrongly (heads and tokens not exchanged back)": False}, "heads"),
        values("order", orders, "packed projection in the order", usual="q, k, v"),
        values("projected", {"not projected (out_proj missing)": False}, "output"),
        setting("batch_first", (True, False)),
        setting("num_heads", divisors(whole)),
    ]


def _of_scores(width: int, whole: int, scale: float | None, masked: bool) -> list[Convention]:
    """What is known of scores and weights; `whole` is the width of all heads together."""
    usual = width**-0.5 if scale is None else scale
    scales = {
        "no scale": 1.0,
        f"scale 1/sqrt({whole}) (whole width)": whole**-0.5,
        f"scale 1/{width}": 1.0 / width,
        f"scale sqrt({width})": width**0.5,
        f"scale 1/sqrt({width})": width**-0.5,
    }
    others = {}
    for words, one in scales.items():
        if abs(one - usual) > 1e-12:
            others[f"{words} instead of {usual:.10g}"] = one
    found = [
        values("scale", others),
        values("scale", (usual, 0.5, 1.0), "scale", free=True, usual=usual),
        rules("softmax", _SOFTMAX),
        rules("causal mask", _CAUSAL),
        values("dropped", {"missing": None}, "dropout"),
        values("picked", _PICKED),
    ]
    if masked:
        floors = {
            f"forbidden scores of {one:g} instead of minus infinity": one for one in (-1e4, -1e9)
        }
        found.append(values("least score", floors, "mask:"))
    return found
