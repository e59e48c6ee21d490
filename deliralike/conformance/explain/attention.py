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
    rules,
    setting,
    values,
)
from deliralike.conformance.explain.enumeration import divisors
from deliralike.conformance.explain.stand_in import StandIn

_PARTS = ("query", "key", "value")


def _attend(rule: Arguments, nn: Any, *given: Any, **named: Any) -> tuple[Any, Any]:
    """The function of `nn` by the rules that are given."""
    *parts, bias, mask = (*given, None, None)[:5]
    q, k, v = parts
    scale = rule.get("scale")
    if scale is None:
        scale = q.shape[-1] ** -0.5
    scores = nn.matmul(q, nn.transpose(k, -1, -2)) * scale
    if "causal" in rule:
        allowed = np.tri(q.shape[-2], k.shape[-2], dtype=bool)
        causal = nn.constant(np.where(allowed, 0.0, -np.inf), like=q)
        bias = causal if bias is None else bias + causal
    if bias is not None:
        scores = scores + bias
    weights = scores
    if rule.get("weigh") != "none":
        weights = nn.softmax(scores, rule.get("axis", -1))
    masked = weights if mask is None else weights * mask
    return nn.matmul(masked, v), weights


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
        "attention_dropout": SimpleNamespace(
            p=given["dropout"], training=given["training"], block_path=place
        ),
        "out_proj": lambda y: nn.linear(
            y, given["out_proj.weight"], given.get("out_proj.bias")
        ),
    }
    layer = StandIn("MultiheadAttention", _Attending(nn, rule), {**given, **beside})
    named = {name: given.get(name) for name in ("key_padding_mask", "attn_mask")}
    for name in ("need_weights", "average_attn_weights"):
        named[name] = given[name]
    return layer.forward(*(given[name] for name in _PARTS), **named)


# What is known
# -----------------------------------------------------------------------------

_SOFTMAX = {
    "over the queries (axis -2) instead of the keys": {"axis": -2},
    "over the heads (axis -3)": {"axis": -3},
    "missing": {"weigh": "none"},
}


def attention(given: Arguments) -> Known:
    """The function of `nn`."""
    width = given["query"].shape[-1]
    return _function, _of_scores("scale", width, width, given.get("scale"))


def multihead(given: Arguments) -> Known:
    """The layer, with its projections and heads."""
    heads, whole = given["num_heads"], given["embed_dim"]
    ignored = {}
    for name in ("attn_mask", "key_padding_mask"):
        if given.get(name) is not None:
            ignored[f"{name} ignored"] = {name: None}
    return _multihead, [
        rules("", ignored),
        *_of_scores("factor", whole // heads, whole, None),
        setting("batch_first", (True, False)),
        setting("num_heads", divisors(whole)),
    ]


def _of_scores(
    name: str, width: int, whole: int, scale: float | None
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
    return [
        values(name, others),
        values(name, (usual, 0.5, 1.0), "scale", free=True, usual=usual),
        rules("softmax", _SOFTMAX),
        values("causal", {"that the reference does not have": True}, "causal mask"),
    ]
