"""An object that holds a network and is called in its place."""

from __future__ import annotations

from typing import Any


class Holder:
    """An object that calls its ``module``, and has the module's attributes besides its own.

    Attributes:
        module: The network that was given.
    """

    module: Any

    def __init__(self, module: Any) -> None:
        """Take a network, and change nothing of it."""
        vars(self)["module"] = module

    def __call__(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the outputs of `forward`."""
        return self.forward(*inputs, **keywords)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        """Return the network's outputs."""
        return self.module(*inputs, **keywords)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the network.

        Raises:
            AttributeError: It has none of that name.
        """
        if name == "module":  # a copy that is being made does not have it yet
            raise AttributeError(name)
        return getattr(self.module, name)

    def __repr__(self) -> str:
        """Return the class with the network."""
        return f"{type(self).__name__}({self.module!r})"
