"""Tensors and their parts: what one framework stores as one tensor, another stores as several.

Gates of recurrent layers and the three projections of attention get common names here:
``lstm.l0.ii.weight``, ``attn.query.weight``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Shape = tuple[int, ...]
_GATES = {4: "ifgo", 3: "rzn", 1: "h"}
_BIAS = re.compile(
    r"(.*\bl\d+(?:_reverse)?\.)(i|h)([ifgorzh])\.bias"
)  # the new gate of a GRU has two
_INTERLEAVED = "gifo"  # Chainer's LSTM: the four gates of a unit lie side by side


@dataclass(frozen=True)
class Unit:
    """A tensor, or a part of one.

    Attributes:
        name: In common words; the tensor's own where it is whole.
        source: The name of the tensor that holds it.
        split: That tensor's shape with the axis split along which it is cut.
        axis: The axis of `split` along which it is cut; None where it is whole.
        at: The place on that axis; of parts of several sizes where it begins and ends.
        shape: Its own.
    """

    name: str
    source: str
    split: Shape
    axis: int | None
    at: int | tuple[int, int]
    shape: Shape

    @property
    def whole(self) -> bool:
        """Whether it is all of its tensor."""
        return self.axis is None

    @property
    def layer(self) -> str:
        """The path of the layer that holds its tensor."""
        return self.source.rpartition(".")[0]

    @property
    def owner(self) -> str:
        """The path of the layer, in common words."""
        return self.name.rpartition(".")[0]

    def read(self, array: np.ndarray) -> np.ndarray:
        """This part of a tensor."""
        return array if self.axis is None else self._part(array).reshape(self.shape)

    def write(self, array: np.ndarray, value: np.ndarray) -> None:
        """Set this part of a tensor in C order."""
        if self.axis is None:
            array[...] = value
            return
        view = self._part(array)
        view[...] = value.reshape(view.shape)

    def _part(self, array: np.ndarray) -> np.ndarray:
        at = slice(*self.at) if isinstance(self.at, tuple) else self.at
        return array.reshape(self.split)[(slice(None),) * (self.axis or 0) + (at,)]

    def __str__(self) -> str:
        """The tensor, and which part of it."""
        return (
            self.source
            if self.axis is None
            else f"{self.source}[{self.name.rpartition('.')[0].rpartition('.')[2]}]"
        )


def whole(name: str, shape: Shape) -> Unit:
    """A tensor as one unit."""
    return Unit(name, name, shape, None, 0, shape)


def cut(
    name: str, shape: Shape, names: list[str], axis: int = 0, interleaved: bool = False
) -> list[Unit]:
    """Return the equal parts of a tensor along an axis: consecutive blocks, or every n-th row."""
    count, size = len(names), shape[axis] // len(names)
    parts = (size, count) if interleaved else (count, size)
    split = (*shape[:axis], *parts, *shape[axis + 1 :])
    stacked = size == 1 and len(shape) > 1  # as layers that are scanned over
    part = (*shape[:axis], *(() if stacked else (size,)), *shape[axis + 1 :])
    return [Unit(each, name, split, axis + interleaved, at, part) for at, each in enumerate(names)]


def cut_apart(name: str, shape: Shape, names: list[str], sizes: list[int]) -> list[Unit]:
    """Return the parts of a tensor along its first axis, which have these sizes."""
    found, start = [], 0
    for each, size in zip(names, sizes, strict=True):
        at = (start, start + size)
        found.append(Unit(each, name, shape, 0, at, (size, *shape[1:])))
        start += size
    return found


def units(
    shapes: Mapping[str, Shape], kinds: Mapping[str, str], other: Mapping[str, Shape]
) -> list[Unit]:
    """Return every tensor as units.

    Tensors of a style stay whole where the other network has as many of that style.

    Args:
        kinds: The class's name of each block.
        other: Names and shapes of the other network.
    """
    styles = {name: _style(name, shapes, kinds) for name in shapes}
    theirs = [style[0] for style in (_style(name, other, {}) for name in other) if style]
    mine = [style[0] for style in styles.values() if style]
    found: list[Unit] = []
    for name, shape in shapes.items():
        style = styles[name]
        if style is None or mine.count(style[0]) == theirs.count(style[0]):
            found.append(whole(name, shape))
        elif style[0] == "in_proj" and _as_often(shape, shapes, other):
            path, _, leaf = name.rpartition(".")
            found.append(_alias(name, shape, join(path, "in_proj", leaf.removeprefix("in_proj_"))))
        else:
            found += style[1]
    return _on_one_side(found)


def _as_often(shape: Shape, shapes: Mapping[str, Shape], other: Mapping[str, Shape]) -> bool:
    """Whether both networks have as many tensors of one shape, in any order of its axes."""
    mine, theirs = ([sorted(one) for one in side.values()] for side in (shapes, other))
    return mine.count(sorted(shape)) == theirs.count(sorted(shape))


def _on_one_side(found: list[Unit]) -> list[Unit]:
    """Name the single bias of a recurrent layer as the input's, wherever the framework keeps it."""
    names = {unit.name for unit in found}
    return [
        replace(unit, name=twin(unit.name))
        if _is_hidden(unit.name) and twin(unit.name) not in names
        else unit
        for unit in found
    ]


