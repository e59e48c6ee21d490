"""Chainer as a source framework: what its links and variables are. Its calls are in `chainer`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from deliralike import backends
from deliralike.port.chainer import LAYERS, LINK_BASES, ChainerCalls
from deliralike.port.values import Value, collection


class Chainer(ChainerCalls):
    """Links of Chainer."""

    packages = ("chainer", "chainermn")
    title = "Chainer"
    network_class = ("chainer", "Link")
    array_class = "Variable"
    # Links made of other links.
    ported_modules = (
        "chainer.links.connection.bias",
        "chainer.links.connection.highway",
        "chainer.links.connection.inception",
        "chainer.links.connection.inceptionbn",
        "chainer.links.connection.mlp_convolution_2d",
        "chainer.links.connection.parameter",
        "chainer.links.connection.scale",
    )
    bases = {
        "Chain": "Network",
        "Link": "Network",
        "ChainList": "ModuleList",
        **LINK_BASES,
    }
    dropped = ("initialW", "initial_bias", "initial_gamma", "initial_beta", "dtype")
    stops_gradients = ("no_backprop_mode",)
    transparent = ("no_backprop_mode", "force_backprop_mode")
    scopes = ("init_scope",)
    hands_members_by_name = True

    def name_of(self, value: Any) -> str | None:
        """See `Framework`."""
        if getattr(value, "__module__", None) in self.ported_modules:
            return None
        return super().name_of(value)

    def describe(self, value: Any) -> Value:
        """See `Framework`."""
        library = sys.modules["chainer"]
        if isinstance(value, ModuleType) and value.__name__.startswith("numpy"):
            return Value("numpy")
        arrays = (library.Variable, *library.get_array_types())
        if isinstance(value, library.Parameter) and value.shape is None:
            return Value("parameter")  # of a size that is not found out yet
        if isinstance(value, arrays):
            is_parameter = isinstance(value, library.Parameter)
            kind = "parameter" if is_parameter else "array"
            return Value(kind, value.ndim, str(value.dtype))
        if isinstance(value, (library.ChainList, library.Sequential)):
            return Value("container")
        layers = [getattr(library.links, name) for name in LAYERS]
        if isinstance(value, tuple(layers)):
            return Value("layer")
        if isinstance(value, library.Link):
            return Value("network")
        if isinstance(value, dict) and all(name in self.dropped for name in value):
            return Value("placement")  # of initializers, or of nothing
        if callable(value):
            return Value("function")
        return collection(value, self.describe)

    def blocks(self, network: Any) -> list[Any]:
        """See `Framework`."""
        return list(network.links())

    def members(self, network: Any) -> list[str]:
        """See `Framework`."""
        if not isinstance(network, sys.modules["chainer"].Sequential):
            return []
        return [str(number) for number in range(len(network))]

    def lists_members(self, cls: Any) -> bool:
        """See `Framework`."""
        library = sys.modules["chainer"]
        is_list = self.is_network_class(cls) and issubclass(cls, library.ChainList)
        return is_list and not issubclass(cls, library.Sequential)

    def has_named_members(self, cls: Any) -> bool:
        """See `Framework`."""
        library = sys.modules["chainer"]
        containers = (library.ChainList, library.Sequential)
        return self.is_network_class(cls) and not issubclass(cls, containers)

    def parameters(self, network: Any) -> list[str]:
        """See `Framework`; their neutral names, those of links within it included."""
        slots = backends.wrap(network).neutral_slots()
        return [name for name, slot in slots.items() if slot.is_parameter]

    def unsaved(self, network: Any) -> dict[str, Any]:
        """See `Framework`."""
        arrays = sys.modules["chainer"].get_array_types()
        saved = getattr(network, "_persistent", ())
        found = {}
        for name, value in vars(network).items():
            if isinstance(value, arrays) and name not in saved:
                found[name] = value
        return found

    @contextmanager
    def noting_axes(self, axes: dict[int, int]) -> Iterator[None]:
        """See `Framework`; by the links' identities."""
        hook: Any = sys.modules["chainer"].LinkHook

        class Noting(hook):
            name = "deliralike.port"

            def forward_preprocess(self, args: Any) -> None:
                if args.args and hasattr(args.args[0], "ndim"):
                    axes[id(args.link)] = args.args[0].ndim

        with Noting():
            yield
