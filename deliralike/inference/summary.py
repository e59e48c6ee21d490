"""The summary of a network: its layers, their outputs, and its parameters."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.errors import ArgumentError, StateError
from deliralike.network.base import AbstractNetwork
from deliralike.network.core import unwrap
from deliralike.network.state import Slot, each_once, first_names
from deliralike.random import unchanged_generators
from deliralike.tables import html_table, terminal_width, text_table
from deliralike.zoo.inputs import Input

_NOT_CALLED = "not called"
_TIES = 5  # that are listed in the text


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
        is_leaf: Whether no blocks are below it.
    """

    path: str
    type: str
    output: Any
    parameters: int
    frozen: int
    is_leaf: bool


@dataclass(frozen=True, repr=False)
class Summary:
    """The layers of a network and its numbers; printed, a table that fits the terminal.

    Attributes:
        name: The name of the network's class.
        backend: The name of its backend.
        device: The device of its parameters.
        dtype: Their floating type.
        inputs: The shapes of the inputs, as positional and keyword arguments; None if it was not
            run.
        layers: Every block in the order of creation, the network itself first.
        parameters: The number of parameters; tied ones count once.
        frozen: How many of them do not train.
        parameter_bytes: The memory that the parameters take.
        buffers: The number of elements of the buffers.
        buffer_bytes: The memory that the buffers take.
        ties: Pairs of names of one parameter: a further name, and the first.
    """

    name: str
    backend: str
    device: str
    dtype: str
    inputs: tuple[tuple[Any, ...], dict[str, Any]] | None
    layers: tuple[LayerSummary, ...]
    parameters: int
    frozen: int
    parameter_bytes: int
    buffers: int
    buffer_bytes: int
    ties: tuple[tuple[str, str], ...]

    @property
    def trainable(self) -> int:
        """The number of parameters that train; tied ones count once."""
        return self.parameters - self.frozen

    @property
    def output(self) -> Any:
        """The shape of the network's output, or a nest of shapes; None if it was not run."""
        return self.layers[0].output

    def __str__(self) -> str:
        """Return a title, a line for each block, and the totals."""
        width = terminal_width()
        columns, rows = self._table()
        lines = [
            *textwrap.wrap(self._title(), width, subsequent_indent="  "),
            text_table(columns, rows, right=("parameters", "frozen"), width=width),
        ]
        for line in self._totals():
            lines += textwrap.wrap(line, width, subsequent_indent="  ")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""
        columns, rows = self._table()
        table = html_table(
            columns,
            ((row[0].replace(" ", "\N{NO-BREAK SPACE}"), *row[1:]) for row in rows),
            right=("parameters", "frozen"),
            caption=self._title(),
        )
        totals = "<br>".join(map(escape, self._totals()))
        return f"<div>{table}<p>{totals}</p></div>"

    def _title(self) -> str:
        title = f"{self.name} on {self.backend} ({self.device}, {self.dtype})"
        if self.inputs is None:
            return title
        args, kwargs = self.inputs
        shapes = [*map(shape_text, args)]
        shapes += [f"{name} {shape_text(shape)}" for name, shape in kwargs.items()]
        return f"{title}: input {', '.join(shapes)}, output {shape_text(self.output)}"

    def _table(self) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the columns that say something, and the cells."""
        was_run = self.inputs is not None
        columns = ["layer", "type", "parameters"]
        if was_run:
            columns.insert(2, "output")
        if self.frozen:
            columns.append("frozen")
        rows = []
        for (depth, name), layer in zip(_tree(self.layers), self.layers, strict=True):
            output = shape_text(layer.output)
            if was_run and layer.output is None and layer.is_leaf:
                output = _NOT_CALLED
            cells = {
                "layer": f"{'  ' * depth}{name}" or "(itself)",
                "type": layer.type,
                "output": output,
                "parameters": _count(layer.parameters),
                "frozen": _count(layer.frozen),
            }
            rows.append(tuple(cells[column] for column in columns))
        return columns, rows

    def _totals(self) -> list[str]:
        trains = "all trainable"
        if self.frozen:
            trains = f"{self.trainable:,} trainable, {self.frozen:,} frozen"
        size = _size(self.parameter_bytes)
        lines = [f"{self.parameters:,} parameters ({size}), {trains}"]
        if self.buffers:
            lines.append(
                f"{self.buffers:,} elements of buffers ({_size(self.buffer_bytes)})"
            )
        if self.ties:
            named = [f"{name} is {first}" for name, first in self.ties[:_TIES]]
            more = len(self.ties) - len(named)
            if more:
                named.append(f"{more} more")
            lines.append(f"tied, counted once: {', '.join(named)}")
        return lines


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
        MLP on torch (cpu, float32): input (1, 8), output (1, 3)
        layer       type        output  parameters
        (itself)    MLP         (1, 3)
        layers      ModuleList
          0         Linear      (1, 5)          45
          1         Linear      (1, 3)          18
        activation  ReLU        (1, 5)
        dropouts    ModuleList
          0         Dropout     (1, 5)
        63 parameters (252 B), all trainable
    """
    if isinstance(network, str | type):
        raise ArgumentError(
            f"summary: {network!r} is not built: give a network, such as zoo.build(name, "
            "backend=...), or call zoo.outline, which needs none"
        )
    wrapped = backends.wrap(unwrap(network))
    outputs: dict[str, Any] = {}
    shapes = None
    if inputs is not None:
        args, kwargs = _arguments(inputs)
        shapes = nest.map(shape_of, (args, kwargs))
        wrapped, outputs = _run(wrapped, args, kwargs)
    slots = wrapped.neutral_slots()
    _refuse_unshaped(slots)
    blocks = dict(wrapped.named_blocks())
    return Summary(
        name=type(blocks[""]).__name__,
        backend=wrapped.backend.name,
        device=wrapped.device_name,
        dtype=wrapped.dtype_name,
        inputs=shapes,
        layers=tuple(_layers(blocks, slots, outputs)),
        **_numbers(slots),
        ties=tuple(_ties(slots)),
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
        outputs[path] = nest.map(shape_of, result)
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
            shapes = shape_text(
                nest.map(shape_of, [*args, kwargs] if kwargs else list(args))
            )
            called = ", ".join(filter(None, outputs)) or "none"
            error.add_note(
                f"summary: the inputs were {shapes}; blocks that ended before: {called}"
            )
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


def shape_of(leaf: Any) -> Any:
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
        owner = _owner(name, blocks)
        if slot.is_parameter:
            parameters[owner] += slot.size
            frozen[owner] += 0 if slot.trainable else slot.size
    inner = {_owner(path, blocks) for path in blocks if path}
    for path, block in blocks.items():
        yield LayerSummary(
            path=path,
            type=type(block).__name__,
            output=outputs.get(path),
            parameters=parameters[path],
            frozen=frozen[path],
            is_leaf=path not in inner,
        )


def _owner(name: str, blocks: Mapping[str, Any]) -> str:
    """Return the path of the innermost block above a name."""
    path = name.rpartition(".")[0]
    while path not in blocks:
        path = path.rpartition(".")[0]
    return path


def _numbers(slots: Mapping[str, Slot]) -> dict[str, int]:
    """Return the totals of a network by the names of a summary's attributes."""
    counts = dict.fromkeys(
        ("parameters", "frozen", "parameter_bytes", "buffers", "buffer_bytes"), 0
    )
    for slot in each_once(slots).values():
        kind = "parameters" if slot.is_parameter else "buffers"
        counts[kind] += slot.size
        counts[f"{kind[:-1]}_bytes"] += slot.value.nbytes
        if slot.is_parameter and not slot.trainable:
            counts["frozen"] += slot.size
    return counts


def _ties(slots: Mapping[str, Slot]) -> Iterator[tuple[str, str]]:
    """Yield each further name of a parameter with the first one."""
    first = first_names(slots)
    for name, slot in slots.items():
        if slot.is_parameter and first[id(slot.native)] != name:
            yield name, first[id(slot.native)]


# Texts --------------------------------------------------------------------------------------------


def _tree(layers: tuple[LayerSummary, ...]) -> Iterator[tuple[int, str]]:
    """Yield for each block how deep it is below the network, and its name in the block above."""
    depths = {"": -1}
    for layer in layers:
        above = "" if not layer.path else _owner(layer.path, depths)
        depths[layer.path] = depths[above] + 1 if layer.path else -1
        yield max(depths[layer.path], 0), layer.path.removeprefix(above).lstrip(".")


def shape_text(shape: Any) -> str:
    """Return a shape, or a nest of shapes, as a text.

    Example:
        >>> shape_text({"mean": (1, 8), "more": [(1, 2), None]})
        'mean (1, 8), more [(1, 2), None]'
    """
    if shape is None:
        return ""
    if isinstance(shape, Mapping):
        return ", ".join(f"{name} {_inner_text(part)}" for name, part in shape.items())
    if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
        return str(shape)
    if isinstance(shape, tuple | list):
        return ", ".join(map(_inner_text, shape))
    return str(shape)


def _inner_text(shape: Any) -> str:
    """Return the text of a part of a nest: a part that is a nest itself stands in brackets."""
    text = shape_text(shape)
    if isinstance(shape, Mapping | list):
        return f"[{text}]"
    return text or "None"


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _size(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
