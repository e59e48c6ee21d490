"""The summary of a network: its layers, their outputs, and its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.errors import ArgumentError, StateError
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unwrap
from deliralike.network.forward_errors import explain
from deliralike.network.state import Slot, each_once
from deliralike.random import unchanged_generators
from deliralike.tables import PrintsTable
from deliralike.zoo.inputs import Input


@dataclass(frozen=True)
class LayerSummary:
    """One block of a network.

    Attributes:
        path: The dotted path; empty for the network itself.
        type: The name of the class.
        output: The shape of its last output, or a nest of shapes; None if it was not called.
        parameters: The number of its own parameters, those of blocks below not counted. A tied one
            counts in the block of its first name alone.
        frozen: How many of them do not train.
    """

    path: str
    type: str
    output: Any
    parameters: int
    frozen: int


@dataclass(frozen=True, repr=False)
class Summary(PrintsTable):
    """The layers of a network and its numbers; printed, a table that fits the terminal.

    Attributes:
        name: The name of the network's class.
        backend: The name of its backend.
        device: The device of its parameters.
        dtype: Their floating type.
        layers: Every block in the order of creation, the network itself first.
        parameters: The number of parameters; tied ones count once.
        frozen: How many of them do not train.
    """

    columns = ("layer", "type", "output", "parameters", "frozen")
    numbers = columns[3:]
    name: str
    backend: str
    device: str
    dtype: str
    layers: tuple[LayerSummary, ...]
    parameters: int
    frozen: int

    @property
    def trainable(self) -> int:
        """The number of parameters that train; tied ones count once."""
        return self.parameters - self.frozen

    @property
    def output(self) -> Any:
        """The shape of the network's output, or a nest of shapes; None if it was not run."""
        return self.layers[0].output

    def _title(self) -> str:
        return (
            f"{self.name} on {self.backend} ({self.device}, {self.dtype}): "
            f"{self.parameters:,} parameters, {self.trainable:,} trainable"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for layer in self.layers:
            output = "" if layer.output is None else str(layer.output)
            counts = f"{layer.parameters:,}", f"{layer.frozen:,}"
            rows.append((layer.path or "(itself)", layer.type, output, *counts))
        return rows


def summary(network: Any, inputs: Any = None) -> Summary:
    """Return the layers of a network with types, output shapes, parameters and memory.

    With inputs, a copy of the network that shares its parameters runs on them once, in evaluation
    mode and without gradients. The network itself, its mode and its buffers, and the generators of
    random numbers stay as they were. For a network of the zoo that is not built yet, and for
    multiply-adds, see `deliralike.zoo.outline`.

    Args:
        network: Written once or native, of any backend; of a replicated one, the first replica.
        inputs: An example: one array, a tuple of positional or a dict of keyword arguments, in
            NumPy or native arrays. In the place of each array may stand the shape of one sample,
            ``(3, 224, 224)``, or a `zoo.Input`, from which a batch of one is drawn.

    Raises:
        ArgumentError: The network is a name or a class.
        StateError: The network cannot be copied, or its parameters have no shapes before it runs.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=8, out_features=3, hidden=(5,))
        >>> print(summary(net, (8,)))
        MLP on torch (cpu, float32): 63 parameters, 63 trainable
        layer       type        output  parameters  frozen
        (itself)    MLP         (1, 3)           0       0
        layers      ModuleList                   0       0
        layers.0    Linear      (1, 5)          45       0
        layers.1    Linear      (1, 3)          18       0
        activation  ReLU        (1, 5)           0       0
        dropouts    ModuleList                   0       0
        dropouts.0  Dropout     (1, 5)           0       0
    """
    if isinstance(network, str | type):
        raise ArgumentError(
            f"summary: {network!r} is not built: give a network, such as zoo.build(name, "
            "backend=...), or call zoo.outline, which needs none"
        )
    wrapped = backends.wrap(unwrap(network))
    outputs: dict[str, Any] = {}
    if inputs is not None:
        wrapped, outputs = _run(wrapped, *_arguments(inputs))
    slots = wrapped.neutral_slots()
    _refuse_unshaped(slots)
    blocks = dict(wrapped.named_blocks())
    layers = tuple(_layers(blocks, slots, outputs))
    return Summary(
        name=layers[0].type,
        backend=wrapped.backend.name,
        device=wrapped.device_name,
        dtype=wrapped.dtype_name,
        layers=layers,
        parameters=sum(layer.parameters for layer in layers),
        frozen=sum(layer.frozen for layer in layers),
    )


# Running ------------------------------------------------------------------------------------------


def _arguments(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return positional and keyword arguments, with arrays in the place of shapes."""
    if isinstance(inputs, Mapping):
        return (), {name: _example(value) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list) and not _is_shape(inputs):
        return tuple(map(_example, inputs)), {}
    return (_example(inputs),), {}


def _example(value: Any) -> Any:
    """Return a batch of one for a shape or an `Input`, and anything else as it is."""
    if _is_shape(value):
        value = Input(tuple(value))
    if isinstance(value, Input):
        return value.draw(np.random.default_rng(0), 1)
    return value


def _is_shape(value: Any) -> bool:
    is_sequence = isinstance(value, tuple | list) and len(value) > 0
    return is_sequence and all(isinstance(size, int | np.integer) for size in value)


def _run(
    network: AbstractNetwork, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[AbstractNetwork, dict[str, Any]]:
    """Run a copy of a network; return it with the shapes of each block's output by path."""
    backend = network.backend
    twin = _copy(network).eval()
    outputs: dict[str, Any] = {}

    def record_shape(
        path: str, _block: Any, call: Any, args: tuple, kwargs: dict[str, Any]
    ) -> Any:
        result = call(*args, **kwargs)
        outputs[path] = nest.map(_shape_of, result)
        return result

    with ExitStack() as stack:
        stack.enter_context(unchanged_generators())
        stack.enter_context(backend.preserve_global_state())
        stack.enter_context(backend.evaluating())
        stack.enter_context(backend.intercept_calls(twin, record_shape))
        args, kwargs = backend.prepare((args, kwargs), twin)
        try:
            twin(*args, **kwargs)
        except Exception as error:
            explain(error)
            raise
    return twin, outputs


def _copy(network: AbstractNetwork) -> AbstractNetwork:
    """Return a copy that shares the parameters which have a shape, and nothing else."""
    try:
        slots = network.neutral_slots()
        _refuse_unshaped(slots)
    except StateError:  # the run gives the parameters their shapes
        slots = {}
    parameters = [slot.native for slot in slots.values() if slot.is_parameter]
    try:
        return deepcopy(network, {id(parameter): parameter for parameter in parameters})
    except Exception as error:  # a network may hold anything
        raise StateError(
            f"{type(network).__name__} cannot be copied, so that it would not stay as it was if it "
            f"ran: {error}. Leave out the inputs"
        ) from error


def _refuse_unshaped(slots: Mapping[str, Slot]) -> None:
    """Refuse a network with a parameter whose shape its first input decides.

    Raises:
        StateError: Names the parameter.
    """
    for name, slot in slots.items():
        try:
            _ = slot.shape
        except Exception as error:  # frameworks differ in what they raise
            raise StateError(
                f"{name!r} has no shape before the network runs for the first time: give inputs"
            ) from error


def _shape_of(leaf: Any) -> Any:
    """Return the shape of an array, and the name of the type of anything else."""
    if leaf is None:
        return None
    shape = getattr(leaf, "shape", None)
    return type(leaf).__name__ if shape is None else tuple(shape)


# Counting -----------------------------------------------------------------------------------------


def _layers(
    blocks: Mapping[str, Any], slots: Mapping[str, Slot], outputs: Mapping[str, Any]
) -> Iterator[LayerSummary]:
    """Yield each block with its own parameters."""
    parameters = dict.fromkeys(blocks, 0)
    frozen = dict.fromkeys(blocks, 0)
    for name, slot in each_once(slots).items():
        owner = name.rpartition(".")[0]
        while owner not in blocks:
            owner = owner.rpartition(".")[0]
        if slot.is_parameter:
            parameters[owner] += slot.size
            frozen[owner] += 0 if slot.trainable else slot.size
    for path, block in blocks.items():
        yield LayerSummary(
            path=path,
            type=type(block).__name__,
            output=outputs.get(path),
            parameters=parameters[path],
            frozen=frozen[path],
        )
