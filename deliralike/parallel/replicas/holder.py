"""An object that holds a network and is called in its place."""

from __future__ import annotations

from typing import Any


class Holder:
    """A holder calls the network that it holds as ``module``.

    It answers with the network's attributes where it has none of its own.

    Attributes:
        module: The network that was given.
    """

    module: Any

    def __init__(self, module: Any) -> None:
        """Hold a network; nothing of it changes."""
        vars(self)["module"] = module

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """The outputs of `forward`."""
        return self.forward(*inputs, **keywords)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """The network's outputs."""
        return self.module(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        """What the network has."""
        if name == "module":  # which a copy does not have yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        """With the network."""
        return f"{type(self).__name__}({self.module!r})"
