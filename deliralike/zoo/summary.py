"""What a network consists of, layer by layer, without building it: shapes, parameters, multiply-adds."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deliralike import nest
from deliralike.errors import ArgumentError
from deliralike.zoo.registry import Architecture, find

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One layer: a block without blocks below it, or with parameters or products of its own.

    Attributes:
        name: Its dotted path; empty for the network itself.
        type: Its class.
        output: The shape that it gives, or a nest of shapes.
        parameters: The number of its own parameters.
        multiply_adds: Multiplications (each with an addition) of its own products.
    """

    name: str
    type: str
    output: Any
    parameters: int
    multiply_adds: int


@dataclass(frozen=True)
class Outline:
    """A network's layers in the order in which they run, for one sample.

    Attributes:
        name: The architecture's or class's name.
        inputs: The shapes of the inputs.
        output: The shape of the output, or a nest of shapes.
        parameters: The number of parameters; shared ones count once.
        multiply_adds: Those of all convolutions and matrix products (resizing and normalisation do not count).
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

    name: str
    inputs: tuple[Shape, ...]
    output: Any
    parameters: int
    multiply_adds: int
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        """A table in plain text."""
        shapes = ", ".join(map(str, self.inputs))
        title = (f"{self.name}: input {shapes}, output {self.output}, {self.parameters:,} parameters, "
                 f"{self.multiply_adds:,} multiply-adds")  # fmt: skip
        head = ("layer", "type", "output", "parameters", "multiply-adds")
        cells = [head, *((r.name or "(itself)", r.type, str(r.output), f"{r.parameters:,}", f"{r.multiply_adds:,}")
                         for r in self.rows)]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(cell.ljust(w) if i < 3 else cell.rjust(w) for i, (cell, w) in
                           enumerate(zip(row, widths, strict=True))) for row in cells]  # fmt: skip
        return "\n".join([title, *lines])


def outline(network: Any, input_shape: Shape | Sequence[Shape] | None = None, **settings: Any) -> Outline:
    """Parameters, multiply-adds and shapes of a network, in milliseconds: no framework is loaded, nothing computed.

    Args:
        network: A name of the zoo, an `Architecture`, or a class written once.
        input_shape: One sample's shape, without the batch; a list of shapes for several inputs. The architecture's own
            when not given.
        settings: What to change in the architecture, or the arguments of the class.

    Raises:
        UnknownName, ArgumentError, SettingError: As `build` does.
        ShapeError: The network cannot take such an input; the message names the layer.

    Example:
        >>> outline("unet", (1, 65, 47), features=(8, 16, 8)).output
        (1, 2, 65, 47)
    """
    module = importlib.import_module("deliralike.backends.outline")
    architecture = _architecture(network)
    shapes = _inputs(architecture, input_shape, settings)
    built = architecture.on(module.BACKEND)(**settings).eval()
    with module.tracing() as blocks:
        output = built(*(module.ShapeArray(shape) for shape in shapes))
    rows = tuple(
        Row(block.path, block.type, block.output, block.parameters, block.multiply_adds)
        for block in blocks.values()
        if block.is_leaf or block.parameters or block.multiply_adds
    )
    return Outline(
        name=architecture.name,
        inputs=shapes,
        output=nest.map(lambda leaf: getattr(leaf, "shape", leaf), output),
        parameters=built.count_parameters(),
        multiply_adds=sum(row.multiply_adds for row in rows),
        rows=rows,
    )


def _architecture(network: Any) -> Architecture:
    if isinstance(network, Architecture):
        return network
    return find(network) if isinstance(network, str) else Architecture(network.__name__, network)


def _inputs(architecture: Architecture, given: Any, settings: dict[str, Any]) -> tuple[Shape, ...]:
    """The inputs' shapes for a batch of one."""
    shape = architecture.input_shape_for(**settings) if given is None else given
    if shape is None:
        raise ArgumentError(f"{architecture.name} does not state the shape of its input: outline(..., input_shape=...)")
    several: Any = [shape] if all(isinstance(size, int) for size in shape) else shape
    return tuple((1, *one) for one in several)
