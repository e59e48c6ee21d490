"""The layers of a network without building it: shapes, parameters, multiply-adds."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import starmap, zip_longest
from typing import Any

from deliralike import nest
from deliralike.errors import ArgumentError, CapabilityError
from deliralike.tables import PrintsTable
from deliralike.zoo import table
from deliralike.zoo.inputs import Input, Shape, inputs
from deliralike.zoo.registry import Architecture, find


@dataclass(frozen=True)
class Row:
    """One layer: a block without blocks below it, or with parameters or products of its own.

    Attributes:
        name: The dotted path; empty for the network itself.
        type: The name of the class.
        output: The shape of the output, or a nest of shapes.
        parameters: The number of its own parameters.
        multiply_adds: Multiplications (each with an addition) of its own products.
    """

    name: str
    type: str
    output: Any
    parameters: int
    multiply_adds: int


@dataclass(frozen=True, repr=False)
class Outline(PrintsTable):
    """A network's layers in the order in which they run, for one sample.

    Attributes:
        name: The architecture's or class's name.
        inputs: The shapes of the inputs.
        output: The shape of the output, or a nest of shapes.
        parameters: The number of parameters; shared ones count once.
        multiply_adds: The number in all convolutions and matrix products (resizing and
            normalization do not count).
        rows: One for each layer.

    Example:
        >>> sketch = outline("resnet18")
        >>> sketch.parameters, sketch.multiply_adds, sketch.output
        (11689512, 1814073344, (1, 1000))
        >>> print(outline("mlp", in_features=8, out_features=3, hidden=(5,)))
        mlp: input (1, 8), output (1, 3), 63 parameters, 55 multiply-adds
        layer       type     output  parameters  multiply-adds
        layers.0    Linear   (1, 5)          45             40
        activation  ReLU     (1, 5)           0              0
        dropouts.0  Dropout  (1, 5)           0              0
        layers.1    Linear   (1, 3)          18             15
    """

    columns = ("layer", "type", "output", "parameters", "multiply-adds")
    numbers = columns[3:]
    name: str
    inputs: tuple[Shape, ...]
    output: Any
    parameters: int
    multiply_adds: int
    rows: tuple[Row, ...]

    def _title(self) -> str:
        shapes = ", ".join(map(str, self.inputs))
        return (
            f"{self.name}: input {shapes}, output {self.output}, {self.parameters:,} parameters, "
            f"{self.multiply_adds:,} multiply-adds"
        )

    def _cells(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for row in self.rows:
            counts = f"{row.parameters:,}", f"{row.multiply_adds:,}"
            rows.append((row.name or "(itself)", row.type, str(row.output), *counts))
        return rows


def outline(
    network: Any, input_shape: Shape | Sequence[Shape] | None = None, **settings: Any
) -> Outline:
    """Return the parameters, multiply-adds and shapes of a network in milliseconds.

    No framework is loaded, and nothing is computed.

    Args:
        network: A name of the zoo, an `Architecture`, or a class written once.
        input_shape: One sample's shape, without the batch; a list of shapes for several inputs. The
            architecture's own when not given.
        settings: Settings to change in the architecture, or the arguments of the class.

    Raises:
        UnknownName, ArgumentError, SettingError: As `build` does.
        ShapeError: The network cannot take such an input; the message names the layer.

    Example:
        >>> outline("unet", (1, 65, 47), features=(8, 16, 8)).output
        (1, 2, 65, 47)
    """
    run = run_on_shapes(network, input_shape, settings)
    rows = []
    for block in run.trace.blocks.values():
        if block.is_leaf or block.parameters or block.multiply_adds:
            row = Row(
                block.path,
                block.type,
                block.output,
                block.parameters,
                block.multiply_adds,
            )
            rows.append(row)
    return Outline(
        name=architecture_of(network).name,
        inputs=tuple((1, *entry.shape) for entry in run.inputs),
        output=nest.map(_shape_of, run.output),
        parameters=run.network.count_parameters(),
        multiply_adds=sum(row.multiply_adds for row in rows),
        rows=tuple(rows),
    )


def _shape_of(leaf: Any) -> Any:
    """Return the shape of an array; what is no array stays."""
    return getattr(leaf, "shape", leaf)


def count_parameters(network: Any, **settings: Any) -> int:
    """Count the parameters, shared ones once, without running the network.

    This is faster than an outline.

    Args:
        network, settings: As for `outline`.

    Example:
        >>> count_parameters("resnet18", num_classes=10)
        11181642
    """
    backend = importlib.import_module("deliralike.backends.outline").BACKEND
    return architecture_of(network).on(backend)(**settings).count_parameters()


def described(architecture: Architecture) -> table.Row:
    """Return what the table of architectures says of one, from the architecture itself."""
    stated = () if architecture.shape is None else architecture.inputs_for()
    return table.Row(
        name=architecture.name,
        module=architecture.network.__module__,
        task=architecture.task,
        dims=architecture.dims,
        parameters=architecture.parameters or count_parameters(architecture),
        inputs=stated,
    )


def architecture_of(network: Any) -> Architecture:
    """Return the architecture for a name of the zoo, an architecture or a class written once."""
    if isinstance(network, Architecture):
        return network
    if isinstance(network, str):
        return find(network)
    if not callable(network):
        raise ArgumentError(
            f"{network!r} is no network: wanted a name of the zoo, an architecture or a class"
        )
    return Architecture(network.__name__, network)


def _inputs(
    architecture: Architecture, input_shape: Any, settings: dict[str, Any]
) -> tuple[Input, ...]:
    """Return the inputs of these shapes, of the kinds that the architecture states.

    Without shapes, they are the architecture's own inputs.
    """
    if input_shape is None:
        return architecture.inputs_for(**settings)
    requested = inputs(input_shape)
    if architecture.shape is None:
        return requested
    own = architecture.inputs_for(**settings)
    return tuple(starmap(_merged, zip_longest(requested, own)))


def _merged(requested: Input | None, own: Input | None) -> Input:
    """Return the requested input, of the architecture's kind unless it states its own.

    Without a requested one, it is the architecture's.
    """
    if requested is None or own is None or requested.below is not None:
        return requested or own  # type: ignore[return-value]
    return replace(requested, below=own.below)


@dataclass(frozen=True)
class Run:
    """The record of a run on shapes alone.

    Attributes:
        network: The network, on the backend of shapes.
        inputs: The inputs of the run.
        trace: The calls of its blocks.
        output: The output for a batch of one.
    """

    network: Any
    inputs: tuple[Input, ...]
    trace: Any
    output: Any


def run_on_shapes(
    network: Any,
    input_shape: Any,
    settings: dict[str, Any],
    method: str = "__call__",
    depth: int | None = None,
) -> Run:
    """Run a network, or a method of it, in evaluation mode on shapes alone.

    See `outline` for the arguments.

    Args:
        depth: The number of nested calls in which to follow the data; see `deliralike.zoo.flow`.

    Raises:
        CapabilityError: The network has no such method.
    """
    module = importlib.import_module("deliralike.backends.outline")
    architecture = architecture_of(network)
    entries = _inputs(architecture, input_shape, settings)
    model = architecture.on(module.BACKEND)(**settings).eval()
    if not hasattr(model, method):
        raise CapabilityError(
            f"{type(model).__name__} has no {method}: derive it from deliralike.zoo.Model and "
            "write it"
        )
    with module.tracing(depth) as trace:
        output = getattr(model, method)(*module.inputs(entries))
    return Run(model, entries, trace, output)


@dataclass(frozen=True)
class Stage:
    """The output of one stage of a model, for one sample.

    Attributes:
        channels: The number of channels.
        shape: ``(channels, *size)``; ``(tokens, channels)`` of a network over sequences.
        reduction: The factor by which it is smaller than the input along each spatial axis,
            rounded; empty without any.
    """

    channels: int
    shape: Shape
    reduction: tuple[int, ...]


def stages(
    network: Any, input_shape: Shape | Sequence[Shape] | None = None, **settings: Any
) -> dict[str, Stage]:
    """Return the stages of a model by name, from the first to the last, on shapes alone.

    Args:
        network, input_shape, settings: As for `outline`.

    Raises:
        CapabilityError: The network names no stages: it is no `Model`.

    Example:
        >>> for name, stage in stages("resnet18").items():
        ...     print(name, stage.channels, stage.reduction)
        stem 64 (2, 2)
        layer1 64 (4, 4)
        layer2 128 (8, 8)
        layer3 256 (16, 16)
        layer4 512 (32, 32)
    """
    return stages_of(run_on_shapes(network, input_shape, settings, "forward_stages"))


def stages_of(run: Run) -> dict[str, Stage]:
    """Return the stages of a run of ``forward_stages``."""
    channels_last = getattr(run.network, "channels_last", False)
    size = run.inputs[0].shape[1:]
    results = {}
    for name, output in run.output.items():
        shape = output.shape[1:]
        if channels_last:
            results[name] = Stage(shape[-1], shape, ())
        else:
            results[name] = Stage(shape[0], shape, _reduction(size, shape[1:]))
    return results


def _reduction(size: Shape, smaller: Shape) -> tuple[int, ...]:
    """Return how many times smaller each axis is; nothing if the numbers of axes differ."""
    if len(size) != len(smaller):
        return ()
    return tuple(
        round(before / after) for before, after in zip(size, smaller, strict=True)
    )
