"""A class of one framework becomes the same network written once."""

from __future__ import annotations

import inspect
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from deliralike import backends
from deliralike.conformance import Proof, compare, distance_loss
from deliralike.errors import SettingError
from deliralike.port import chainer, pytorch
from deliralike.port.observing import CONSTRUCTION, FORWARD, Observation
from deliralike.port.program import Program, Remark
from deliralike.port.resolving import is_own_module

TABLES = (pytorch, chainer)
_numbers = itertools.count()


@dataclass
class Port:
    """A network written once, made from a class of a framework.

    Attributes:
        source: The source, one file.
        class_name: The name of the network's class in it.
        reference: The original network.
        inputs: What it was called with.
        arguments: What the class was created with, by position and by name.
        hands: What a person has to write, by line of the original.
        left_out: Lines of the original that are not in the port, and why.
        changes: For each definition its name, its lines, and how many of them are other ones.
    """

    source: str
    class_name: str
    reference: Any
    inputs: tuple[Any, ...]
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    hands: list[Remark]
    left_out: list[Remark]
    changes: list[tuple[str, int, int]]
    _program: Program = field(repr=False)
    _module: Any = field(default=None, repr=False)

    @property
    def module(self) -> Any:
        """The source, run as a module."""
        if self._module is None:
            name = f"deliralike_port_{next(_numbers)}"
            module = sys.modules[name] = types.ModuleType(name)
            exec(compile(self.source, f"<port of {self.class_name}>", "exec"), vars(module))
            self._module = module
        return self._module

    def network(self, backend: str, *, seed: int = 0, dtype: str = "float32") -> Any:
        """Return the network on a backend, with the weights of the original.

        Args:
            backend: The name of the backend.
            seed: Of the start values of what the original's weights do not give: nothing.
            dtype: The type of its parameters.

        Raises:
            BackendUnavailable: There is no such backend, or it is not installed.
            StateError: The original's weights do not fit, as where buffers are not saved.
        """
        target = backends.get(backend)
        network = self._built(self.class_name, self.arguments, target, seed=seed, dtype=dtype)
        network.load_neutral_state(backends.wrap(self.reference).neutral_state())
        return network

    def _built(self, name: str, arguments: Any, target: Any, **settings: Any) -> Any:
        def build(network: Any) -> Any:
            """A network among the arguments, as the backbone of another one."""
            where = type(network).__module__, type(network).__qualname__
            given = _given_to(network, self._program.observation, {})
            return self._built(self._program.names[where], given, target, **settings)

        args, kwargs = (self._translated(one, target.nn, build) for one in arguments)
        return getattr(self.module, name).on(target, **settings)(*args, **kwargs)

    def prove(self, backend: str) -> Proof:
        """Compare the port on a backend with the original, on its inputs, in float64.

        Names, outputs, the gradients of all parameters and of the inputs, and running statistics
        are compared, in training and in evaluation; then another size of input, in evaluation,
        where the network takes one.
        """
        return compare(
            self.reference,
            self.network(backend),
            self.inputs,
            loss=distance_loss,
            weights="load",
            levels=("L0", "L1", "L3", "L7"),
        )

    def _translated(self, value: Any, nn: Any, build: Callable[[Any], Any]) -> Any:
        """An argument of the class, in which classes and functions are those of the port."""
        if self._program.table.is_network_class(type(value)):
            return build(value)
        if inspect.isclass(value) or inspect.isfunction(value):
            where = (value.__module__, value.__qualname__)
            if where in self._program.names:
                return getattr(self.module, self._program.names[where])
            name = self._program.table.name_of(value)
            return getattr(nn, name) if name is not None and hasattr(nn, name) else value
        if hasattr(value, "func") and hasattr(value, "keywords"):
            function = self._translated(value.func, nn, build)
            return type(value)(function, *value.args, **value.keywords)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(self._translated(one, nn, build) for one in value)
        if isinstance(value, dict):
            pairs = ((name, self._translated(one, nn, build)) for name, one in value.items())
            return type(value)(pairs)
        if self._program.is_own(type(value).__module__) and hasattr(value, "__dict__"):
            made = object.__new__(self._translated(type(value), nn, build))
            for name, one in vars(value).items():
                object.__setattr__(made, name, self._translated(one, nn, build))
            return made
        return value


