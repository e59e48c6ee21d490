"""Calls of blocks and functions on their way through a tap, within a run of a unit."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.backends.base import Gradients
from deliralike.conformance.observe.arrays import Setting, bare
from deliralike.conformance.observe.units import Unit
from deliralike.conformance.places import Tap
from deliralike.network.base import AbstractNetwork
from deliralike.network.calls import functions_called_through


def forwards(unit: Unit, tap: Callable[..., Any]) -> Any:
    """Run a unit without gradients, with its taps routed; its network is left as it was."""
    network, before = unit.network, _buffers(unit.network)
    try:
        with (
            network.training_mode(unit.training),
            random.portable(unit.seed),
            unit.backend.evaluating(),
            routed(unit, network, tap),
        ):
            return unit.output(network, unit.backend.prepare(unit.inputs, network))
    finally:
        _write(network, before)


def run_with_gradients(
    unit: Unit, function: Callable[..., Any], *inputs: Any
) -> tuple[Gradients, dict[str, np.ndarray]]:
    """Return the gradients of a function in the unit's mode, and the buffers afterwards.

    The network is left as it was.
    """
    network = unit.network
    before = _buffers(network)
    try:
        with network.training_mode(unit.training), random.portable(unit.seed):
            found = unit.backend.gradients(function, network, *inputs)
        return found, _buffers(network)
    finally:
        _write(network, before)


def _write(network: AbstractNetwork, buffers: Mapping[str, np.ndarray]) -> None:
    slots = network.neutral_slots()
    for name, value in buffers.items():
        slots[name].write(value)


def _buffers(network: AbstractNetwork) -> dict[str, np.ndarray]:
    """What a forward pass may change."""
    return {
        name: slot.read() for name, slot in network.neutral_slots().items() if not slot.is_parameter
    }


@contextmanager
def routed(unit: Unit, network: AbstractNetwork, tap: Callable[..., Any]) -> Iterator[Makers]:
    """Route each call that is a tap through a function, but no call inside of such a call.

    Yields the blocks that are being called and are no taps.
    """
    counts: Counter[Tap] = Counter()
    inside, makers = False, Makers(network.backend.is_array)

    def through(
        name: Tap, path: str | None, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        nonlocal inside
        counts[name] += 1
        inside = True
        try:
            return makers.tapped(tap(replace(name, call=counts[name]), path, call, args, kwargs))
        finally:
            inside = False

    def around_block(
        path: str, block: Any, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if inside:
            return call(*args, **kwargs)
        name = unit.tapped(path)
        if name is not None:
            return through(Tap(name), path, call, args, kwargs)
        return makers.block(path, call, args, kwargs)

    def around_function(
        name: str, functions: Any, call: Callable[..., Any], args: tuple, kwargs: dict
    ) -> Any:
        if inside or not unit.functions:
            return call(*args, **kwargs)
        return through(Tap(function=name), None, call, *_bound(call, args, kwargs))

    def around_native(name: str, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        if inside or name in _MOVES:
            return call(*args, **kwargs)
        packed = tuple(map(_packed, args))
        return through(Tap(function=name), None, lambda *given: call(*bare(given)), packed, kwargs)

    backend = network.backend
    with ExitStack() as stack:
        stack.enter_context(backend.called_through(network, around_block))
        stack.enter_context(functions_called_through(backend.nn, around_function))
        if unit.functions and _is_native(network):
            stack.enter_context(backend.native_functions_called_through(network, around_native))
        yield makers


class Makers:
    """The blocks that are being called and are no taps, and what those gave that have ended."""

    def __init__(self, is_array: Callable[[Any], bool]) -> None:
        """Nothing is being called yet; `is_array` tells arrays of the network's backend."""
        self._is_array = is_array
        self._running: list[tuple[str, dict[int, Any]]] = []  # the innermost last
        self._of_taps: dict[int, Any] = {}  # arrays, kept so that their numbers stay theirs
        self._made: dict[int, tuple[str, Any]] = {}

    def block(self, path: str, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Call a block that is no tap."""
        self._running.append((path, self._arrays((args, kwargs))))
        try:
            output = call(*args, **kwargs)
        finally:
            self._running.pop()
        for key, array in self._arrays(output).items():
            if key not in self._of_taps:
                self._made.setdefault(key, (path, array))
        return output

    def tapped(self, output: Any) -> Any:
        """Note what a tap gave."""
        self._of_taps |= self._arrays(output)
        return output

    @property
    def caller(self) -> str:
        """The innermost block that is being called."""
        return self._running[-1][0] if self._running else ""

    def maker(self, values: Any) -> str:
        """The block that gave some arrays; else the one that is being called and made them."""
        arrays = self._arrays(values)
        made = {self._made[key][0] if key in self._made else None for key in arrays}
        if len(made) == 1 and None not in made:
            return str(made.pop())
        for path, given in reversed(self._running):
            if not arrays or arrays.keys() - given.keys():
                return path
        return ""

    def _arrays(self, values: Any) -> dict[int, Any]:
        return {id(leaf): leaf for leaf in nest.leaves(values) if self._is_array(leaf)}


def _is_native(network: AbstractNetwork) -> bool:
    """Return whether a network is one of a framework's own, not one that is written once."""
    return hasattr(network, "native")


# Where pictures have channels last, code moves axes as the other side does not.
_MOVES = frozenset(
    {"broadcast_to", "expand_dims", "flatten", "permute", "reshape", "squeeze", "transpose"}
)


def _packed(value: Any) -> Any:
    """Return an argument without arrays as a `Setting`."""
    is_plain = all(isinstance(leaf, int | float | str | None) for leaf in nest.leaves(value))
    return Setting(value) if is_plain else value


def _bound(call: Callable[..., Any], args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return arguments by position, with the defaults, however a function is called."""
    try:
        bound = inspect.signature(call).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the call itself says what is wrong
    bound.apply_defaults()
    return bound.args, bound.kwargs
