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
    normalization,
    pooling,
    recurrent,
)

_MODULES = (
    activation,
    attention,
    containers,
    convolution,
    dropout,
    linear,
    normalization,
    pooling,
    recurrent,
)

LAYERS: dict[str, Any] = {
    name: layer
    for module in _MODULES
    for name, layer in vars(module).items()
    if isinstance(layer, type) and layer.__module__ == module.__name__ and not name.startswith("_")
}
