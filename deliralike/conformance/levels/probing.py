"""A probe, and what one side makes of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.last_bit import shaken
from deliralike.conformance.listening import evaluated
from deliralike.conformance.matching import Match
from deliralike.conformance.matching.pairing import COUNTER
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError
from deliralike.network.base import AbstractNetwork, Network
from deliralike.network.calls import Around

UNIT_FLOAT32, UNIT_FLOAT64 = 2.0**-24, 2.0**-53

Arrays = dict[str, np.ndarray]
Batch = tuple[Any, ...]


@dataclass(frozen=True)
class Probe:
    """A batch with something extreme in it.

    Attributes:
        name: In words.
        batch: It.
        scale, taken_off, offset: Outputs y go into the loss as ``scale * y - taken_off * y +
            offset``, the second y without its gradient: huge ones, or ones that are zero and still
            have a gradient.
        zeroed: Parameters that are zero, so that what comes out of their layers is.
        beside: What the biases among them are instead: the smallest of them, each later one larger.
        ties: Whether equal numbers are the point, so that inputs are not rounded in the
            measurement.
        kind: ``"gradients"`` in training mode, ``"evaluation"`` of outputs and loss, or
            ``"refusal"``: an evaluation of which it matters whether it raises.
        about: What an explanation tries.
    """

    name: str
    batch: Batch
    scale: float = 1.0
    taken_off: float = 0.0
    offset: float = 0.0
    zeroed: tuple[str, ...] = ()
    beside: float = 0.0
    ties: bool = False
    kind: str = "gradients"
    about: str = ""


@dataclass(frozen=True)
class Seen:
    """What a side made of a probe: tensors by name, or an error; and what it warned of."""

    tensors: Arrays
    error: Exception | None = None
    warned: tuple[str, ...] = ()


class _Changed:
    """A network whose outputs are scaled and moved on their way into the loss."""

    def __init__(self, network: Any, scale: Any, taken_off: Any, offset: Any) -> None:
        self._network, self._numbers = network, (scale, taken_off, offset)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return nest.map(self._change, self._network(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def _change(self, leaf: Any) -> Any:
        if "float" not in str(getattr(leaf, "dtype", "")):
            return leaf
        scale, taken_off, offset = self._numbers
        return leaf * scale - self._network.nn.stop_gradient(leaf) * taken_off + offset


@dataclass(frozen=True)
class Side:
    """A subject with a copy of its network that probes may use up.

    Attributes:
        loss: ``loss(network, scale, taken_off, offset, *batch)``; made once, so that it is compiled
            once.
        state: The weights that the copy starts each probe with, in the reference's names.
        match: Of these with the network's own names, where they differ.
    """

    subject: Subject
    network: AbstractNetwork
    loss: Callable[..., Any]
    state: Arrays
    match: Match | None = None

    @classmethod
    def of(
        cls, subject: Subject, network: AbstractNetwork | None = None, match: Match | None = None
    ) -> Side:
        """For a subject; `network` in the place of a copy of its own."""
        network = copy.deepcopy(subject.network) if network is None else network

        def loss(net: Any, scale: Any, taken_off: Any, offset: Any, *batch: Any) -> Any:
            result = subject.loss(_Changed(net, scale, taken_off, offset), *batch)
            return result[0] if isinstance(result, tuple) else result

        state = network.neutral_state()
        return cls(
            subject, network, loss, state if match is None else match.to_reference(state), match
        )

    @property
    def is_native(self) -> bool:
        """Whether the network was written for a framework, and not once for all."""
        return not isinstance(self.subject.network, Network)

    @cached_property
    def short(self) -> Side | None:
        """The same in float32, if the backend can make it."""
        self._load(self.state)  # probes have moved it
        try:
            return Side.of(
                self.subject, self.network.backend.in_dtype(self.network, "float32"), self.match
            )
        except DeliralikeError:
            return None

    def through(self, around: Around) -> Side:
        """Return the same with each block called by another function: see `Backend.called_through`."""

        def loss(net: Any, *rest: Any) -> Any:
            with self.network.backend.called_through(net, around):
                return self.loss(net, *rest)

        return replace(self, loss=loss)

    def see(
        self, probe: Probe, rounded: np.random.Generator | None = None, unit: float = UNIT_FLOAT64
    ) -> Seen:
        """Return the network's results for a probe.

        If a generator is given, parameters and inputs are rounded at random.
        """
        state = {**self.state, **_zeroed(self.state, probe)}
        batch = probe.batch
        if rounded is not None:
            state = _shaken(state, rounded, unit)
            batch = (
                batch if probe.ties else nest.map(lambda leaf: shaken(leaf, rounded, unit), batch)
            )
        self._load(state)
        with warnings.catch_warnings(record=True) as caught, np.errstate(all="ignore"):
            warnings.simplefilter("always")
            try:
                tensors = (
                    self._gradients(probe, batch)
                    if probe.kind == "gradients"
                    else self._evaluated(batch)
                )
            except Exception as error:  # noqa: BLE001
                return Seen({}, error)
        return Seen(
            tensors,
            None,
            tuple(str(each.message) for each in caught if each.category is UserWarning),
        )

    def _load(self, state: Arrays) -> None:
        given = state if self.match is None else self.match.to_candidate(state)
        self.network.load_neutral_state(given, strict=self.match is None)

    def _evaluated(self, batch: Batch) -> Arrays:
        return evaluated(self.subject, self.network, batch)

    def _gradients(self, probe: Probe, batch: Batch) -> Arrays:
        numbers = tuple(np.asarray(each) for each in (probe.scale, probe.taken_off, probe.offset))
        with self.network.training_mode(True), random.portable():
            found = self.network.backend.gradients(self.loss, self.network, *numbers, *batch)
        inputs = nest.leaves_with_paths(found.inputs[len(numbers) :], "batch")
        slots = self.network.neutral_slots()
        buffers: dict[str, Any] = {
            name: slot.read() for name, slot in slots.items() if not slot.is_parameter
        }
        parameters: dict[str, Any] = dict(found.parameters)
        if self.match is not None:
            buffers, parameters = (
                self.match.to_reference(buffers),
                self.match.to_reference(parameters, gradients=True),
            )
        buffers = {
            name: value for name, value in buffers.items() if not name.endswith(COUNTER)
        }  # level L1 judges it
        gradients = {**parameters, **dict(inputs)}
        named = {
            f"gradient of {name}": value
            for name, value in gradients.items()
            if isinstance(value, np.ndarray)
        }
        return {"loss": np.asarray(found.loss), **buffers, **named}


def _zeroed(state: Arrays, probe: Probe) -> Arrays:
    """The parameters that a probe has at zero, or beside it."""
    zeroed = [name for name in probe.zeroed if name in state]  # others are held in another form
    biases = [name for name in zeroed if "bias" in name.rpartition(".")[2]]
    # Each layer's own outweighs what comes from the layers before.
    powers = {name: 1.0 - 0.9 * number / len(biases) for number, name in enumerate(biases)}
    sizes = {
        name: np.sign(probe.beside) * abs(probe.beside) ** powers.get(name, 1.0) for name in zeroed
    }
    return {
        name: np.full_like(state[name], size if name in powers else 0.0)
        for name, size in sizes.items()
    }


def _shaken(state: Arrays, generator: np.random.Generator, unit: float) -> Arrays:
    """A state with errors in the last bit; tensors that are equal, as tied ones are, stay equal."""
    found: Arrays = {}
    for name, value in state.items():
        twins = (other for other in found if np.array_equal(state[other], value))
        twin = next(twins, None)
        found[name] = shaken(value, generator, unit) if twin is None else found[twin]
    return found
