"""The layers of the vocabulary, written once.

A backend binds them all, and may put native ones in their place.
"""

from typing import Any

from deliralike.nn.arguments import guarded_layer
from deliralike.nn.layers import (
    activation,
    attention,
    containers,
    convolution,
    dropout,
    linear,
    losses,
    noise,
    normalization,
    padding,
    pooling,
    recurrent,
    transformer,
)

_MODULES = (
    activation,
    attention,
    containers,
    convolution,
    dropout,
    linear,
    losses,
    noise,
    normalization,
    padding,
    pooling,
    recurrent,
    transformer,
)


# These call blocks and functions of users, whose errors are not the layer's.
_OF_OTHERS = (containers.__name__, losses.__name__, transformer.__name__)


def guard(layer: Any, module: str) -> None:
    """Let a layer of a module name itself in errors, if it calls no code of users."""
    if module not in _OF_OTHERS:
        layer.forward = guarded_layer(layer.forward)


def _public_layers() -> dict[str, Any]:
    """The classes that the modules define themselves, by name."""
    layers = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, type):
                continue
            if value.__module__ == module.__name__:
                layer: Any = value
                layer._has_typed_settings = True  # noqa: SLF001  # read by its metaclass
                guard(value, module.__name__)
                layers[name] = value
    return layers


LAYERS: dict[str, Any] = _public_layers()
