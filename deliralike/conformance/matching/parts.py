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
        at: The place on that axis.
        shape: Its own.
    """

    name: str
    source: str
    split: Shape
    axis: int | None
    at: int
    shape: Shape

    @property
    def whole(self) -> bool:
        """Whether it is all of its tensor."""
        return self.axis is None

    @property
    def owner(self) -> str:
        """The path of the layer, in common words."""
        return self.name.rpartition(".")[0]

    def read(self, array: np.ndarray) -> np.ndarray:
        """This part of a tensor."""
        return (
            array
            if self.axis is None
            else array.reshape(self.split).take(self.at, self.axis).reshape(self.shape)
        )

    def write(self, array: np.ndarray, value: np.ndarray) -> None:
        """Set this part of a tensor in C order."""
        if self.axis is None:
            array[...] = value
            return
        view = array.reshape(self.split)[(slice(None),) * self.axis + (self.at,)]
        view[...] = value.reshape(view.shape)

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
    found = (rule(name, shapes, kinds) for rule in _RULES)
    return next((style for style in found if style), None)


def _attention(name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]) -> Style | None:
    """``in_proj_weight`` of ``(3 d, e)``: query, key, value."""
    path, _, leaf = name.rpartition(".")
    if not (match := re.fullmatch(r"in_proj_(weight|bias)", leaf)) or shapes[name][0] % 3:
        return None
    names = [join(path, part, match[1]) for part in ("query", "key", "value")]
    return "in_proj", cut(name, shapes[name], names)


def _stacked_gates(
    name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> Style | None:
    """PyTorch's ``weight_ih_l0`` of ``(gates * hidden, in)``."""
    path, _, leaf = name.rpartition(".")
    match = re.fullmatch(r"(weight|bias)_(i|h)h(?:_l(\d+)(_reverse)?)?", leaf)
    if (
        not match
        or len(
            recurrent := shapes.get(
                join(path, leaf.replace(f"{match[1]}_{match[2]}h", "weight_hh")), ()
            )
        )
        != 2
    ):
        return None
    layer = f"l{match[3] or 0}{match[4] or ''}"
    gates = _GATES.get(recurrent[0] // recurrent[1])
    return gates and (
        "torch recurrent",
        _gates(name, shapes[name], join(path, layer), match[2], gates, match[1]),
    )  # type: ignore[return-value]


def _dense_gates(name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]) -> Style | None:
    """Flax's cells: ``dense_i.weight`` of ``(gates * hidden, in)`` beside ``dense_h``."""
    match = re.fullmatch(r"(.*?)\.?dense_(i|h)\.(weight|bias)", name)
    recurrent = shapes.get(join(match[1], "dense_h", "weight"), ()) if match else ()
    if not match or len(recurrent) != 2 or not (gates := _GATES.get(recurrent[0] // recurrent[1])):
        return None
    return "dense recurrent", _gates(
        name, shapes[name], join(match[1], "l0"), match[2], gates, match[3]
    )


def _single_gates(name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]) -> Style | None:
    """Flax's ``ii``, ``if_`` … of a cell, each a layer by itself."""
    match = re.fullmatch(r"(.*?)\.?(i|h)([ifgorzn])_?\.(weight|bias)", name)
    if not match or not any(join(match[1], f"h{gate}", "weight") in shapes for gate in "irgz"):
        return None
    return "gates by name", [
        _alias(name, shapes[name], join(match[1], "l0", match[2] + match[3], match[4]))
    ]


def _numbered_gates(
    name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> Style | None:
    """Chainer's ``NStepLSTM`` and its kind: ``0.w0`` … ``0.w7``, those of the input first."""
    match = re.fullmatch(r"(.*?)\.?(\d+)\.(w|b)(\d+)", name)
    if not match:
        return None
    count = sum(join(match[1], match[2], f"w{index}") in shapes for index in range(8))
    gates, number = _GATES.get(count // 2), int(match[4])
    if gates is None:
        return None
    bidirectional = "Bi" in kinds.get(match[1], "")
    layer, reverse = divmod(int(match[2]), 2) if bidirectional else (int(match[2]), 0)
    gate = "ih"[number >= len(gates)] + gates[number % len(gates)]
    where = join(match[1], f"l{layer}{'_reverse' if reverse else ''}", gate)
    return "numbered recurrent", [
        _alias(name, shapes[name], join(where, {"w": "weight", "b": "bias"}[match[3]]))
    ]


def _interleaved_gates(
    name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> Style | None:
    """Recognise Chainer's ``LSTM``: ``upward`` and ``lateral`` with interleaved gates g, i, f, o."""
    match = re.fullmatch(r"(.*?)\.?(upward|lateral)\.(weight|bias)", name)
    if not match or shapes[name][0] % 4:
        return None
    side = "i" if match[2] == "upward" else "h"
    names = [join(match[1], "l0", side + gate, match[3]) for gate in _INTERLEAVED]
    return "interleaved recurrent", cut(name, shapes[name], names, interleaved=True)


def _lettered_gates(
    name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> Style | None:
    """Chainer's ``StatelessGRU``: ``W_r``, ``U_r``, ``W_z``, ``U_z``, ``W``, ``U``."""
    match = re.fullmatch(r"(.*?)\.?(W|U)(?:_(r|z))?\.(weight|bias)", name)
    if not match or join(match[1], "U_r", "weight") not in shapes:
        return None
    gate = ("i" if match[2] == "W" else "h") + (match[3] or "n")
    return "lettered recurrent", [_alias(name, shapes[name], join(match[1], "l0", gate, match[4]))]


_RULES: list[Callable[..., Style | None]] = [
    _attention,
    _stacked_gates,
    _dense_gates,
    _single_gates,
    _numbered_gates,
    _interleaved_gates,
    _lettered_gates,
]


def _gates(name: str, shape: Shape, path: str, side: str, gates: str, role: str) -> list[Unit]:
    return cut(name, shape, [join(path, side + gate, role) for gate in gates])


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