def _is_hidden(name: str) -> bool:
    match = _BIAS.fullmatch(name)
    return match is not None and match[2] == "h"


Style = tuple[str, list[Unit]]


def _style(name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]) -> Style | None:
    """The convention by which a tensor belongs to a larger layer, and its units."""
    for style, pattern, units_of in _CONVENTIONS:
        match = re.fullmatch(rf"(?:(?P<path>.*)\.)?{pattern}", name)
        if match is None:
            continue
        parts = {key: value or "" for key, value in match.groupdict().items()}
        names = units_of(parts, shapes[name], shapes, kinds)
        if len(names) == 1:
            return style, [_alias(name, shapes[name], names[0])]
        if names:
            return style, cut(name, shapes[name], names, interleaved="interleaved" in style)
    return None


Parts = dict[str, str]  # of a name, by what they say
Names = Callable[[Parts, Shape, Mapping[str, Shape], Mapping[str, str]], list[str]]


def _projections(parts: Parts, shape: Shape, *_: object) -> list[str]:
    words = ("query", "key", "value") if shape[0] % 3 == 0 else ()
    return [join(parts["path"], word, parts["role"]) for word in words]


def _gates(parts: Parts, side: str, gates: str, layer: str = "l0") -> list[str]:
    return [join(parts["path"], layer, side + gate, parts["role"]) for gate in gates]


