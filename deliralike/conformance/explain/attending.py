"""Conventions of attention: scales, axes, masks, heads and projections."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import Call, Variant, number


def attend(
    nn: Any,
    q: Any,
    k: Any,
    v: Any,
    bias: Any = None,
    *,
    scale: float | None = None,
    axis: int = -1,
    mask: str = "",
    weigh: str = "softmax",
    dropped: Any = None,
    drop: str = "weights",
    constant: str = "",
    finite: float = -1e4,
) -> tuple[Any, Any]:
    """Scaled dot-product attention by one of several rules.

    Args:
        nn: The vocabulary.
        q, k, v: ``(..., tokens, width)``.
        bias: Added to the scores.
        scale: Of the scores.
        axis: Of the softmax.
        mask: What is done to the bias: ``"ignored"``, ``"inverted"``, ``"before scale"``,
            ``"causal"``, ``"causal, strict"``, ``"anticausal"``, ``"finite"``, ``"after"``.
        weigh: ``"softmax"``, ``"sigmoid"``, ``"relu"``, ``"none"``.
        dropped: Multiplied with the weights.
        drop: What it is multiplied with instead: ``"scores"``, ``"and rescaled"`` or ``"nothing"``.
        constant: Which get no gradient, of ``"query key value weights"``.
        finite: The score of what is forbidden, for the masks ``"finite"`` and ``"floor"``.
    """
    q, k, v = (
        nn.stop_gradient(x) if name in constant else x
        for name, x in (("query", q), ("key", k), ("value", v))
    )
    width = q.shape[-1]
    scale = 1.0 / math.sqrt(width) if scale is None else scale
    scores = nn.matmul(q, nn.transpose(k, -1, -2))
    forbidden = None if bias is None else _forbidden(nn, bias)
    shape = tuple(scores.shape[-2:])
    if mask == "inverted" and forbidden is not None:
        bias = nn.where(forbidden, nn.constant(np.array(0.0), like=q), -np.inf)
    if mask.startswith("causal") or mask == "anticausal":
        seen = (
            np.tril(np.ones(shape), -1 if "strict" in mask else 0)
            if "anti" not in mask
            else np.triu(np.ones(shape))
        )
        causal = nn.constant(np.where(seen > 0, 0.0, -np.inf), like=q)
        bias = causal if bias is None else bias + causal
    if mask == "ignored":
        bias = None
    if mask == "finite" and forbidden is not None:
        bias = nn.where(forbidden, finite, bias)
    if mask == "before scale" and bias is not None:
        scores, bias = scores + bias, None
    if mask == "floor" and bias is not None:
        bias = nn.clip(bias, finite, 0.0)
    scores = scores * scale
    if drop == "scores" and dropped is not None:
        scores, dropped = scores * dropped, None
    if axis != -1 and bias is not None:
        bias = nn.clip(bias, -30.0, 0.0)  # so that no column is forbidden altogether
    scores = scores if bias is None or mask == "after" else scores + bias
    if weigh == "softmax":
        weights = nn.softmax(scores, axis)
    else:
        e = nn.exp(scores)
        more = e / (1.0 + nn.sum(e, -1, keepdim=True))
        weights = {
            "one more": lambda x: more,
            "sigmoid": nn.sigmoid,
            "relu": nn.relu,
            "none": lambda x: x,
        }[weigh](scores)
    if mask == "after" and bias is not None:
        weights = weights * nn.exp(bias)
    weights = nn.stop_gradient(weights) if "weights" in constant else weights
    weights = weights if dropped is None or drop == "nothing" else weights * dropped
    if drop == "and rescaled":
        weights = weights / (nn.sum(weights, -1, keepdim=True) + 1e-9)
    return nn.matmul(weights, v), weights


def _forbidden(nn: Any, bias: Any) -> Any:
    return bias < -1e8


def _scales(width: int, heads: int = 1) -> list[tuple[str, float]]:
    """Scales that are known to be mistaken for ``1/sqrt(width)``."""
    every = [
        ("no scale", 1.0),
        (
            f"scale 1/sqrt({width * heads}) (whole width) instead of 1/sqrt({width})",
            (width * heads) ** -0.5,
        ),
        (f"scale 1/{width} instead of 1/sqrt({width})", 1.0 / width),
        (f"scale sqrt({width}) instead of 1/sqrt({width})", width**0.5),
        (f"scale 1/sqrt({heads}) (number of heads) instead of 1/sqrt({width})", heads**-0.5),
    ]
    return [one for one in every if abs(one[1] - width**-0.5) > 1e-12]


RULES: dict[str, dict[str, Any]] = {
    "softmax over the queries (axis -2) instead of the keys": {"axis": -2},
    "softmax over the heads (axis -3)": {"axis": -3},
    "mask inverted": {"mask": "inverted"},
    "mask ignored": {"mask": "ignored"},
    "mask applied after the softmax": {"mask": "after"},
    "mask added before scaling": {"mask": "before scale"},
    "masked scores of -1e4 instead of minus infinity": {"mask": "finite"},
    "causal mask that the reference does not have": {"mask": "causal"},
    "strictly causal mask": {"mask": "causal, strict"},
    "future tokens instead of past ones": {"mask": "anticausal"},
    "no softmax": {"weigh": "none"},
    "one more in the denominator of the softmax": {"weigh": "one more"},
    "dropout missing": {"drop": "nothing"},
    "dropout of the scores instead of the weights": {"drop": "scores"},
    "weights rescaled to a sum of one after dropout": {"drop": "and rescaled"},
    "no gradient of the attention weights": {"constant": "weights"},
    "no gradient of queries and keys": {"constant": "query key"},
    "no gradient of the queries": {"constant": "query"},
    "no gradient of the keys": {"constant": "key"},
    "no gradient of the values": {"constant": "value"},
    **{
        f"mask: forbidden scores of {value} instead of minus infinity": {
            "mask": "floor",
            "finite": value,
        }
        for value in (-1.0, -10.0, -100.0)
    },
    "sigmoid instead of softmax": {"weigh": "sigmoid"},
    "relu instead of softmax": {"weigh": "relu"},
}


def attention(b: Bound) -> Iterator[tuple]:
    """The function of `nn`."""
    width = b["query"].shape[-1]
    usual = b["scale"] or width**-0.5

    def made(
        nn: Any, b: Bound, order: tuple[str, ...] = ("query", "key", "value"), **rule: Any
    ) -> Any:
        q, k, v = (b[name] for name in order)
        rule = {"scale": b["scale"], "dropped": b["weights_mask"]} | rule
        y, weights = attend(nn, q, k, v, b["bias"], **rule)
        return y, weights if b["need_weights"] else None

    for cause, scale in _scales(width):
        yield cause, partial(made, scale=scale)
    for cause, rule in RULES.items():
        yield cause, partial(made, **rule)
    yield (
        f"scale {{}} instead of {number(usual)}",
        lambda nn, b, value: made(nn, b, scale=value),
        (usual, 0.5, 1.0),
    )
    for order in permutations(("query", "key", "value")):
        if order != ("query", "key", "value"):
            yield f"query, key and value taken as {', '.join(order)}", partial(made, order=order)
    yield "weights without their dropout", partial(made, dropped=None)


def multihead(
    call: Call,
    *,
    order: tuple[int, ...] = (0, 1, 2),
    split: str = "",
    merge: str = "",
    packed: tuple[str, ...] = ("part", "head", "width"),
    projected: bool = True,
    mask_of: str = "",
    weights_of: str = "mean",
    batch_first: bool | None = None,
    picked: tuple[int, ...] = (0, 1, 2),
    heads_reversed: bool = False,
    **rule: Any,
) -> Any:
    """Multi-head attention as `deliralike.nn.layers.attention`, by rules of its own.

    Args:
        call: The call.
        order: Of the blocks of queries, keys and values in the packed projection.
        split: ``"minor"`` where heads are the minor axis of the width.
        merge: ``"minor"`` likewise, ``"none"`` where heads and tokens are not exchanged back.
        packed: The order in which the rows of the packed projection run over parts (q, k, v), heads
            and width.
        projected: Whether the output is projected.
        mask_of: The mask that is left out, ``"attn"`` or ``"keys"``; ``"keys inverted"``, ``"attn
            inverted"``.
        weights_of: What is given back: ``"mean"``, ``"sum"``, ``"first"`` or ``"heads"``.
        batch_first: Instead of the setting.
        picked: Which of queries, keys and values take their places.
        heads_reversed: Whether heads are joined in the reverse order.
        rule: For `attend`.
    """
    nn, w, s = call.nn, call.weights, call.settings
    names = (
        "query",
        "key",
        "value",
        "key_padding_mask",
        "need_weights",
        "attn_mask",
        "average_attn_weights",
    )
    given = {
        "need_weights": True,
        "average_attn_weights": True,
        **dict(zip(names, call.args, strict=False)),
        **call.kwargs,
    }
    heads, width = s["num_heads"], s["embed_dim"]
    d = width // heads
    first = s["batch_first"] if batch_first is None else batch_first
    tokens = [given[name] if first else nn.permute(given[name], (1, 0, 2)) for name in names[:3]]
    split_up = []
    for part, x in zip(order, tokens, strict=True):
        sizes = {"part": 3, "head": heads, "width": d}
        rows = np.arange(3 * width).reshape([sizes[axis] for axis in packed])
        rows = rows.transpose([packed.index(axis) for axis in ("part", "head", "width")])[
            part
        ].ravel()
        weight = nn.select(w["in_proj_weight"], nn.constant(rows, like=w["in_proj_weight"]), 0)
        bias = w.get("in_proj_bias")
        bias = None if bias is None else nn.select(bias, nn.constant(rows, like=bias), 0)
        y = nn.linear(x, weight, bias)
        shape = (*x.shape[:2], d, heads) if split == "minor" else (*x.shape[:2], heads, d)
        y = (
            nn.reshape(y, (x.shape[0], heads, x.shape[1], d))
            if split == "none"
            else nn.permute(
                nn.reshape(y, shape), (0, 3, 1, 2) if split == "minor" else (0, 2, 1, 3)
            )
        )
        split_up.append(y)
    q, k, v = (split_up[i] for i in picked)
    y, weights = attend(
        nn, q, k, v, _bias(nn, q, k, given, mask_of), **{"dropped": _dropped(call, q, k)} | rule
    )
    y = nn.flip(y, 1) if heads_reversed else y
    if merge == "none":
        y = nn.reshape(y, tuple(tokens[0].shape))
    else:
        y = nn.reshape(
            nn.permute(y, (0, 2, 3, 1) if merge == "minor" else (0, 2, 1, 3)),
            tuple(tokens[0].shape),
        )
    y = nn.linear(y, w["out_proj.weight"], w.get("out_proj.bias")) if projected else y
    y = y if first else nn.permute(y, (1, 0, 2))
    if not given["need_weights"]:
        return y, None
    averaged = given["average_attn_weights"]
    if weights_of == "heads":
        averaged = not averaged
    mean = nn.mean(weights, 1) if weights_of != "sum" else nn.sum(weights, 1)
    mean = weights[:, 0] if weights_of == "first" else mean
    return y, mean if averaged else weights


def _dropped(call: Call, q: Any, k: Any) -> Any:
    """The reference's own mask of the weights, scaled; None where nothing is dropped."""
    p = call.settings.get("dropout", 0.0) if call.training else 0.0
    if not p:
        return None
    path = f"{call.path}.attention_dropout".lstrip(".")
    shape = (*q.shape[:3], k.shape[2])
    return call.nn.keep_mask(SimpleNamespace(block_path=path), shape, p, q) * (
        1.0 / (1.0 - p) if p < 1 else 0.0
    )