def port(network: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Port:
    """Rewrite a class of PyTorch or Chainer as the same network written once.

    The class runs twice, to see what it calls and which values are arrays. What is neither the
    framework's nor Python's comes along: its blocks, helper functions, constants, also from other
    files and installed packages.

    Args:
        network: A class of ``torch.nn.Module`` or ``chainer.Chain``, or a function that creates
            such a network.
        inputs: What the network is called with, arrays of NumPy or of PyTorch, samples first.
        args, kwargs: Arguments of the class or function.

    Raises:
        SettingError: It is a network that exists already, makes none, or has no source.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> port(nn.Linear, (np.ones((2, 3), np.float32),), 3, 4)
        Traceback (most recent call last):
        deliralike.errors.SettingError: port: Linear is PyTorch's own: self.nn.Linear
    """
    if not (inspect.isclass(network) or inspect.isfunction(network)):
        raise SettingError(
            f"port: a {type(network).__name__} that exists already: wanted is its class, or a "
            f"function that creates it, and the arguments: port({type(network).__name__}, inputs, "
            "...)"
        )
    table = _table_of(network, args, kwargs)
    observation = Observation(_own_files(table), table)
    with observation.calls(CONSTRUCTION):
        reference: Any = network(*args, **kwargs)
    _check(reference, table)
    given = backends.of(reference).prepare(tuple(inputs), backends.wrap(reference))
    with observation.calls(FORWARD):
        _run(reference, given)
    with observation.values():
        _run(network(*args, **kwargs), given)
    program = Program(table, observation)
    program.blocks = table.blocks(reference)
    name = program.need(type(reference))
    arguments = _given_to(reference, observation, kwargs)
    _need_all(program, arguments)
    source = program.text(f"{name}, written once: a port of {type(reference).__module__}.")
    return Port(
        source,
        name,
        reference,
        tuple(inputs),
        arguments,
        program.hands,
        program.left_out,
        program.changes(),
        program,
    )


def _table_of(network: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The table of the framework whose network it is."""
    cls = network if inspect.isclass(network) else type(network(*args, **kwargs))
    for table in TABLES:
        if table.is_network_class(cls):
            return table
    titles = " or ".join(table.TITLE for table in TABLES)
    raise SettingError(f"port: {cls.__name__} is no network of {titles}")


def _check(reference: Any, table: Any) -> None:
    cls = type(reference)
    if not is_own_module(cls.__module__, table.FRAMEWORK):
        raise SettingError(f"port: {cls.__name__} is {table.TITLE}'s own: self.nn.{cls.__name__}")


def _run(network: Any, inputs: tuple[Any, ...]) -> None:
    wrapped: Any = backends.wrap(network)
    with wrapped.training_mode(False):
        wrapped(*inputs)
    # Batch normalisation of one value has no training mode.
    with wrapped.training_mode(True), suppress(ValueError):
        wrapped(*inputs)
    wrapped.eval()


def _given_to(network: Any, observation: Observation, otherwise: dict[str, Any]) -> Any:
    """The arguments that a network was created with, by position and by name."""
    defaults = inspect.signature(type(network).__init__).parameters
    named = {
        name: value
        for name, value in observation.created.get(id(network), otherwise).items()
        if name not in defaults or value is not defaults[name].default
    }
    return _without_names(named), named


def _without_names(named: dict[str, Any]) -> tuple[Any, ...]:
    """Take out the arguments by position, where there are some without a name."""
    several = named.pop("*", ())
    before = tuple(named.pop(name) for name in list(named)) if several else ()
    return before + tuple(several)


def _need_all(program: Program, value: Any) -> None:
    """Port the classes and functions among arguments."""
    if program.table.is_network_class(type(value)):
        if not program.is_own(type(value).__module__):
            name = type(value).__name__
            program.needs_hand("an argument", f"a {name} that exists already: give its class")
            return
        program.need(type(value))
        _need_all(program, list(_given_to(value, program.observation, {})))
    elif inspect.isclass(value) or inspect.isfunction(value):
        if program.is_own(value.__module__):
            program.need(value)
    elif hasattr(value, "func") and hasattr(value, "keywords"):
        _need_all(program, value.func)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _need_all(program, one)
    elif isinstance(value, dict):
        _need_all(program, list(value.values()))
    elif program.is_own(type(value).__module__) and hasattr(value, "__dict__"):
        _need_all(program, [type(value), *vars(value).values()])


def _own_files(table: Any) -> Any:
    @cache
    def is_own(file: str) -> bool:
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == file:
                return is_own_module(name, table.FRAMEWORK)
        return False

    return is_own


def save(found: Port, path: Path) -> None:
    """Write the source, with a comment for each line that needs a hand."""
    lines = [f"# By hand: {remark}" for remark in found.hands]
    head = "\n".join(lines) + "\n" if lines else ""
    path.write_text(head + found.source, encoding="utf-8")