def _counted(parts: Parts, recurrent: str, shapes: Mapping[str, Shape]) -> str:
    """The gates of a layer, as many as its recurrent matrix has square blocks."""
    shape = shapes.get(join(parts["path"], recurrent), ())
    return _GATES.get(shape[0] // shape[1], "") if len(shape) == 2 else ""


def _of_torch(parts: Parts, _shape: Shape, shapes: Mapping[str, Shape], *_: object) -> list[str]:
    gates = _counted(parts, f"weight_hh{parts['end']}", shapes)
    return _gates(parts, parts["side"], gates, (parts["end"] or "_l0").removeprefix("_"))


def _of_flax(parts: Parts, _shape: Shape, shapes: Mapping[str, Shape], *_: object) -> list[str]:
    return _gates(parts, parts["side"], _counted(parts, "dense_h.weight", shapes))


def _of_flax_apart(
    parts: Parts, _shape: Shape, shapes: Mapping[str, Shape], *_: object
) -> list[str]:
    is_cell = any(join(parts["path"], f"h{gate}", "weight") in shapes for gate in "irgz")
    return _gates(parts, parts["side"], parts["gate"]) if is_cell else []


def _of_steps(
    parts: Parts, _shape: Shape, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> list[str]:
    weights = (join(parts["path"], parts["layer"], f"w{index}") for index in range(8))
    gates, number = _GATES.get(sum(name in shapes for name in weights) // 2), int(parts["number"])
    if gates is None:
        return []
    layer, reverse = int(parts["layer"]), 0
    if "Bi" in kinds.get(parts["path"], ""):
        layer, reverse = divmod(layer, 2)
    named = {**parts, "role": {"w": "weight", "b": "bias"}[parts["role"]]}
    gate = gates[number % len(gates)]
    return _gates(named, "ih"[number >= len(gates)], gate, f"l{layer}{'_reverse' * reverse}")


def _interleaved(parts: Parts, shape: Shape, *_: object) -> list[str]:
    side = {"upward": "i", "lateral": "h"}[parts["side"]]
    return _gates(parts, side, _INTERLEAVED) if shape[0] % 4 == 0 else []


def _lettered(parts: Parts, _shape: Shape, shapes: Mapping[str, Shape], *_: object) -> list[str]:
    is_gru = join(parts["path"], "U_r", "weight") in shapes
    return (
        _gates(parts, {"W": "i", "U": "h"}[parts["side"]], parts["gate"] or "n") if is_gru else []
    )


_ROLE = r"(?P<role>weight|bias)"
_CONVENTIONS: list[tuple[str, str, Names]] = [
    ("in_proj", rf"in_proj_{_ROLE}", _projections),
    # PyTorch's weight_ih_l0 of (gates * hidden, in)
    ("torch recurrent", rf"{_ROLE}_(?P<side>i|h)h(?P<end>(?:_l\d+)?(?:_reverse)?)", _of_torch),
    # flax's cells: dense_i.weight of (gates * hidden, in) beside dense_h; or ii, if_ ...
    ("dense recurrent", rf"dense_(?P<side>i|h)\.{_ROLE}", _of_flax),
    ("gates by name", rf"(?P<side>i|h)(?P<gate>[ifgorzn])_?\.{_ROLE}", _of_flax_apart),
    # Chainer's NStepLSTM and its kind: 0.w0 ... 0.w7, those of the input first; its LSTM, whose
    # gates lie side by side; and its StatelessGRU
    ("numbered recurrent", r"(?P<layer>\d+)\.(?P<role>w|b)(?P<number>\d+)", _of_steps),
    ("interleaved recurrent", rf"(?P<side>upward|lateral)\.{_ROLE}", _interleaved),
    ("lettered recurrent", rf"(?P<side>W|U)(?:_(?P<gate>r|z))?\.{_ROLE}", _lettered),
]


def _alias(name: str, shape: Shape, common: str) -> Unit:
    return Unit(common, name, shape, None, 0, shape)


def twin(name: str) -> str:
    """Return the unit that is added to a recurrent layer's bias; empty where there is none.

    The hidden side's is added to the input's, and the other way round.

    Example:
        >>> twin("lstm.l0.if.bias"), twin("conv.bias")
        ('lstm.l0.hf.bias', '')
    """
    match = _BIAS.fullmatch(name)
    return f"{match[1]}{'h' if match[2] == 'i' else 'i'}{match[3]}.bias" if match else ""


def join(*parts: str) -> str:
    """Dotted, without empty parts."""
    return ".".join(part for part in parts if part)


def assembled(
    written: Iterator[tuple[Unit, np.ndarray | None]], shapes: Mapping[str, Shape]
) -> dict[str, Any]:
    """Return tensors put together from units.

    Tensors that lack a unit are left out; absent ones stay None. A unit may come several times, as
    where the other side has several names for it.
    """
    found: dict[str, Any] = {}
    seen: set[Unit] = set()
    missing = {name: math.prod(shape) for name, shape in shapes.items()}
    for unit, value in written:
        if unit not in seen:
            seen.add(unit)
            missing[unit.source] -= math.prod(unit.shape)
        if value is None:
            found.setdefault(unit.source, None)
            continue
        if found.get(unit.source) is None:
            found[unit.source] = np.zeros(shapes[unit.source], value.dtype)
        unit.write(found[unit.source], value)
    return {name: found[name] for name in shapes if name in found and not missing[name]}
