"""Conventions of attention: scales, axes, masks, heads and projections."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    number_of,
    rules,
    setting,
)

_PARTS = ("query", "key", "value")
_ROWS = ("part", "head", "width")  # of the packed projection


# The formula
# -----------------------------------------------------------------------------


def _attend(nn: Any, q: Any, k: Any, v: Any, bias: Any, given: Arguments) -> tuple[Any, Any, Any]:
    """Outputs ``(..., tokens, width)``, and the weights before and after their dropout."""
    scale = q.shape[-1] ** -0.5 if given.get("scale") is None else given["scale"]
    scores = nn.matmul(q, nn.transpose(k, -1, -2))
    scores = nn.stop_gradient(scores) if given.get("constant") else scores
    bias, axis = _masked(nn, bias, scores, given), given.get("axis", -1)
    when, dropped, drop = given.get("mask when", ""), given.get("dropped"), given.get("drop")
    if when == "before scaling" and bias is not None:
        scores, bias = scores + bias, None
    scores = scores * scale
    if drop == "scores" and dropped is not None:
        scores, dropped = scores * dropped, None
    if bias is not None and when != "after the softmax":
        if axis != -1:  # no column may be forbidden altogether
            bias = nn.clip(bias, -30.0, 0.0)
        scores = scores + bias
    weights = _weights(nn, scores, given.get("weigh", "softmax"), axis)
    if bias is not None and when == "after the softmax":
        weights = weights * nn.exp(bias)
    used = weights if dropped is None or drop == "nothing" else weights * dropped
    if drop == "and rescaled":
        used = used / (nn.sum(used, -1, keepdim=True) + 1e-9)
    return nn.matmul(used, v), weights, used


def _weights(nn: Any, scores: Any, how: str, axis: int) -> Any:
    if how == "one more":
        e = nn.exp(scores)
        return e / (1.0 + nn.sum(e, axis, keepdim=True))
    if how == "float32":
        return nn.cast(nn.softmax(nn.cast(scores, "float32"), axis), scores)
    return scores if how == "none" else nn.softmax(scores, axis)


def _masked(nn: Any, bias: Any, scores: Any, given: Arguments) -> Any:
    """What is added to the scores: the given term, or another one."""
    if "seen" in given:
        allowed = np.tri(*tuple(scores.shape[-2:]))
        allowed = allowed if given["seen"] == "past" else allowed[::-1, ::-1]
        causal = nn.constant(np.where(allowed > 0, 0.0, -np.inf), like=scores)
        return causal if bias is None else bias + causal
    if bias is not None and given.get("least score") is not None:
        bias = nn.clip(bias, given["least score"], 0.0)
    return bias


def _function(nn: Any, given: Arguments) -> Any:
    q, k, v = (given[_PARTS[i]] for i in given.get("picked", (0, 1, 2)))
    rule = {"dropped": given.get("weights_mask"), **given}
    y, weights, _ = _attend(nn, q, k, v, given.get("bias"), rule)
    return y, weights if given["need_weights"] else None


def _multihead(nn: Any, given: Arguments) -> Any:
    """Multi-head attention as `deliralike.nn.layers.attention`, by rules of its own."""
    heads = given["num_heads"]
    tokens = [
        given[name] if given["batch_first"] else nn.permute(given[name], (1, 0, 2))
        for name in _PARTS
    ]
    packed = _rows(given)
    made = [_projected(nn, given, x, rows) for x, rows in zip(tokens, packed, strict=True)]
    q, k, v = (made[i] for i in given.get("picked", (0, 1, 2)))
    rule = {"dropped": _dropped(nn, given, q, k), **given}
    y, _, weights = _attend(nn, q, k, v, _term(nn, given, q, k.shape[2]), rule)
    y = _merged(nn, given, y, tuple(tokens[0].shape), heads)
    if given.get("projected", True):
        y = nn.linear(y, given["out_proj.weight"], given.get("out_proj.bias"))
    y = y if given["batch_first"] else nn.permute(y, (1, 0, 2))
    if not given["need_weights"]:
        return y, None
    return y, nn.mean(weights, 1) if given["average_attn_weights"] else weights


def _rows(given: Arguments) -> Sequence[np.ndarray]:
    """The rows of the packed projection that make queries, keys and values."""
    width, heads, packed = given["embed_dim"], given["num_heads"], given.get("packed", _ROWS)
    sizes = {"part": 3, "head": heads, "width": width // heads}
    rows = np.arange(3 * width).reshape([sizes[axis] for axis in packed])
    rows = rows.transpose([packed.index(axis) for axis in _ROWS]).reshape(3, width)
    return [rows[part] for part in given.get("order", (0, 1, 2))]


def _projected(nn: Any, given: Arguments, x: Any, rows: np.ndarray) -> Any:
    """Tokens after their part of the packed projection: ``(batch, heads, tokens, width)``."""
    weight, bias = given["in_proj_weight"], given.get("in_proj_bias")
    index = nn.constant(rows, like=weight)
    bias = None if bias is None else nn.select(bias, index, 0)
    y = nn.linear(x, nn.select(weight, index, 0), bias)
    batch, tokens = x.shape[:2]
    heads, split = given["num_heads"], given.get("split", "major")
    if split == "none":
        return nn.reshape(y, (batch, heads, tokens, -1))
    if split == "minor":
        return nn.permute(nn.reshape(y, (batch, tokens, -1, heads)), (0, 3, 1, 2))
    return nn.permute(nn.reshape(y, (batch, tokens, heads, -1)), (0, 2, 1, 3))


def _merged(nn: Any, given: Arguments, y: Any, shape: tuple[int, ...], heads: int) -> Any:
    """The heads side by side."""
    merge = given.get("merge", "major")
    if merge != "none":
        y = nn.permute(y, (0, 2, 3, 1) if merge == "minor" else (0, 2, 1, 3))
    return nn.reshape(y, shape)


def _dropped(nn: Any, given: Arguments, q: Any, k: Any) -> Any:
    """The reference's own mask of the weights, scaled; None where nothing is dropped."""
    p = given["dropout"] if given["training"] else 0.0
    if not p:
        return None
    place = SimpleNamespace(block_path=f"{given['path']}.attention_dropout".lstrip("."))
    scale = 1.0 / (1.0 - p) if p < 1 else 0.0
    return nn.keep_mask(place, (*q.shape[:3], k.shape[2]), p, q) * scale


