"""The arguments that networks were created with: as the run has shown, or as they keep them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

from deliralike import backends
from deliralike.errors import SettingError, StateError
from deliralike.port.framework import Framework
from deliralike.port.resolving import MISSING
from deliralike.port.values import PLAIN

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # by position and by name
Shapes = Mapping[str, tuple[int, ...]]


def call(network: Any, inputs: Any) -> Any:
    """Call a network with inputs by position, or by name where they are a dict."""
    return network(**inputs) if isinstance(inputs, Mapping) else network(*inputs)


def new_network(network: Any, args: Any, kwargs: Any) -> Any:
    """Call a class or function that creates a network.

    Raises:
        SettingError: It raises an error, as for an argument that is missing.
    """
    try:
        return network(*args, **kwargs)
    except Exception as error:
        raise SettingError(
            f"port: {network.__name__} cannot create a network of the arguments that it was given: "
            f"{type(error).__name__}: {error}"
        ) from error


def shapes(network: Any, inputs: Any) -> Shapes:
    """The shapes of a network's weights; it is called where it finds them out by that."""
    wrapped = backends.wrap(network)
    try:
        state = wrapped.neutral_state()
    except StateError:
        call(wrapped, wrapped.backend.prepare(inputs, wrapped))
        state = wrapped.neutral_state()
    return {name: value.shape for name, value in state.items()}


def find_arguments(network: Any, inputs: Any = ()) -> dict[str, Any]:
    """The arguments that a network was created with: its attributes of these names, or defaults.

    Raises:
        SettingError: These arguments give no weights of these names and shapes.
    """
    cls = type(network)
    is_native = backends.of(network).is_native
    found = {}
    for name, parameter in _parameters(cls).items():
        value = getattr(network, name, MISSING)
        # A layer is not what was given for a size, or for the name of a layer.
        is_of_size = isinstance(parameter.default, (int, str))
        if not (_is_plain(value) or (is_native(value) and not is_of_size)):
            value = parameter.default
        if value is not parameter.empty:
            found[name] = deepcopy(value)  # the network that came stays as it is
    with backends.of(network).preserve_global_state():
        try:
            is_same = shapes(cls(**found), inputs) == shapes(network, inputs)
        except Exception:  # noqa: BLE001 - of the class, which takes no such arguments
            is_same = False
    if not is_same:
        names = ", ".join(f"{name}=..." for name in _parameters(cls))
        raise SettingError(
            f"port: the attributes do not tell what this {cls.__name__} was created with: "
            f"say it, port(network, inputs, {names}), or port a function that creates the network "
            "and this one in it"
        )
    return found


def _parameters(cls: type) -> dict[str, inspect.Parameter]:
    _, *parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {one.name: one for one in parameters if one.kind not in open_ended}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    is_definition = inspect.isclass(value) or inspect.isfunction(value)
    return isinstance(value, PLAIN) or is_definition


def mapped(value: Any, framework: Framework, change: Callable[[Any], Any]) -> Any:
    """Arguments in which networks, classes and functions are changed, in any collections."""

    def inner(one: Any) -> Any:
        return mapped(one, framework, change)

    is_network = framework.is_network_class(type(value))
    if is_network or inspect.isclass(value) or inspect.isfunction(value):
        return change(value)
    if isinstance(value, partial):
        return partial(inner(value.func), *inner(value.args), **inner(value.keywords))
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(map(inner, value))
    if isinstance(value, dict):
        return type(value)((name, inner(one)) for name, one in value.items())
    if framework.ports(type(value).__module__) and hasattr(value, "__dict__"):
        return _configuration(value, inner)
    return value


def _configuration(value: Any, change: Callable[[Any], Any]) -> Any:
    """An object with attributes, a copy where one of them is changed."""
    cls, before = change(type(value)), vars(value)
    after = {name: change(one) for name, one in before.items()}
    if cls is type(value) and all(after[name] is before[name] for name in before):
        return value
    copied = object.__new__(cls)
    for name, one in after.items():
        object.__setattr__(copied, name, one)
    return copied


class Creation:
    """How a network is created, with those among its arguments that exist already.

    Args:
        network: A class, a function, or a network.
        inputs: What the network is called with.
        arguments: Those of the class or function, by position and by name.
        framework: The framework of the network.
    """

    def __init__(
        self, network: Any, inputs: Any, arguments: Arguments, framework: Framework
    ) -> None:
        self.network, self.inputs, self.framework = network, inputs, framework
        self.exists = framework.is_network_class(type(network))
        self._found: dict[int, dict[str, Any]] = {}
        self.arguments = arguments
        if self.exists and not any(arguments):
            self.arguments = (), self._arguments_of(network)
        mapped(self.arguments, framework, self._recreated)  # before calls are observed

    def _arguments_of(self, network: Any) -> dict[str, Any]:
        if id(network) not in self._found:
            inputs = self.inputs if network is self.network else ()
            self._found[id(network)] = find_arguments(network, inputs)
        return self._found[id(network)]

    def _is_portable(self, value: Any) -> bool:
        is_network = self.framework.is_network_class(type(value))
        return is_network and self.framework.ports(type(value).__module__)

    def __call__(self) -> Any:
        """Create the network, and those among its arguments, with their weights."""
        args, kwargs = mapped(self.arguments, self.framework, self._recreated)
        if not self.exists:
            return new_network(self.network, args, kwargs)
        return with_weights(
            type(self.network)(*args, **kwargs), self.network, self.inputs
        )

    def _recreated(self, value: Any) -> Any:
        if not self._is_portable(value):
            return value
        kwargs = mapped(self._arguments_of(value), self.framework, self._recreated)
        return with_weights(type(value)(**kwargs), value, ())


def with_weights(network: Any, original: Any, inputs: Any) -> Any:
    """A network that takes the weights of another one of its class.

    Raises:
        SettingError: They have other names or shapes, so it was created with other arguments.
    """
    wanted, found = shapes(original, inputs), shapes(network, inputs)
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            raise SettingError(
                f"port: a {type(network).__name__} with these arguments is not the one that came: "
                f"{name!r} is {found.get(name)} and was {wanted.get(name)}"
            )
    backends.wrap(network).load_neutral_state(backends.wrap(original).neutral_state())
    return network
