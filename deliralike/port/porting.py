"""A class of one framework becomes the same network written once."""

from __future__ import annotations

import inspect
import itertools
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance import compare
from deliralike.errors import SettingError
from deliralike.port import pytorch
from deliralike.port.observing import CONSTRUCTION, FORWARD, Observation
from deliralike.port.program import Program, Remark

_numbers = itertools.count()


@dataclass
class Port:
    """A network written once, made from a class of a framework.

    Attributes:
        source: The source of one file.
        reference: The original network, in evaluation mode.
        inputs: What it was called with.
        class_name: The name of the network's class in the source.
        arguments: The arguments of the class, positional and by name.
        hands: What a person has to write, by line of the original.
        left_out: What is not in the port.
        start_code: Where the original sets start values; the port has the defaults of its layers.
    """

    source: str
    reference: Any
    inputs: tuple[Any, ...]
    class_name: str
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    hands: list[Remark] = field(default_factory=list)
    left_out: list[Remark] = field(default_factory=list)
    start_code: list[Remark] = field(default_factory=list)
    _program: Program | None = None
    _module: Any = None

    @property
    def module(self) -> Any:
        """The source as a module."""
        if self._module is None:
            folder = tempfile.mkdtemp(prefix="deliralike-port-")
            path = Path(folder, f"{self.class_name}.py")
            path.write_text(self.source, encoding="utf-8")
            name = f"deliralike_port_{next(_numbers)}"
            module = types.ModuleType(name)
            module.__file__ = str(path)
            sys.modules[name] = module
            exec(compile(self.source, str(path), "exec"), vars(module))
            self._module = module
        return self._module

    def network(self, backend: str, *, seed: int = 0, dtype: str = "float32") -> Any:
        """The network on a backend, with the original's weights."""
        target = backends.get(backend)
        cls = getattr(self.module, self.class_name)
        args, kwargs = self.arguments
        translated = [self._translated(one, target.nn) for one in args]
        named = {name: self._translated(one, target.nn) for name, one in kwargs.items()}
        network = cls.on(target, seed=seed, dtype=dtype)(*translated, **named)
        state = backends.of(self.reference).wrap(self.reference).neutral_state()
        network.load_neutral_state(state)
        return network

    def _translated(self, value: Any, nn: Any) -> Any:
        """An argument of the class: its own classes and functions are those of the port."""
        program = self._program
        if program is None:
            return value
        if inspect.isclass(value) or inspect.isfunction(value):
            where = (value.__module__, value.__qualname__)
            if where in program.names:
                return getattr(self.module, program.names[where])
            name = program.table.name_of(value)
            return getattr(nn, name) if name is not None else value
        if hasattr(value, "func") and hasattr(value, "keywords"):
            made = self._translated(value.func, nn)
            return type(value)(made, *value.args, **value.keywords)
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(self._translated(one, nn) for one in value)
        if isinstance(value, dict):
            return type(value)((name, self._translated(one, nn)) for name, one in value.items())
        if program.is_own(type(value).__module__) and hasattr(value, "__dict__"):
            made = object.__new__(self._translated(type(value), nn))
            for name, one in vars(value).items():
                object.__setattr__(made, name, self._translated(one, nn))
            return made
        return value

    def prove(self, backend: str, levels: Sequence[str] = ("L0", "L1", "L3")) -> Any:
        """Compare the port on a backend with the original: outputs, loss, gradients, statistics."""
        candidate = self.network(backend)
        return compare(
            self.reference, candidate, self.inputs, loss=_weighted_outputs, weights="load", levels=levels
        )


def _weighted_outputs(network: Any, *inputs: Any) -> Any:
    """A loss that no element of an output is without: a sum with weights that are drawn."""
    nn = network.nn
    total = None
    for number, leaf in enumerate(_arrays(network(*inputs))):
        weights = np.random.default_rng(number).standard_normal(leaf.shape) / max(1, np.prod(leaf.shape)) ** 0.5
        part = nn.sum(leaf * nn.constant(weights, like=leaf))
        total = part if total is None else total + part
    return total


def _arrays(outputs: Any) -> Iterator[Any]:
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, (list, tuple)):
        for one in outputs:
            yield from _arrays(one)
    elif hasattr(outputs, "shape") and "float" in str(outputs.dtype):
        yield outputs


def port(
    network: Any,
    inputs: Sequence[Any],
    *args: Any,
    **kwargs: Any,
) -> Port:
    """Rewrite a class of PyTorch as the same network written once.

    Args:
        network: A class of ``torch.nn.Module``, or a function that creates one.
        inputs: What the network is called with, arrays of the framework or of NumPy.
        args, kwargs: Arguments of the class or function.

    Raises:
        SettingError: The class has no source, or is not one of a framework that is known.
    """
    if not callable(network) or isinstance(network, sys.modules["torch"].nn.Module):
        raise SettingError(
            "port: wanted is the class, or a function that creates the network, and its arguments: "
            f"port({type(network).__name__}, inputs, ...)"
        )
    table = pytorch
    torch = sys.modules["torch"]
    given = tuple(
        nest.map(lambda leaf: torch.as_tensor(leaf) if isinstance(leaf, np.ndarray) else leaf, inputs)
    )
    observation = Observation(_is_own_file(table), table.describe)
    with observation.calls(CONSTRUCTION):
        reference = network(*args, **kwargs)
    reference.eval()
    with observation.calls(FORWARD), torch.no_grad():
        reference(*given)
        reference.train()
        _try(reference, given)
        reference.eval()
    with observation.values(), torch.no_grad():
        again = network(*args, **kwargs)
        again.eval()(*given)
        _try(again.train(), given)
    vocabulary = frozenset(name for name in dir(backends.get("torch").nn) if not name.startswith("_"))
    program = Program(table, observation, vocabulary)
    program.blocks = list(reference.modules())
    cls = type(reference)
    name = program.need(cls)
    title = f"{name}, written once: ported from {cls.__module__} by deliralike."
    named = dict(observation.created.get(id(reference), kwargs))
    arguments = (_positional(named), named)
    found = Port(
        "", reference, given, name, arguments, program.hands, program.left_out, program.start_code, program
    )
    for value in (*arguments[0], *arguments[1].values()):
        _need_all(program, value)
    found.source = program.text(title)
    return found


def _need_all(program: Program, value: Any) -> None:
    if (inspect.isclass(value) or inspect.isfunction(value)) and program.is_own(value.__module__):
        program.need(value)
    elif hasattr(value, "func") and hasattr(value, "keywords"):
        _need_all(program, value.func)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _need_all(program, one)
    elif isinstance(value, dict):
        _need_all(program, list(value.values()))
    elif program.is_own(type(value).__module__) and hasattr(value, "__dict__"):
        program.need(type(value))
        _need_all(program, list(vars(value).values()))


def _try(network: Any, inputs: tuple[Any, ...]) -> None:
    """Run once more; batch normalisation of one value has no training mode."""
    try:
        network(*inputs)
    except ValueError:
        pass


def _is_own_file(table: Any) -> Callable[[str], bool]:
    from functools import cache

    from deliralike.port.resolving import is_own_module

    @cache
    def is_own(file: str) -> bool:
        for name, module in list(sys.modules.items()):
            if getattr(module, "__file__", None) == file:
                return is_own_module(name, table.FRAMEWORK)
        return False

    return is_own


def _positional(named: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments that have no name of their own, taken out of a dict."""
    several = named.pop("*", ())
    if not several:
        return ()
    before = tuple(named.pop(name) for name in list(named))
    return before + tuple(several)
