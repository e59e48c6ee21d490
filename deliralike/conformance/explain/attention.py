"""Conventions of attention: scales, axes, masks, heads and projections.

It is a function, or a layer with packed projections that calls that function.
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
    changing,
    rules,
    setting,
    values,
)
from deliralike.conformance.explain.enumeration import divisors, other_orders
from deliralike.conformance.explain.stand_in import StandIn

_PARTS = ("query", "key", "value")
_FLOOR = (
    -30.0
)  # of a mask, where the softmax is over another axis and no column may be empty


def _attend(rule: Arguments, nn: Any, *given: Any, **named: Any) -> tuple[Any, Any]:
    """The function of `nn` by the rules that are given."""
    *parts, bias, mask = (*given, None, None)[:5]
    q, k, v = (parts[i] for i in rule.get("picked", (0, 1, 2)))
    scale, axis = rule.get("scale"), rule.get("axis", -1)
    scores = nn.matmul(q, nn.transpose(k, -1, -2))
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if "causal" in rule:
        allowed = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        causal = nn.constant(np.where(allowed, 0.0, -np.inf), like=q)
        bias = causal if bias is None else bias + causal
    if bias is not None:
        least = rule.get("least score", None if axis == -1 else _FLOOR)
        scores = scores + (bias if least is None else nn.clip(bias, least, 0.0))
    weights = scores if rule.get("weigh") == "none" else nn.softmax(scores, axis)
    dropped = mask is not None and not rule.get("undropped")
    return nn.matmul(weights * mask if dropped else weights, v), weights


def _function(nn: Any, given: Arguments) -> Any:
    parts = [given[name] for name in _PARTS]
    y, weights = _attend(
        given, nn, *parts, given.get("bias"), given.get("weights_mask")
    )
    return y, weights if given["need_weights"] else None


class _Attending:
    """The functions of `nn`, with attention by other rules."""

    def __init__(self, nn: Any, rule: Arguments) -> None:
        self._nn, self.attention = nn, partial(_attend, rule, nn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nn, name)


def _multihead(nn: Any, given: Arguments) -> Any:
    """The layer of `nn`, in which attention and what is given may be others."""
    rule = {
        name: value for name, value in given.items() if name not in ("bias", "scale")
    }
    rule["scale"] = given.get("factor")
    whole, place = given["embed_dim"], f"{given['path']}.attention_dropout".lstrip(".")
    beside = {
        "kdim": given["kdim"] or whole,
        "vdim": given["vdim"] or whole,
        "is_packed": "in_proj_weight" in given,
        "attention_dropout": SimpleNamespace(p=given["dropout"], block_path=place),
        "out_proj": partial(_project, nn, given),
    }
    layer = StandIn("MultiheadAttention", _Attending(nn, rule), {**given, **beside})
    masks = {name: _inverted(given, name) for name in ("key_padding_mask", "attn_mask")}
    wanted = {name: given[name] for name in ("need_weights", "average_attn_weights")}
    return layer.forward(*(given[name] for name in _PARTS), **masks, **wanted)


def _project(nn: Any, given: Arguments, y: Any) -> Any:
    if given.get("unprojected"):
        return y
    return nn.linear(y, given["out_proj.weight"], given.get("out_proj.bias"))


def _inverted(given: Arguments, name: str) -> Any:
    """A mask, or the contrary one."""
    mask = given.get(name)
    if mask is None or given.get("inverted") != name:
        return mask
    return mask == False if "bool" in str(mask.dtype) else -mask  # noqa: E712


# What is known
# -----------------------------------------------------------------------------

_SOFTMAX = {
    "over the queries (axis -2) instead of the keys": {"axis": -2},
    "over the heads (axis -3)": {"axis": -3},
    "missing": {"weigh": "none"},
}
_PICKED = {
    "queries and keys exchanged (keys in the place of queries)": (1, 0, 2),
    "keys and values exchanged (values in the place of keys)": (0, 2, 1),
    "queries and values exchanged (values in the place of queries)": (2, 1, 0),
}


def attention(given: Arguments) -> Known:
    """The function of `nn`."""
    width = given["query"].shape[-1]
    scale = given.get("scale")
    return _function, _of_scores(
        "scale", width, width, scale, given.get("bias") is not None
    )


def multihead(given: Arguments) -> Known:
    """The layer, with its projections and heads."""
    heads, whole = given["num_heads"], given["embed_dim"]
    masks = [
        name
        for name in ("attn_mask", "key_padding_mask")
        if given.get(name) is not None
    ]
    treated: dict[str, dict[str, Any]] = {
        f"{name} ignored": {name: None} for name in masks
    }
    for name in masks:
        treated[f"{name} inverted"] = {"inverted": name}
        # A row that is forbidden altogether has no numbers with minus infinity.
        finite = {"inverted": name, "least score": _FLOOR}
        treated[f"{name} inverted, with scores of {_FLOOR:g}"] = finite
    orders = {
        ", ".join("qkv"[order.index(i)] for i in range(3)): order
        for order in other_orders(3)
    }
    parts = ("in_proj_weight", "in_proj_bias")

    def ordered(nn: Any, given: Arguments, order: Any) -> Arguments:
        found = {}
        for name in parts:
            if given.get(name) is not None:
                thirds = nn.split(given[name], whole, 0)
                found[name] = nn.concatenate([thirds[i] for i in order], 0)
        return found

    return _multihead, [
        rules("", treated),
        *_of_scores("factor", whole // heads, whole, None, bool(masks)),
        Convention(
            "packed projection in the order", orders, changing(ordered), "q, k, v"
        ),
        values("unprojected", {"not projected (out_proj missing)": True}, "output"),
        setting("batch_first", (True, False)),
        setting("num_heads", divisors(whole)),
    ]


def _of_scores(
    name: str, width: int, whole: int, scale: float | None, masked: bool
) -> list[Convention]:
    """What is known of scores and weights; `whole` is the width of all heads together."""
    usual = width**-0.5 if scale is None else scale
    scales = {
        "no scale": 1.0,
        f"scale 1/sqrt({whole}) (whole width)": whole**-0.5,
        f"scale 1/{width}": 1.0 / width,
        f"scale 1/sqrt({width})": width**-0.5,
    }
    others = {}
    for words, one in scales.items():
        if abs(one - usual) > 1e-12:
            others[f"{words} instead of {usual:.10g}"] = one
    found = [
        values(name, others),
        values(name, (usual, 0.5, 1.0), "scale", free=True, usual=usual),
        rules("softmax", _SOFTMAX),
        values("causal", {"that the reference does not have": True}, "causal mask"),
        values("undropped", {"missing": True}, "dropout"),
        values("picked", _PICKED),
    ]
    if masked:
        floors = {}
        for one in (-1e4, -1e9):
            floors[f"forbidden scores of {one:g} instead of minus infinity"] = one
        found.append(values("least score", floors, "mask:"))
    return found
