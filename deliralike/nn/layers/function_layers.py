"""Layers that call one function of the vocabulary with the settings that they were made with."""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn.functional import Functions
from deliralike.nn.primitives import Array

_BUFFERS = ("weight", "pos_weight")


class FunctionLayer(Network):
    """The base of layers that call a function of one array."""

    function: str
    settings: tuple[str, ...]
    signature: inspect.Signature

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = self.signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        for name in self.settings:
            value = bound.arguments[name]
            if name in _BUFFERS and value is not None:
                value = self.nn.Buffer(np.asarray(value, np.float64))
            setattr(self, name, value)

    def forward(self, x: Array) -> Array:
        return self.call(x)

    def call(self, *inputs: Array) -> Array:
        """Return what the function gives for some arrays."""
        settings = {name: getattr(self, name) for name in self.settings}
        return getattr(self.nn, self.function)(*inputs, **settings)


class FunctionOfSeveral(FunctionLayer):
    """The base of layers that call a function of several arrays."""

    def forward(self, *inputs: Array) -> Array:
        return self.call(*inputs)


def function_layers(base: type, module: str, rows: dict[str, str]) -> dict[str, type]:
    """Make the layers of functions, by name.

    Args:
        base: `FunctionLayer` or `FunctionOfSeveral`.
        module: The module that has the layers.
        rows: By the name of the layer: the name of its function in `nn`, and behind it those of
            the arguments that are settings, with the function's defaults. A `weight` becomes a
            buffer.
    """
    layers = {}
    for name, row in rows.items():
        function, *settings = row.split()
        layers[name] = _function_layer(base, name, module, function, settings)
    return layers


def _function_layer(
    base: type, name: str, module: str, function: str, settings: Sequence[str]
) -> type:
    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        FunctionLayer.__init__(self, *args, **kwargs)

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    computes = getattr(Functions, function)
    arguments = inspect.signature(computes).parameters
    parameters = [inspect.Parameter("self", either)]
    for setting in settings:
        parameters.append(arguments[setting].replace(kind=either))
    summary = str(computes.__doc__).partition("\n\n")[0]
    signature = inspect.Signature(parameters)
    initialise.__signature__ = signature  # type: ignore[attr-defined]
    initialise.__annotations__ = {name: arguments[name].annotation for name in settings}
    body = {
        "__init__": initialise,
        "__doc__": f"{summary}\n\nThe function `{function}` as a layer.",
        "__module__": module,
        "function": function,
        "settings": tuple(settings),
        "signature": signature,
    }
    metaclass: Any = type(base)
    return metaclass(name, (base,), body)
