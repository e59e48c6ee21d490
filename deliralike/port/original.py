"""The original of a port: what its networks and functions are, as far as the rewriting asks."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection
from types import ModuleType
from typing import Any

from deliralike.network.base import Network
from deliralike.port.creation import Arguments, find_arguments
from deliralike.port.dropping import dropping_layer
from deliralike.port.framework import Framework
from deliralike.port.observing import FORWARD, Observation
from deliralike.port.resolving import Source, module_source
from deliralike.port.start_code import StartCode
from deliralike.port.values import leaves


class Original:
    """A network that is ported, and the functions that it calls.

    Args:
        framework: The framework of the network.
        observation: What a run has shown.
        blocks: The blocks of the network.
    """

    def __init__(
        self, framework: Framework, observation: Observation, blocks: list[Any]
    ) -> None:
        self.framework, self.observation, self.blocks = framework, observation, blocks
        self._blocks: dict[type, list[Any]] = {}
        self._only_draws: dict[Any, bool] = {}

    # Blocks
    # ---------------------------------------------------------------------------------------------

    def blocks_of(self, cls: Any) -> list[Any]:
        """The blocks of a class; none of what is no class."""
        if not inspect.isclass(cls):
            return []
        if cls not in self._blocks:
            self._blocks[cls] = [one for one in self.blocks if isinstance(one, cls)]
        return self._blocks[cls]

    def parameter_of(self, cls: Any) -> str | None:
        """The name of a parameter that each block of a class has, if there is one."""
        names = [self.framework.parameters(one) for one in self.blocks_of(cls)]
        for name in names[0] if names else ():
            if all(name in one for one in names):
                return name
        return None

    def frozen(self, cls: Any) -> list[str]:
        """Patterns of the parameters that are not trained, if it is the network's own class."""
        network = self.blocks[0]
        if cls is not type(network):
            return []
        frozen = self.framework.frozen(network)
        trained = {*self.framework.parameters(network)} - {*frozen}
        return list(dict.fromkeys(_shortest(name, trained) for name in frozen))

    def is_network(self, cls: Any) -> bool:
        """Whether it is a class of networks, or mixed into one, which has the functions itself."""
        return bool(self.blocks_of(cls)) or self.framework.is_network_class(cls)

    def name_of_method(self, cls: Any, name: str) -> str:
        """A method's name here: ``__call__`` of a network is its `forward`, unless it has both."""
        if name != "__call__" or not self.is_network(cls):
            return name
        forward = getattr(cls, "forward", None)
        is_own = forward is not None and not self.framework.owns(forward.__module__)
        return name if is_own else "forward"

    def is_member(self, cls: Any, name: str) -> bool:
        """Whether containers of a class have a member of this name."""
        return any(name in self.framework.members(one) for one in self.blocks_of(cls))

    def hides(self, cls: Any, name: str) -> bool:
        """Whether a setting of blocks of a class has the name of something of every network."""
        if not hasattr(Network, name) or name == "training":
            return False
        settings = [vars(block).get(name) for block in self.blocks_of(cls)]
        return any(isinstance(one, (bool, int, float, str)) for one in settings)

    def is_plain_container(self, cls: Any, name: str) -> bool:
        """Whether blocks of a class hold layers in a plain list, tuple or dict of this name."""
        for block in self.blocks_of(cls):
            value = vars(block).get(name)
            kinds = map(type, leaves(value))
            is_plain = type(value) in (list, tuple, dict)
            if is_plain and any(map(self.framework.is_network_class, kinds)):
                return True
        return False

    def unsaved(self, cls: Any, name: str) -> list[Any]:
        """The buffers of this name that are not saved, of the blocks of a class."""
        found = []
        for block in self.blocks_of(cls):
            buffers = self.framework.unsaved(block)
            if name in buffers:
                found.append(buffers[name])
        return found

    def arguments_of(self, network: Any) -> Arguments:
        """The arguments that a network was created with, without those that are the defaults."""
        if self.framework.name_of(type(network)) == "Sequential":
            return tuple(network), {}
        given = self.observation.created.get(id(network))
        if given is None:
            given = find_arguments(network)
        defaults = inspect.signature(type(network).__init__).parameters
        named = {}
        for name, value in given.items():
            if name not in defaults or value is not defaults[name].default:
                named[name] = value
        several = tuple(named.pop("*", ()))
        if not several:
            return (), named
        before = tuple(named.values())  # those by position stand before the others
        return before + several, {}

    # Functions and names
    # ---------------------------------------------------------------------------------------------

    def is_portable_function(self, value: Any) -> bool:
        """Whether an object is a function that is to be ported."""
        return inspect.isfunction(value) and self.framework.ports(value.__module__)

    def layer_of(self, function: Any) -> str | None:
        """The layer of `nn` that drops what a function of one's own does, or None."""
        if not self.is_portable_function(function):
            return None
        return dropping_layer(function, self.framework.packages[0])

    def makes_constants(self, function: Any) -> bool:
        """Whether a function that a network calls is given no arrays, so that NumPy does."""
        if not self.is_portable_function(function):
            return False
        observed = self.observation.files[module_source(function.__module__).file]
        name = function.__qualname__
        return FORWARD in observed.phases(name) and not observed.takes_arrays(name)

    def only_draws(self, function: Any) -> bool:
        """Whether a function only sets start values."""
        if not self.is_portable_function(function):
            return False
        key = function.__module__, function.__qualname__
        if key not in self._only_draws:
            self._only_draws[key] = False  # a function that calls itself
            source = module_source(function.__module__)
            cls, node = source.definition(function.__qualname__)
            if node is not None:
                self._only_draws[key] = StartCode(self, source, cls).is_all(node)
        return self._only_draws[key]

    def home(self, source: Source, name: str) -> tuple[str, str] | None:
        """The module of one's own in which a global name is assigned, and its name there."""
        visited = set()
        while (source, name) not in visited:
            visited.add((source, name))
            if name in source.statements:
                return source.module.__name__, name
            given = source.imports.get(name)
            if (
                given is None
                or given.name is None
                or not self.framework.ports(given.module)
            ):
                return None
            if not isinstance(sys.modules.get(given.module), ModuleType):
                return None
            source, name = module_source(given.module), given.name
        return None


def _shortest(name: str, others: Collection[str]) -> str:
    """The shortest pattern for a name, ``"layers.*"``, that no other name matches."""
    parts = name.split(".")
    for count in range(1, len(parts)):
        prefix = ".".join(parts[:count])
        if not any(one.startswith(f"{prefix}.") for one in others):
            return f"{prefix}.*"
    return name
