"""Conventions of frameworks for the tensors of larger layers, and common names for their parts.

The parts are the gates of recurrent layers and the three projections of attention:
``lstm.l0.ii.weight``, ``attn.query.weight``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from deliralike.weights.matching.parts import Shape, Unit, cut, join, whole

_GATES = {4: "ifgo", 3: "rzn", 1: "h"}
_INTERLEAVED = "gifo"  # Chainer's LSTM: the four gates of a unit lie side by side
_BIAS = re.compile(
    r"(?P<layer>.*\bl\d+(?:_reverse)?\.)(?P<side>i|h)(?P<gate>[ifgorznh])\.bias"
)
_APART = "n"  # the gate of a GRU whose two biases are not added


def units(
    shapes: Mapping[str, Shape], kinds: Mapping[str, str], other: Mapping[str, Shape]
) -> list[Unit]:
    """Return every tensor as units.

    Tensors of a convention stay whole where the other network has as many that follow it.

    Args:
        kinds: The class's name of each block.
        other: Names and shapes of the other network.
    """
    fits = {name: _fit(name, shapes, kinds) for name in shapes}
    counts = _count(fits.values())
    other_counts = _count(_fit(name, other, {}) for name in other)
    found: list[Unit] = []
    for name, shape in shapes.items():
        fit = fits[name]
        if fit is None or counts[fit.convention] == other_counts[fit.convention]:
            found.append(whole(name, shape))
        elif fit.convention == "in_proj" and _as_often(shape, shapes, other):
            path, _, role = name.rpartition("in_proj_")
            found.append(Unit(f"{path}in_proj.{role}", name, shape))
        else:
            found += fit.units
    return _on_one_side(found)


def twin(name: str) -> str | None:
    """Return the unit that is added to a recurrent layer's bias; None where there is none.

    The hidden side's is added to the input's, and the other way round.

    Example:
        >>> twin("lstm.l0.if.bias"), twin("conv.bias")
        ('lstm.l0.hf.bias', None)
    """
    match = _BIAS.fullmatch(name)
    if match is None or match["gate"] == _APART:
        return None
    side = "h" if match["side"] == "i" else "i"
    return f"{match['layer']}{side}{match['gate']}.bias"


def side_of_gate(name: str) -> str:
    """Return ``"i"`` or ``"h"`` for a unit that is the bias of a gate, and "" for any other."""
    match = _BIAS.fullmatch(name)
    return "" if match is None else match["side"]


def _on_one_side(found: list[Unit]) -> list[Unit]:
    """Name the single bias of a recurrent layer as the input's, wherever the framework keeps it."""
    names = {unit.name for unit in found}
    renamed = []
    for unit in found:
        name = twin(unit.name)
        if name is not None and name not in names and side_of_gate(unit.name) == "h":
            unit = replace(unit, name=name)
        renamed.append(unit)
    return renamed


def _as_often(
    shape: Shape, shapes: Mapping[str, Shape], other: Mapping[str, Shape]
) -> bool:
    """Whether both networks have as many tensors of one shape, in any order of its axes."""
    groups = [sorted(each) for each in shapes.values()]
    other_groups = [sorted(each) for each in other.values()]
    wanted = sorted(shape)
    return groups.count(wanted) == other_groups.count(wanted)


@dataclass(frozen=True)
class _Fit:
    """The convention that a tensor's name follows, and the tensor's units."""

    convention: str
    units: list[Unit]


def _count(fits: Iterable[_Fit | None]) -> Counter[str]:
    return Counter(fit.convention for fit in fits if fit is not None)


def _fit(
    name: str, shapes: Mapping[str, Shape], kinds: Mapping[str, str]
) -> _Fit | None:
    """Return the first convention that a tensor follows; None where it follows none."""
    shape = shapes[name]
    for convention, (pattern, names_of) in _CONVENTIONS.items():
        match = re.fullmatch(_PATH + pattern, name)
        if match is None:
            continue
        names = names_of(_Tensor(match.groupdict(""), shape, shapes, kinds))
        if len(names) == 1:
            return _Fit(convention, [Unit(names[0], name, shape)])
        if names:
            is_interleaved = convention == "interleaved recurrent"
            return _Fit(convention, cut(name, shape, names, interleaved=is_interleaved))
    return None


