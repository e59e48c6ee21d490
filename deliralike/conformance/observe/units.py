"""A unit: a network or a block of one, with its inputs; and what a run of it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.backends.base import Backend
from deliralike.conformance.findings import Observed
from deliralike.conformance.kinds import Function, Given, Named, Shape
from deliralike.conformance.observe.arrays import Arrays, instead, tied
from deliralike.conformance.places import Tap
from deliralike.network.base import AbstractNetwork


@dataclass(frozen=True)
class Unit:
    """A network, or a block seen as one, and how it is called.

    Attributes:
        network: On any backend.
        call: ``call(network, *args, **kwargs)``: a loss, or the block's own call.
        args, kwargs: NumPy arrays and plain values, in any nest.
        training: The mode.
        tapped: The path of the tap that the call of a block is, by the block's own path; None where
            it is looked into.
        functions: Whether calls of functions of `nn` are taps as well; in a native network also
            those of the framework's own functions.
        same: Which of the arguments are one object; see `Call`.
    """

    network: AbstractNetwork
    call: Function
    args: tuple[Any, ...]
    training: bool
    tapped: Callable[[str], str | None]
    kwargs: Named = field(default_factory=dict)
    functions: bool = True
    same: Shape = ()

    @property
    def inputs(self) -> Given:
        """All arguments, as one nest."""
        return self.args, dict(self.kwargs)

    def output(self, network: AbstractNetwork, inputs: Given) -> Any:
        """Call a network, which may be a copy that a compiler traces, with native arguments."""
        is_array = network.backend.is_array
        own = nest.map_where(is_array, lambda array: instead(array, array), inputs)
        args, kwargs = tied(own, self.same)
        return self.call(network, *args, **kwargs)

    @property
    def backend(self) -> Backend:
        """The network's backend."""
        return backends.of(self.network)


@dataclass(frozen=True)
class Call:
    """One call of a tap: nests of NumPy arrays, plain values and `SlotName`.

    Attributes:
        path: The block's path in the network that was followed; None for a function.
        same: For each leaf of the arguments the first one that is the very same array: layers may
            ask for that.
        caller: The path of the innermost block that is no tap itself and makes the call.
    """

    path: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any
    same: Shape = ()
    caller: str = ""

    @property
    def given(self) -> Given:
        """All arguments, as one nest."""
        return self.args, self.kwargs


@dataclass(frozen=True)
class CallCotangents:
    """What belongs to a call, as flat lists of arrays: of its inputs, and of its output."""

    inputs: Arrays
    output: Arrays


Calls = Mapping[Tap, Call]
Cotangents = Mapping[Tap, CallCotangents]


@dataclass(frozen=True)
class Recording:
    """What a run of a unit showed.

    Attributes:
        output: What the unit gave.
        calls: The taps in the order of their calls.
        parameters: The gradient of each parameter.
        inputs: The gradient of each of the unit's arguments.
        state: Buffers afterwards.
    """

    output: Any
    calls: Calls = field(default_factory=dict)
    parameters: Mapping[str, np.ndarray | None] = field(default_factory=dict)
    inputs: tuple[Any, ...] = ()
    state: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Forced:
    """What a forced run showed.

    Attributes:
        observed: What each tap computed by itself; under `UNIT` what the unit computed between
            them.
        beyond: The calls of taps that were met besides those that were forced.
    """

    observed: Mapping[Tap, Observed]
    beyond: Calls = field(default_factory=dict)
