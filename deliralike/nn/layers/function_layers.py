"""Layers that call one function of the vocabulary with the settings that they were made with."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from deliralike.network.base import Network
from deliralike.nn.functional import Functions
from deliralike.nn.primitives import Array

REQUIRED = inspect.Parameter.empty  # in the place of a default
_BUFFERS = ("weight", "pos_weight")


class FunctionLayer(Network):
    """The base of layers that call a function of one array."""

    function: str
    settings: Mapping[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = inspect.signature(type(self).__init__).bind(self, *args, **kwargs)
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


def function_layer(
    base: type, name: str, function: str, module: str, **settings: Any
) -> type:
    """Make the layer of a function.

    Args:
        base: `FunctionLayer` or `FunctionOfSeveral`.
        name: The name of the layer.
        function: The name of the function in `nn`.
        module: The module that has the layer.
        settings: The function's settings with their defaults; `REQUIRED` for one without. A
            `weight` becomes a buffer.
    """

    def initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        FunctionLayer.__init__(self, *args, **kwargs)

    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", either)]
    for setting, default in settings.items():
        parameters.append(inspect.Parameter(setting, either, default=default))
    summary = str(getattr(Functions, function).__doc__).partition("\n\n")[0]
    initialise.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    body = {
        "__init__": initialise,
        "__doc__": f"{summary}\n\nThe function `{function}` as a layer.",
        "__module__": module,
        "function": function,
        "settings": settings,
    }
    metaclass: Any = type(base)
    return metaclass(name, (base,), body)
