"""The layers of the vocabulary, written once.

A backend binds them all, and may put native ones in their place.
"""

from typing import Any

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


def _public_layers() -> dict[str, Any]:
    """The classes that the modules define themselves, by name."""
    layers = {}
    for module in _MODULES:
        for name, value in vars(module).items():
            if name.startswith("_") or not isinstance(value, type):
                continue
            if value.__module__ == module.__name__:
                layers[name] = value
    return layers


LAYERS: dict[str, Any] = _public_layers()
