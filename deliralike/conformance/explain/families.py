"""Which formula and which conventions belong to a kind of block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from deliralike.conformance.explain import (
    activations,
    attention,
    embeddings,
    losses,
    norms,
    recurrence,
    shapes,
    windows,
)
from deliralike.conformance.explain.arguments import called, has_all, is_known, plain
from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Known,
)
from deliralike.conformance.explain.dropout import dropout
from deliralike.conformance.explain.loss_table import LOSSES, conventions


def known_of(kind: str, given: Arguments) -> Known | None:
    """What a block computes, and may compute instead, the likely things first."""
    name = plain(kind)
    if name in _LAYERS:
        return _LAYERS[name](given)
    if name.startswith("Drop"):
        return dropout(given)
    if name in LOSSES:
        return losses.formula_of(name), list(conventions(name, given))
    if name == "Identity":
        return (lambda nn, given: given["x"]), []
    if not (name.islower() and is_known(name)) or not has_all(name, given):
        return None
    own = windows.convolved if name == "conv" else partial(called, name)
    if name in activations.NAMES:
        return own, activations.conventions(name, given)
    return own, _FUNCTIONS[name](given) if name in _FUNCTIONS else []


_LAYERS: Mapping[str, Callable[[Arguments], Known]] = {
    "BatchNorm": norms.batch_norm,
    "SyncBatchNorm": norms.batch_norm,
    "InstanceNorm": norms.instance_norm,
    "layer_norm": norms.layer_norm,
    "group_norm": norms.group_norm,
    "batch_norm": norms.batch_norm_function,
    "LSTM": partial(recurrence.recurrent, "LSTM"),
    "GRU": partial(recurrence.recurrent, "GRU"),
    "MultiheadAttention": attention.multihead,
    "attention": attention.attention,
    "Embedding": embeddings.embedding,
}
_FUNCTIONS: Mapping[str, Callable[[Arguments], list[Convention]]] = {
    "conv": windows.convolution,
    "conv_transpose": windows.transposed_convolution,
    "max_pool": partial(windows.pooling, "max_pool"),
    "avg_pool": partial(windows.pooling, "avg_pool"),
    "adaptive_avg_pool": partial(windows.adaptive, "adaptive_avg_pool"),
    "adaptive_max_pool": partial(windows.adaptive, "adaptive_max_pool"),
    "interpolate": windows.interpolate,
    "concatenate": shapes.concatenate,
    "flatten": shapes.flatten,
    "linear": shapes.linear,
    "mean": partial(shapes.reduction, "mean"),
    "sum": partial(shapes.reduction, "sum"),
    "max_along": partial(shapes.reduction, "max_along"),
}