def _term(nn: Any, given: Arguments, q: Any, keys: int) -> Any:
    """Both masks as one term of the scores; None without any."""
    batch, heads, queries, _ = q.shape
    total = None
    for name, shape in (
        ("attn_mask", (-1, heads, queries, keys)),
        ("key_padding_mask", (batch, 1, 1, keys)),
    ):
        mask = given.get(name)
        if mask is None:
            continue
        inverted = name in given.get("inverted", ())
        if "bool" in str(mask.dtype):
            low, zero = (nn.constant(np.array(value), like=q) for value in (-np.inf, 0.0))
            mask = nn.where(mask, zero, low) if inverted else nn.where(mask, low, zero)
        elif inverted:
            mask = -mask
        is_shared = name == "attn_mask" and len(mask.shape) == 2
        mask = nn.reshape(mask, (1, 1, queries, keys) if is_shared else shape)
        total = mask if total is None else total + mask
    return total


# What is known
# -----------------------------------------------------------------------------

_SOFTMAX = {
    "over the queries (axis -2) instead of the keys": {"axis": -2},
    "over the heads (axis -3)": {"axis": -3},
    "missing": {"weigh": "none"},
    "in float32": {"weigh": "float32"},
    "with one more in the denominator": {"weigh": "one more"},
}
_DROPOUT = {
    "missing": {"drop": "nothing"},
    "of the scores instead of the weights": {"drop": "scores"},
    "after which weights are rescaled to a sum of one": {"drop": "and rescaled"},
}
_MASK = {
    "applied after the softmax": {"mask when": "after the softmax"},
    "added before scaling": {"mask when": "before scaling"},
}
_CAUSAL = {
    "that the reference does not have": {"seen": "past"},
    "of the future instead of the past": {"seen": "future"},
}
_HEADS = {
    "merged wrongly (heads and tokens not exchanged back)": {"merge": "none"},
    "merged wrongly (heads as the minor axis)": {"merge": "minor"},
    "split as the minor axis of the width": {"split": "minor"},
    "split and merged as the minor axis of the width": {"split": "minor", "merge": "minor"},
    "split without exchanging heads and tokens": {"split": "none"},
    "split and merged without exchanging heads and tokens": {"split": "none", "merge": "none"},
}