@dataclass(frozen=True)
class _Tensor:
    """A tensor among those of its network.

    Attributes:
        words: Of its name, by what they say.
        shape: Its own.
        shapes: Of all tensors.
        kinds: The class's name of each block.
    """

    words: Mapping[str, str]
    shape: Shape
    shapes: Mapping[str, Shape]
    kinds: Mapping[str, str]

    def beside(self, *parts: str) -> str:
        """Return the name of another tensor of the layer."""
        return join(self.words["path"], *parts)

    def gates(self, side: str, gates: str, layer: str = "l0") -> list[str]:
        """Return the names of gates, on the side of the input (``i``) or the hidden state."""
        role = _ROLES[self.words["role"]]
        return [self.beside(layer, side + gate, role) for gate in gates]

    def gates_of(self, recurrent: str) -> str:
        """Return the layer's gates, as many as its recurrent matrix has square blocks."""
        shape = self.shapes.get(self.beside(recurrent), ())
        if len(shape) != 2:
            return ""
        return _GATES.get(shape[0] // shape[1], "")


def _projections(tensor: _Tensor) -> list[str]:
    if tensor.shape[0] % 3:
        return []
    return [
        tensor.beside(word, tensor.words["role"]) for word in ("query", "key", "value")
    ]


def _torch(tensor: _Tensor) -> list[str]:
    end = tensor.words["end"]
    layer = end.removeprefix("_") or "l0"
    return tensor.gates(tensor.words["side"], tensor.gates_of(f"weight_hh{end}"), layer)


def _dense(tensor: _Tensor) -> list[str]:
    return tensor.gates(tensor.words["side"], tensor.gates_of("dense_h.weight"))


def _by_name(tensor: _Tensor) -> list[str]:
    if not any(tensor.beside(f"h{gate}", "weight") in tensor.shapes for gate in "irgz"):
        return []
    return tensor.gates(tensor.words["side"], tensor.words["gate"])


def _numbered(tensor: _Tensor) -> list[str]:
    words = tensor.words
    weights = [tensor.beside(words["layer"], f"w{number}") for number in range(8)]
    count = sum(name in tensor.shapes for name in weights) // 2
    if count not in _GATES:
        return []
    number = int(words["number"])
    gate = _GATES[count][number % count]
    side = "i" if number < count else "h"
    layer = f"l{words['layer']}"
    if "Bi" in tensor.kinds.get(words["path"], ""):
        pair, is_reverse = divmod(int(words["layer"]), 2)
        layer = f"l{pair}{'_reverse' * is_reverse}"
    return tensor.gates(side, gate, layer)


def _interleaved(tensor: _Tensor) -> list[str]:
    if tensor.shape[0] % 4:
        return []
    return tensor.gates(_SIDES[tensor.words["side"]], _INTERLEAVED)


_SIDES = {"upward": "i", "lateral": "h"}
_ROLES = {"weight": "weight", "bias": "bias", "w": "weight", "b": "bias"}

_PATH = r"(?:(?P<path>.*)\.)?"
_ROLE = r"(?P<role>weight|bias)"
_SIDE = r"(?P<side>i|h)"
_CONVENTIONS: dict[str, tuple[str, Callable[[_Tensor], list[str]]]] = {
    "in_proj": (rf"in_proj_{_ROLE}", _projections),
    # PyTorch's weight_ih_l0 of (gates * hidden, in)
    "torch recurrent": (rf"{_ROLE}_{_SIDE}h(?P<end>(?:_l\d+)?(?:_reverse)?)", _torch),
    # flax's cells: dense_i.weight of (gates * hidden, in) beside dense_h; or ii, if_ ...
    "dense recurrent": (rf"dense_{_SIDE}\.{_ROLE}", _dense),
    "gates by name": (rf"{_SIDE}(?P<gate>[ifgorzn])_?\.{_ROLE}", _by_name),
    # Chainer's NStepLSTM and its kind: 0.w0 ... 0.w7, those of the input first; and its LSTM, whose
    # gates lie side by side
    "numbered recurrent": (r"(?P<layer>\d+)\.(?P<role>w|b)(?P<number>\d+)", _numbered),
    "interleaved recurrent": (rf"(?P<side>upward|lateral)\.{_ROLE}", _interleaved),
}
