"""A probe, and what one side makes of it."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.findings import has_floats, is_array
from deliralike.conformance.kinds import Batch, Tensors
from deliralike.conformance.last_bit import shaken
from deliralike.conformance.listening import InPlace, evaluated
from deliralike.conformance.matching import Match
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError
from deliralike.network.base import AbstractNetwork, Network
from deliralike.optim.loss import value_of
from deliralike.weights.matching.pairing import COUNTER

UNIT_FLOAT32, UNIT_FLOAT64 = 2.0**-24, 2.0**-53


@dataclass(frozen=True)
class Probe:
    """A batch with something extreme in it.

    Attributes:
        name: In words.
        batch: It.
        scale: What outputs are multiplied by on their way into the loss.
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
    zeroed: tuple[str, ...] = ()
    beside: float = 0.0
    ties: bool = False
    kind: str = "gradients"
    about: str = ""

    @property
    def mode(self) -> str:
        """That of the network: ``"train"`` or ``"eval"``."""
        return "train" if self.kind == "gradients" else "eval"


@dataclass(frozen=True)
class Seen:
    """What a side made of a probe: tensors by name, or an error."""

    tensors: Tensors
    error: Exception | None = None


class _Scaled(InPlace):
    """A network whose outputs are scaled on their way into the loss."""

    def __init__(self, network: Any, scale: Any) -> None:
        super().__init__(network)
        self._scale = scale

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return nest.map(self._scaled, self._network(*args, **kwargs))

    def _scaled(self, leaf: Any) -> Any:
        return leaf * self._scale if has_floats(leaf) else leaf


@dataclass(frozen=True)
class Side:
    """A subject with a copy of its network that probes may use up.

    Attributes:
        loss: ``loss(network, scale, *batch)``; made once, so that it is compiled once.
        match: Of the reference's names with the network's own, where they differ.
    """

    subject: Subject
    network: AbstractNetwork
    loss: Callable[..., Any]
    match: Match | None = None

    @classmethod
    def of(
        cls, subject: Subject, network: AbstractNetwork | None = None, match: Match | None = None
    ) -> Side:
        """For a subject; `network` in the place of a copy of its own."""
        if network is None:
            network = copy.deepcopy(subject.network)

        def loss(net: Any, scale: Any, *batch: Any) -> Any:
            return value_of(subject.loss(_Scaled(net, scale), *batch))

        return cls(subject, network, loss, match)

    @property
    def state(self) -> Tensors:
        """The weights that the copy starts each probe with, in the reference's names.

        They are read anew each time, as a network may be large.
        """
        state = self.subject.network.neutral_state()
        return state if self.match is None else self.match.to_reference(state)

    @property
    def is_native(self) -> bool:
        """Whether the network was written for a framework, and not once for all."""
        return not isinstance(self.subject.network, Network)

    @cached_property
    def short(self) -> Side | None:
        """The same in float32, if the backend can make it."""
        self._load(self.state)  # probes have moved it
        try:
            network = self.network.backend.in_dtype(self.network, "float32")
        except DeliralikeError:
            return None
        return Side.of(self.subject, network, self.match)

    def see(self, probe: Probe, rounded: np.random.Generator | None = None) -> Seen:
        """Return the network's results for a probe.

        If a generator is given, parameters and inputs are rounded at random.
        """
        batch = self._start(probe, rounded)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                if probe.kind == "gradients":
                    return Seen(self._gradients(probe, batch))
                return Seen(evaluated(self.subject, self.network, batch))
            except Exception as error:  # noqa: BLE001
                return Seen({}, error)

    def _start(self, probe: Probe, rounded: np.random.Generator | None) -> Batch:
        """Give the network the weights of a probe; return the batch of the probe."""
        state = self.state
        state |= _zeroed(state, probe)
        if rounded is None:
            self._load(state)
            return probe.batch
        self._load(_shaken(state, rounded))
        if probe.ties:
            return probe.batch
        return nest.map(lambda leaf: shaken(leaf, rounded, UNIT_FLOAT64), probe.batch)

    def _load(self, state: Tensors) -> None:
        given = dict(state)
        if self.match is not None:
            # which has no counters: averages without a momentum weigh by them
            slots = self.subject.network.neutral_slots().items()
            given = {name: slot.read() for name, slot in slots if name.endswith(COUNTER)}
            given |= self.match.to_candidate(state)
        self.network.load_neutral_state(given, strict=self.match is None)

    def _gradients(self, probe: Probe, batch: Batch) -> Tensors:
        with self.network.training_mode(True), random.portable():
            scale = np.asarray(probe.scale)
            found = self.network.backend.gradients(self.loss, self.network, scale, *batch)
        buffers: dict[str, Any] = {}
        for name, slot in self.network.neutral_slots().items():
            if not slot.is_parameter:
                buffers[name] = slot.read()
        gradients: dict[str, Any] = dict(found.parameters)
        if self.match is not None:
            buffers = self.match.to_reference(buffers)
            gradients = self.match.to_reference(gradients, gradients=True)
        gradients |= nest.leaves_with_paths(found.inputs[1:], "batch")
        tensors = {"loss": np.asarray(found.loss)}
        for name, value in buffers.items():
            if not name.endswith(COUNTER):  # level L1 judges it
                tensors[name] = value
        for name, value in gradients.items():
            if is_array(value):
                tensors[f"gradient of {name}"] = value
        return tensors


def _zeroed(state: Tensors, probe: Probe) -> Tensors:
    """The parameters that a probe has at zero, or beside it."""
    zeroed = [name for name in probe.zeroed if name in state]  # others are held in another form
    found = {name: np.zeros_like(state[name]) for name in zeroed}
    biases = [name for name in zeroed if "bias" in name.rpartition(".")[2]]
    for number, name in enumerate(biases):
        # Each layer's own outweighs what comes from the layers before.
        power = 1.0 - 0.9 * number / len(biases)
        found[name][...] = np.sign(probe.beside) * abs(probe.beside) ** power
    return found


def _shaken(state: Tensors, generator: np.random.Generator) -> Tensors:
    """A state with errors in the last bit; tensors that are equal, as tied ones are, stay equal."""
    found: Tensors = {}
    for name, value in state.items():
        twin = next((other for other in found if np.array_equal(state[other], value)), None)
        if twin is None:
            found[name] = shaken(value, generator, UNIT_FLOAT64)
        else:
            found[name] = found[twin]
    return found
