"""Layers as calls of one function of `nn`, so that its known conventions serve its layers too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from deliralike.conformance.explain.variant import Call
from deliralike.nn.functional import Functions

Bound = dict[str, Any]  # the arguments of a function of `nn` by name

_RANKS = ("1d", "2d", "3d")
_PLAIN = {
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
}
_RANKED = {
    "Conv": "conv",
    "ConvTranspose": "conv_transpose",
    "MaxPool": "max_pool",
    "AvgPool": "avg_pool",
    "AdaptiveAvgPool": "adaptive_avg_pool",
    "AdaptiveMaxPool": "adaptive_max_pool",
}

FUNCTION_OF: Mapping[str, str] = {
    **_PLAIN,
    **{f"{layer}{rank}": function for layer, function in _RANKED.items() for rank in _RANKS},
}


def function_of(kind: str) -> str | None:
    """The function of `nn` that a layer calls, or that a kind is; None for layers that do more."""
    if kind in FUNCTION_OF:
        return FUNCTION_OF[kind]
    name = kind[:-2] if kind[-2:] in _RANKS and kind[:-2] in _RANKED.values() else kind
    return name if kind[:1].islower() and hasattr(Functions, name) else None


def names_of(kind: str) -> dict[str, str]:
    """The names of a function's arguments by their paths; empty for layers."""
    if kind in FUNCTION_OF or (name := function_of(kind)) is None:
        return {}
    parameters = [
        parameter
        for parameter in inspect.signature(getattr(Functions, name)).parameters
        if parameter != "self"
    ]
    return {f"args[{index}]": parameter for index, parameter in enumerate(parameters)}


def binder(kind: str) -> Callable[[Call], Bound]:
    """From a call of a kind to the arguments of its function, defaults filled in."""
    name = function_of(kind) or kind
    signature = inspect.signature(getattr(Functions, name))
    parameters = [parameter for parameter in signature.parameters if parameter != "self"]

    def bind(call: Call) -> Bound:
        if kind not in FUNCTION_OF:
            bound = signature.bind(None, *call.args, **call.kwargs)
            bound.apply_defaults()
            return {parameter: bound.arguments[parameter] for parameter in parameters}
        defaults = {
            one.name: one.default
            for one in signature.parameters.values()
            if one.default is not one.empty
        }
        given = {
            name: value
            for name, value in {**call.settings, **call.weights}.items()
            if name in parameters
        }
        if isinstance(given.get("normalized_shape"), int):
            given["normalized_shape"] = (given["normalized_shape"],)
        if isinstance(
            given.get("bias"), bool
        ):  # the setting, where the layer has no such parameter
            given.pop("bias")
        return {**defaults, parameters[0]: call.args[0], **given}

    return bind