def _bias(nn: Any, q: Any, k: Any, given: Mapping[str, Any], mask_of: str) -> Any:
    total, (batch, heads, queries, _), keys = None, q.shape, k.shape[2]
    shapes = {
        "attn": lambda m: (
            (1, 1, queries, keys) if len(m.shape) == 2 else (batch, heads, queries, keys)
        ),
        "keys": lambda m: (batch, 1, 1, keys),
    }
    for short, name in (("attn", "attn_mask"), ("keys", "key_padding_mask")):
        mask = given.get(name)
        if mask is None or mask_of == short:
            continue
        if "bool" in str(mask.dtype):
            low, zero = (nn.constant(np.array(value), like=q) for value in (-np.inf, 0.0))
            mask = (
                nn.where(mask, zero, low)
                if mask_of == f"{short} inverted"
                else nn.where(mask, low, zero)
            )
        elif mask_of == f"{short} inverted":
            mask = -mask
        mask = nn.reshape(mask, shapes[short](mask))
        total = mask if total is None else total + mask
    return total


def _with_heads(heads: int, call: Call) -> Any:
    return multihead(call.but(settings={**call.settings, "num_heads": heads}))


def multihead_attention(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[Variant]:
    """Everything that is known to go wrong in multi-head attention."""
    heads = settings["num_heads"]
    width = settings["embed_dim"] // heads
    for cause, scale in _scales(width, heads):
        yield Variant(cause, partial(multihead, scale=scale))
    masked = any(given.get(name) is not None for name in ("attn_mask", "key_padding_mask"))
    for cause, rule in RULES.items():
        if masked or not cause.startswith("mask"):
            yield Variant(cause, partial(multihead, **rule))
    for short, name in (("attn", "attn_mask"), ("keys", "key_padding_mask")):
        if given.get(name) is not None:
            yield Variant(f"{name} ignored", partial(multihead, mask_of=short))
            yield Variant(f"{name} inverted", partial(multihead, mask_of=f"{short} inverted"))
            for value in (
                -1e4,
                -1e9,
                -100.0,
                -30.0,
            ):  # where all of a row is forbidden, minus infinity gives no number
                yield Variant(
                    f"{name} inverted, forbidden scores of {value:g}",
                    partial(multihead, mask_of=f"{short} inverted", mask="floor", finite=value),
                )
    yield Variant(
        "heads merged wrongly (heads and tokens not exchanged back)",
        partial(multihead, merge="none"),
    )
    yield Variant(
        "heads merged wrongly (heads as the minor axis)", partial(multihead, merge="minor")
    )
    yield Variant(
        "heads split and merged as the minor axis of the width",
        partial(multihead, split="minor", merge="minor"),
    )
    yield Variant("heads split as the minor axis of the width", partial(multihead, split="minor"))
    yield Variant(
        "heads split without exchanging heads and tokens", partial(multihead, split="none")
    )
    yield Variant(
        "heads split and merged without exchanging heads and tokens",
        partial(multihead, split="none", merge="none"),
    )
    for packed in permutations(("part", "head", "width")):
        if packed != ("part", "head", "width"):
            order_of = ", ".join(packed)
            yield Variant(
                f"rows of the packed projection in the order {order_of} instead of part, head, "
                "width",
                partial(multihead, packed=packed),
            )
    yield Variant("heads joined in the reverse order", partial(multihead, heads_reversed=True))
    names = ("queries", "keys", "values")
    for picked in product(range(3), repeat=3):
        if picked != (0, 1, 2):
            words = ", ".join(
                f"{names[i]} in the place of {name}"
                for name, i in zip(names, picked, strict=True)
                if names[i] != name
            )
            yield Variant(words, partial(multihead, picked=picked))
    for order in permutations(range(3)):
        if order != (0, 1, 2):
            blocks = ", ".join("qkv"[order.index(i)] for i in range(3))
            yield Variant(
                f"packed projection in the order {blocks} instead of q, k, v",
                partial(multihead, order=order),
            )
    yield Variant("output not projected (out_proj missing)", partial(multihead, projected=False))
    for what, word in (
        ("sum", "summed over the heads"),
        ("first", "of the first head"),
        ("heads", "averaged or not"),
    ):
        yield Variant(f"attention weights {word}", partial(multihead, weights_of=what))
    yield Variant(
        f"batch_first={not settings['batch_first']} instead of {settings['batch_first']}",
        partial(multihead, batch_first=not settings["batch_first"]),
    )
    for other in [
        h
        for h in range(1, settings["embed_dim"] + 1)
        if settings["embed_dim"] % h == 0 and h != heads
    ]:
        yield Variant(f"num_heads={other} instead of {heads}", partial(_with_heads, other))
    yield Variant(
        f"scale {{}} instead of {number(width**-0.5)}",
        lambda call, value: multihead(call, scale=value),
        (width**-0.5, 0.5, 1.0),
    )