def attention(given: Arguments) -> tuple[Formula, list[Convention]]:
    """The function of `nn`."""
    return _function, _of_scores(given, given["query"].shape[-1], 1, given.get("bias") is not None)


def multihead(given: Arguments) -> tuple[Formula, list[Convention]]:
    """The layer, with its projections and heads."""
    heads, whole = given["num_heads"], given["embed_dim"]
    masks = [name for name in ("attn_mask", "key_padding_mask") if given.get(name) is not None]
    ignored = {f"{name} ignored": {name: None} for name in masks}
    inverted: dict[str, dict[str, Any]] = {
        f"{name} inverted": {"inverted": (name,)} for name in masks
    }
    # A row that is forbidden altogether has no numbers with minus infinity.
    floors = [(name, least) for name in masks for least in (-1e4, -1e9, -30.0)]
    inverted |= {
        f"{name} inverted, forbidden scores of {least:g}": {
            "inverted": (name,),
            "least score": least,
        }
        for name, least in floors
    }
    rows = [order for order in permutations(_ROWS) if order != _ROWS]
    packed = {", ".join(order): {"packed": order} for order in rows}
    orders = {
        ", ".join("qkv"[order.index(i)] for i in range(3)): {"order": order}
        for order in permutations(range(3))
    }
    counts = [count for count in range(1, whole + 1) if whole % count == 0]
    return _multihead, [
        rules("", ignored | inverted),
        *_of_scores(given, whole // heads, heads, bool(masks)),
        rules("heads", _HEADS),
        rules("rows of the packed projection in the order", packed, usual=", ".join(_ROWS)),
        rules("packed projection in the order", orders, usual="q, k, v"),
        rules("output", {"not projected (out_proj missing)": {"projected": False}}),
        setting("batch_first", (True, False)),
        setting("average_attn_weights", (True, False)),
        setting("num_heads", counts),
    ]


def _of_scores(given: Arguments, width: int, heads: int, masked: bool) -> list[Convention]:
    """What is known of scores and weights, with or without heads."""
    usual = given.get("scale") or width**-0.5
    scales = {
        "no scale": 1.0,
        f"scale 1/sqrt({width * heads}) (whole width) instead of 1/sqrt({width})": (
            (width * heads) ** -0.5
        ),
        f"scale 1/{width} instead of 1/sqrt({width})": 1.0 / width,
        f"scale sqrt({width}) instead of 1/sqrt({width})": width**0.5,
    }
    named = {words: {"scale": one} for words, one in scales.items() if abs(one - usual) > 1e-12}
    picked = {_picked(some): {"picked": some} for some in product(range(3), repeat=3)}
    del picked[""]
    found = [
        rules("", named),
        rules("softmax", _SOFTMAX),
        rules("causal mask", _CAUSAL),
        rules("dropout", _DROPOUT),
        rules("no gradient", {"of queries and keys": {"constant": True}}),
        number_of("scale", "scale", alternatives=(usual, 0.5, 1.0), usual=usual),
        rules("", picked),
    ]
    if masked:
        found += [rules("mask", _MASK), rules("mask:", _FLOORS)]
    return found


def _picked(some: Sequence[int]) -> str:
    """Which of queries, keys and values take which places; no words for the usual ones."""
    names = ("queries", "keys", "values")
    pairs = zip(names, some, strict=True)
    return ", ".join(f"{names[i]} in the place of {name}" for name, i in pairs if names[i] != name)


_FLOORS = {
    f"forbidden scores of {least:g} instead of minus infinity": {"least score": least}
    for least in (-1e4, -1e9, -100.0, -10.0, -1.0)
}
