"""What a block is given, by name: the same for a layer and for the function of `nn` that it calls."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from typing import Any

from deliralike.conformance.by_name import without
from deliralike.conformance.kinds import Function, Named
from deliralike.nn.functional import Functions
from deliralike.nn.layers import LAYERS

_RANKS = ("1d", "2d", "3d")
# Layers that call one function, by that function; the rank is not part of the name.
_LAYERS = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Hardswish": "hardswish",
    "Hardsigmoid": "hardsigmoid",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Softplus": "softplus",
    "LeakyReLU": "leaky_relu",
    "PReLU": "prelu",
    "ELU": "elu",
    "GELU": "gelu",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Linear": "linear",
    "LayerNorm": "layer_norm",
    "GroupNorm": "group_norm",
    "Upsample": "interpolate",
    "PixelShuffle": "pixel_shuffle",
    "Flatten": "flatten",
    "Conv": "conv",
    "ConvTranspose": "conv_transpose",
    "MaxPool": "max_pool",
    "AvgPool": "avg_pool",
    "AdaptiveAvgPool": "adaptive_avg_pool",
    "AdaptiveMaxPool": "adaptive_max_pool",
}


def plain(kind: str) -> str:
    """The function of `nn` that a layer is, or else the kind without its rank.

    Example:
        >>> plain("Conv2d"), plain("BatchNorm1d"), plain("max_pool2d")
        ('conv', 'BatchNorm', 'max_pool')
    """
    name = kind[:-2] if kind.endswith(_RANKS) else kind
    return _LAYERS.get(name, name)


def is_known(function: str) -> bool:
    """Whether `nn` has a function of this name."""
    return hasattr(Functions, function)


@cache
def names(kind: str) -> tuple[str, ...]:
    """The names of what a layer or function is called with, in order; ``x`` for any other block."""
    if kind in LAYERS:
        function = LAYERS[kind].forward
    else:
        function = getattr(Functions, plain(kind), None)
    if function is None:
        return ("x",)
    return tuple(
        name for name in inspect.signature(function).parameters if name != "self"
    )


def bound(
    kind: str,
    settings: Named,
    weights: Named,
    args: Sequence[Any],
    kwargs: Named,
) -> dict[str, Any]:
    """Everything by name: what a call gives in its order, weights, buffers, settings, defaults."""
    layer = LAYERS.get(kind)
    found: dict[str, Any] = {}
    for owner, name in (
        (Functions, plain(kind)),
        (layer, "__init__"),
        (layer, "forward"),
    ):
        found |= _defaults(getattr(owner, name, None))
    found |= without(settings, weights)
    if isinstance(
        found.get("bias"), bool
    ):  # whether there is one, which the weights tell
        found["bias"] = None
    if isinstance(found.get("normalized_shape"), int):
        found["normalized_shape"] = (found["normalized_shape"],)
    found |= {**weights, **dict(zip(names(kind), args, strict=False)), **kwargs}
    called = {name: found[name] for name in names(kind) if name in found}
    return called | found


def called(kind: str, nn: Any, given: Named, **changes: Any) -> Any:
    """A function of `nn`, with what it takes of what is given; by position as far as that goes."""
    taken, order = {**given, **changes}, names(kind)
    first = list(takewhile(taken.__contains__, order))
    rest = {name: taken[name] for name in order[len(first) :] if name in taken}
    return getattr(nn, kind)(*(taken[name] for name in first), **rest)


def has_all(function: str, given: Named) -> bool:
    """Whether there is every argument that a function of `nn` needs."""
    parameters = list(
        inspect.signature(getattr(Functions, function)).parameters.values()
    )[1:]
    return all(one.name in given for one in parameters if one.default is one.empty)


def _defaults(function: Function | None) -> dict[str, Any]:
    if function is None:
        return {}
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}
