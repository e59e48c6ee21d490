"""Calls of blocks and functions on their way through a tap, within a run of a unit."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.backends.base import Gradients
from deliralike.conformance.kinds import Function, Given, Tensors
from deliralike.conformance.observe.arrays import Setting, bare
from deliralike.conformance.observe.units import Unit
from deliralike.conformance.places import Tap
from deliralike.network.base import AbstractNetwork
from deliralike.network.calls import intercept_functions
from deliralike.network.core import unwrap


def forwards(unit: Unit, tap: Route) -> Any:
    """Run a unit without gradients, with its taps routed; its network is left as it was."""
    network, before = unit.network, _buffers(unit.network)
    try:
        with (
            network.training_mode(unit.training),
            random.portable(),
            unit.backend.evaluating(),
            routed(unit, network, tap),
        ):
            return unit.output(network, unit.backend.prepare(unit.inputs, network))
    finally:
        _write(network, before)


def run_with_gradients(
    unit: Unit, function: Function, *inputs: Any
) -> tuple[Gradients, Tensors]:
    """Return the gradients of a function in the unit's mode, and the buffers afterwards.

    The network is left as it was. What depends on nothing has no gradient, and is no error.
    """
    network = unit.network
    before = _buffers(network)

    def depending(network: AbstractNetwork, *given: Any) -> Any:
        *own, zero = given
        found = function(network, *own)
        if isinstance(found, tuple):
            return (found[0] + zero, *found[1:])
        return found + zero

    try:
        with network.training_mode(unit.training), random.portable():
            found = unit.backend.gradients(depending, network, *inputs, np.zeros(()))
        return replace(found, inputs=found.inputs[:-1]), _buffers(network)
    finally:
        _write(network, before)


def _write(network: AbstractNetwork, buffers: Mapping[str, np.ndarray]) -> None:
    slots = network.neutral_slots()
    for name, value in buffers.items():
        slots[name].write(value)


def _buffers(network: AbstractNetwork) -> Tensors:
    """What a forward pass may change."""
    return {
        name: slot.read()
        for name, slot in network.neutral_slots().items()
        if not slot.is_parameter
    }


@dataclass(frozen=True)
class Met:
    """A call that is a tap, before it is made.

    Attributes:
        name: The tap.
        path: The block's path in the network that runs; None for a function.
        call: What is called.
        given: The arguments ``(args, kwargs)``.
        caller: The innermost block that is no tap itself and makes the call.
    """

    name: Tap
    path: str | None
    call: Function
    given: Given
    caller: str = ""

    def result(self, given: Any = None) -> Any:
        """Make the call, with what is given or something else."""
        args, kwargs = given or self.given
        return self.call(*args, **kwargs)


Route = Callable[
    [Met], Any
]  # what a tap does with a call; it returns the call's result


@contextmanager
def routed(unit: Unit, network: AbstractNetwork, tap: Route) -> Iterator[None]:
    """Route each call that is a tap through a function, but no call inside of such a call."""
    routing, backend = _Routing(unit, tap), network.backend
    with ExitStack() as stack:
        stack.enter_context(
            backend.intercept_calls(network, backend.same_trace_only(routing.block))
        )
        stack.enter_context(intercept_functions(backend.nn, routing.function))
        if unit.functions and not isinstance(unwrap(network), AbstractNetwork):
            stack.enter_context(
                backend.intercept_native_functions(network, routing.native)
            )
        yield


class _Routing:
    """The ways of calls of blocks and functions to a tap."""

    def __init__(self, unit: Unit, tap: Route) -> None:
        self.unit, self.tap = unit, tap
        self.counts: Counter[Tap] = Counter()
        self.inside = False
        self.callers = [""]  # the blocks that are being called and are no taps

    def block(self, path: str, block: Any, call: Any, args: tuple, kwargs: dict) -> Any:
        """The call of a block."""
        if self.inside:
            return call(*args, **kwargs)
        name = self.unit.tapped(path)
        if name is None:
            self.callers.append(path)
            try:
                return call(*args, **kwargs)
            finally:
                self.callers.pop()
        return self._through(Tap(name), path, call, (args, kwargs))

    def function(
        self, name: str, functions: Any, call: Any, args: tuple, kwargs: dict
    ) -> Any:
        """The call of a function of `nn`."""
        if self.inside or not self.unit.functions:
            return call(*args, **kwargs)
        return self._through(Tap(function=name), None, call, _bound(call, args, kwargs))

    def native(self, name: str, call: Any, args: tuple, kwargs: dict) -> Any:
        """The call of a framework's own function."""
        if self.inside or name in _MOVES:
            return call(*args, **kwargs)
        packed = tuple(map(_packed, args))
        return self._through(
            Tap(function=name),
            None,
            lambda *given: call(*bare(given)),
            (packed, kwargs),
        )

    def _through(self, name: Tap, path: str | None, call: Any, given: Any) -> Any:
        self.counts[name] += 1
        tap = replace(name, call=self.counts[name])
        met = Met(tap, path, call, given, self.callers[-1])
        self.inside = True
        try:
            return self.tap(met)
        finally:
            self.inside = False


# Where pictures have channels last, code moves axes as the other side does not.
_MOVES = frozenset(
    {
        "broadcast_to",
        "expand_dims",
        "flatten",
        "permute",
        "reshape",
        "squeeze",
        "transpose",
    }
)


def _packed(value: Any) -> Any:
    """Return an argument without arrays as a `Setting`."""
    is_plain = all(
        isinstance(leaf, int | float | str | None) for leaf in nest.leaves(value)
    )
    return Setting(value) if is_plain else value


def _bound(call: Function, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Return arguments by position, with the defaults, however a function is called."""
    try:
        bound = inspect.signature(call).bind(*args, **kwargs)
    except TypeError:
        return args, kwargs  # the call itself says what is wrong
    bound.apply_defaults()
    return bound.args, bound.kwargs
