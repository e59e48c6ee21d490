"""What is known of each kind of block: its own conventions first, then what may happen to any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain import (
    anything,
    attending,
    calls,
    chance,
    norms,
    one_pass,
    pointwise,
    recurrence,
    running_norms,
    shaping,
    tables,
    windows,
)
from deliralike.conformance.explain.bench import Bench
from deliralike.conformance.explain.calls import Bound
from deliralike.conformance.explain.variant import Call, Formula, Variant, Variants

FUNCTIONS: Mapping[str, Callable[[Bound], Iterator[tuple]]] = {
    "conv": windows.convolution,
    "conv_transpose": windows.transposed_convolution,
    "max_pool": windows.max_pool,
    "avg_pool": windows.avg_pool,
    "adaptive_avg_pool": windows.adaptive_avg_pool,
    "adaptive_max_pool": windows.adaptive_max_pool,
    "interpolate": windows.interpolate,
    "softmax": pointwise.softmax,
    "log_softmax": partial(pointwise.softmax, logarithm=True),
    "prelu": pointwise.prelu,
    "normalize": pointwise.normalize,
    "layer_norm": norms.layer_norm,
    "group_norm": norms.group_norm,
    "batch_norm": norms.batch_norm_function,
    "concatenate": shaping.concatenate,
    "flatten": shaping.flatten,
    "reshape": shaping.reshape,
    "pixel_shuffle": shaping.pixel_shuffle,
    "permute": shaping.permute,
    "pad": shaping.pad,
    "mean": partial(shaping.reduction, "mean"),
    "sum": partial(shaping.reduction, "sum"),
    "max": partial(shaping.reduction, "max"),
    "matmul": shaping.matmul,
    "linear": shaping.linear,
    "attention": attending.attention,
    **{
        name: partial(pointwise.activation, name)
        for name in (
            "relu",
            "relu6",
            "leaky_relu",
            "elu",
            "silu",
            "gelu",
            "hardsigmoid",
            "hardswish",
            "sigmoid",
            "tanh",
            "softplus",
            "exp",
            "log",
            "sqrt",
            "abs",
            "erf",
            "sin",
            "cos",
        )
    },
}


def variants(bench: Bench) -> Variants:
    """Everything that is known of an accused block, the likely causes first."""
    with contextlib.suppress(
        Exception
    ):  # whatever a stranger's block of that name was called with need not fit
        yield from _own(bench)
    if (formula := twin(bench)) is not None and reproduces(bench, formula):
        yield from anything.around(bench.accused, formula)


def reproduces(bench: Bench, formula: Formula) -> bool:
    """Whether a formula gives what the reference gave, so that it may stand for it."""
    found = bench.forward(formula)
    if found is None:
        return False
    reference = {
        name: bench.reference[name] for name in bench.forward_names if name in bench.reference
    }
    return all(
        name in found
        and found[name].shape == value.shape
        and np.allclose(found[name], value, rtol=1e-9, atol=1e-12)
        for name, value in reference.items()
    )


def twin(bench: Bench) -> Formula | None:
    """The reference's block as a formula; None where there is none."""
    kind, accused = bench.accused.kind, bench.accused
    if kind.startswith("BatchNorm") or kind == "SyncBatchNorm":
        return running_norms.batch_norm_layer
    if kind.startswith("InstanceNorm") and not bench.settings.get("track_running_stats"):
        return running_norms.instance_norm_layer
    if kind in recurrence.GATES:
        return partial(_recurrent, kind.lower())
    if kind == "MultiheadAttention":
        return attending.multihead
    if kind == "Embedding":
        padding = bench.settings.get("padding_idx")
        count = accused.state["weight"].shape[0]
        return partial(tables.rows, padding=None if padding is None else padding % count)
    if (name := calls.function_of(kind)) is not None:
        return partial(_called, name, calls.binder(kind))
    if kind == "Identity" or (kind.startswith("Drop") and not accused.training):
        return lambda call: call.args[0]
    return None


def _own(bench: Bench) -> Variants:
    kind, accused, settings = bench.accused.kind, bench.accused, bench.settings
    if kind.startswith("BatchNorm") or kind == "SyncBatchNorm":
        yield from running_norms.batch_norm(accused, settings)
    elif kind.startswith("InstanceNorm"):
        yield from running_norms.instance_norm(settings, np.ndim(accused.args[0]))
        yield from one_pass.variants(accused, settings)
    elif kind in recurrence.GATES:
        yield from recurrence.recurrent(kind, settings)
    elif kind == "MultiheadAttention":
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        yield from attending.multihead_attention(
            settings, {**dict(zip(names, accused.args, strict=False)), **accused.kwargs}
        )
    elif kind == "Embedding":
        yield from tables.embedding(settings, np.asarray(accused.args[0]), accused.state["weight"])
    elif kind.startswith("Drop"):
        yield from chance.dropout(accused, settings["p"])
    elif (name := calls.function_of(kind)) in FUNCTIONS:
        assert name is not None
        yield from _of_function(bench, FUNCTIONS[name])
        if kind in ("LayerNorm", "GroupNorm"):
            yield from one_pass.variants(accused, settings)


def _of_function(bench: Bench, known: Callable[[Bound], Iterator[tuple]]) -> Variants:
    """Variants of a function of `nn`, for the arguments that the block gives it."""
    bind, accused = calls.binder(bench.accused.kind), bench.accused
    host = Call(None, accused.state, accused.args, accused.kwargs, bench.settings, accused.training)
    for cause, function, *search in known(bind(host)):
        starts, least = (search[0] if search else ()), (search[1] if len(search) > 1 else -1e6)
        yield Variant(cause, _bound(function, bind), starts, least)


def _bound(function: Callable[..., Any], bind: Callable[[Call], Bound]) -> Formula:
    return lambda call, *value: function(call.nn, bind(call), *value)


def _called(name: str, bind: Callable[[Call], Bound], call: Call) -> Any:
    return getattr(call.nn, name)(**bind(call))


def _recurrent(name: str, call: Call) -> Any:
    return recurrence.run(call, getattr(call.nn, name))
