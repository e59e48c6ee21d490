"""Which layer of one network is which of another, by scores of values, names, kinds and order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache, cached_property

import numpy as np

from deliralike.network.base import AbstractNetwork
from deliralike.weights.matching.layouts import (
    NEAR,
    Transform,
    equal_under,
    flattenings,
    transforms,
)
from deliralike.weights.matching.naming import Spoken, role, similarity, spoken
from deliralike.weights.matching.parts import Shape, Unit, join

COUNTER = "num_batches_tracked"  # flax's norms have none, and nothing is computed from it
STATISTICS = ("running_mean", "running_var")
_ROLES = ("weight", "bias", *STATISTICS)
_MATRIX_LAST = (
    "kernel",
)  # flax's and Keras's word for (in, out), where no known layer gives PyTorch's layout
_SPELLINGS = {
    "normalization": "norm",
    "deconvolution": "convtranspose",
    "convolution": "conv",
    "embedid": "embedding",
}
_BY_NAME, _BY_KIND, _BY_ORDER, _BY_FAMILY = 1.0, 0.3, 0.3, 0.5
_LEAD = 0.1  # by so much a name must be better than the next best to decide
_NAMED = 0.5  # a similarity from which on the names say something


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer: shape, the first name of a tied one, and value."""

    shape: Shape
    is_parameter: bool
    tie: str
    value: np.ndarray


@dataclass(frozen=True)
class Side:
    """What is matched of one network.

    Attributes:
        name: Its class's name and its backend's.
        tensors: By neutral name, in creation order, without counters.
        kinds: The class's name of each block, by path, in the order of creation.
        channels_last: Whether its convolutions keep their kernels so; then, most likely, its arrays
            have the channels last too.
        all_names: Of all its tensors, those too that are not to be matched.
    """

    name: str
    tensors: Mapping[str, Tensor]
    kinds: Mapping[str, str]
    channels_last: bool = False
    all_names: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, network: AbstractNetwork, called: Sequence[str] = (), with_values: bool = True
    ) -> Side:
        """Look at a network; its weights are copied to the host.

        Args:
            called: Its blocks in the order of their calls, which goes before that of creation.
            with_values: Whether its weights say something; those that are not trained do not, and
                count as zeros.
        """
        first: dict[int, str] = {}
        tensors, channels_last = {}, False
        for name, slot in network.neutral_slots().items():
            tie = first.setdefault(id(slot.native), name) if slot.is_parameter else name
            if not name.endswith(COUNTER):
                value = slot.read() if with_values else np.broadcast_to(0.0, slot.shape)
                tensors[name] = Tensor(slot.shape, slot.is_parameter, tie, value)
            if len(slot.shape) > 2:
                channels_last |= tuple(slot.value.shape) == (*slot.shape[2:], *slot.shape[1::-1])
        kinds = {path: type(block).__name__ for path, block in network.named_blocks()}
        kinds[""] = type(getattr(network, "native", network)).__name__
        tensors = _in_order(tensors, called)
        name = f"{kinds['']} on {network.backend.name}"
        return cls(name, tensors, kinds, channels_last, frozenset(tensors))

    def without(self, names: Iterable[str]) -> Side:
        """This side without some of its tensors."""
        left = {name: self.tensors[name] for name in self.tensors if name not in set(names)}
        return replace(self, tensors=left)

    @property
    def shapes(self) -> dict[str, Shape]:
        """Shapes by name."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def value(self, unit: Unit) -> np.ndarray:
        """A unit's value."""
        return unit.read(self.tensors[unit.source].value)

    def kind(self, unit: Unit) -> str:
        """The class's name of the block that holds the unit's tensor."""
        return self.kinds.get(unit.layer, "")


def _in_order(tensors: Mapping[str, Tensor], called: Sequence[str]) -> dict[str, Tensor]:
    """Tensors in the order in which the blocks that hold them are called; others stay behind."""
    ranks = {path: rank for rank, path in enumerate(called)}

    def rank(name: str) -> int:
        """Of its block, or else of the innermost one around it that is called."""
        while name:
            name = name.rpartition(".")[0]
            if name in ranks:
                return ranks[name]
        return len(ranks)

    return {name: tensors[name] for name in sorted(tensors, key=rank)}


@dataclass(frozen=True)
class Pair:
    """A tensor (or a part of one) of the reference and what it is in the candidate.

    Attributes:
        reference, candidate: The units; where there are several on one side, their sum is the one
            on the other.
        transform: How the first of the reference's is laid out as the first of the candidate's.
        decided: By what: ``"correction"``, ``"name"``, ``"value"``, ``"shape"``, ``"order"``,
            ``"tie"``, ``"output"``.
        alternatives: Other names of the candidate that would do as well; empty where it is certain.
        layouts: Other transforms that would do as well.
    """

    reference: tuple[Unit, ...]
    candidate: tuple[Unit, ...]
    transform: Transform
    decided: str
    alternatives: tuple[str, ...] = ()
    layouts: tuple[Transform, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether nothing else would do as well."""
        return not (self.alternatives or self.layouts)

    @property
    def straight(self) -> bool:
        """Whether it is one whole tensor on each side."""
        return (
            len(self.reference) == len(self.candidate) == 1
            and self.reference[0].whole
            and self.candidate[0].whole
        )


@dataclass(eq=False)
class Layer:
    """Units that stand together: all under one path, or a single one.

    Attributes:
        units: By role.
        spoken: Their path in common words.
        place: Where they stand among the others.
        role: Of a single one whose role is known.
    """

    units: dict[str, Unit]
    side: Side
    spoken: Spoken
    place: int = 0
    role: str = ""

    @property
    def names(self) -> list[str]:
        """The units' names."""
        return [unit.name for unit in self.units.values()]

    @property
    def kind(self) -> str:
        """The class's name."""
        return self.side.kind(next(iter(self.units.values())))

    @cached_property
    def distinctive(self) -> bool:
        """Whether some values are not all the same: those of ones and zeros identify nothing."""
        return any(is_telling(self.side.value(unit)) for unit in self.units.values())

    @cached_property
    def prints(self) -> dict[str, tuple[float, ...]]:
        """Of each unit numbers that no order of its elements changes."""
        values = {name: self.side.value(unit) for name, unit in self.units.items()}
        sizes = {name: np.abs(np.asarray(value, np.float64)) for name, value in values.items()}
        return {
            name: (float(size.sum()), float(np.square(size).sum()), float(size.max(initial=0)))
            for name, size in sizes.items()
        }


@dataclass(frozen=True)
class _Likeness:
    """How well two layers go together."""

    same_values: bool
    name: float
    kind: float
    family: int
    order: float = 0.0

    @property
    def score(self) -> float:
        return self.said + _BY_ORDER * self.order

    @property
    def said(self) -> float:
        """What names, kinds and the blocks around say, without the order."""
        return _BY_NAME * self.name + _BY_KIND * self.kind + _BY_FAMILY * self.family


class Families:
    """Which blocks around layers go together, as the pairs of layers show that are certain."""

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        """See what pairs show; the networks themselves are around everything and show nothing."""
        self._known: tuple[dict[str, set[str]], ...] = (defaultdict(set), defaultdict(set))
        for pair in pairs:
            one, two = _around(pair.reference[0]), _around(pair.candidate[0])
            if one and two and pair.certain:
                self._known[0][one].add(two)
                self._known[1][two].add(one)

    def are_one(self, mine: Layer, theirs: Layer) -> int:
        """1 if the blocks around two layers go together, -1 if one goes with another, else 0."""
        one, two = (_around(next(iter(layer.units.values()))) for layer in (mine, theirs))
        if two in self._known[0].get(one, ()):
            return 1
        return -1 if one in self._known[0] or two in self._known[1] else 0


def _around(unit: Unit) -> str:
    return unit.owner.rpartition(".")[0]


@dataclass(frozen=True)
class Found:
    """Two layers that go together, by what, and what else would do."""

    reference: Layer
    candidate: Layer
    decided: str
    alternatives: tuple[Layer, ...]


def layers(units: Iterable[Unit], side: Side, names: Mapping[str, Spoken]) -> list[Layer]:
    """Units by their path, in order."""
    found: dict[str, dict[str, Unit]] = defaultdict(dict)
    for unit in units:
        found[unit.owner][role(unit.name)] = unit
    return [Layer(own, side, names[path], place) for place, (path, own) in enumerate(found.items())]


def singles(units: Sequence[Unit], side: Side) -> list[Layer]:
    """Units by themselves; those in a role that is not known go by their whole name."""
    roles = {unit: role(unit.name) if role(unit.name) in _ROLES else "" for unit in units}
    paths = {unit: unit.owner if roles[unit] else unit.name for unit in units}
    names = spoken(dict.fromkeys(paths.values()))
    return [
        Layer({"tensor": unit}, side, names[paths[unit]], place, roles[unit])
        for place, unit in enumerate(units)
    ]


def assign(
    reference: Sequence[Layer], candidate: Sequence[Layer], exact: bool, families: Families
) -> list[Found]:
    """Pair layers of the same roles and shapes.

    If not `exact`, the axes of shapes may have another order.
    """
    mine, theirs = _grouped(reference, exact), _grouped(candidate, exact)
    found: list[Found] = []
    for key, group in mine.items():
        if key not in theirs:
            continue
        pairs = _within(group, theirs[key], families)
        if exact and len(group) != len(theirs[key]):
            # some of them have another shape elsewhere: order says nothing before these are seen
            pairs = [pair for pair in pairs if pair.decided != "order"]
        found += pairs
    return found


def _grouped(found: Sequence[Layer], exact: bool) -> dict[object, list[Layer]]:
    groups: dict[object, list[Layer]] = defaultdict(list)
    for layer in found:
        shapes = {name: unit.shape for name, unit in layer.units.items()}
        key = shapes if exact else {name: math.prod(shape) for name, shape in shapes.items()}
        groups[tuple(sorted(key.items()))].append(layer)
    return groups


def _within(reference: list[Layer], candidate: list[Layer], families: Families) -> list[Found]:
    """Pairs within a group: first those of the same values, then by names and order."""
    likeness = {
        (i, j): _Likeness(
            _same_values(one, two),
            similarity(one.spoken, two.spoken),
            alike(one.kind, two.kind),
            families.are_one(one, two),
        )
        for i, one in enumerate(reference)
        for j, two in enumerate(candidate)
        if _fits(one, two)
    }
    certain = _only([at for at, like in likeness.items() if like.same_values])
    left = {
        at: like
        for at, like in likeness.items()
        if at[0] not in certain and at[1] not in certain.values()
    }
    rows, columns = (_ranks(sorted({at[axis] for at in left})) for axis in (0, 1))
    left = {
        (i, j): replace(like, order=1 - abs(rows[i] - columns[j])) for (i, j), like in left.items()
    }
    others = _greedy({at: like.score for at, like in left.items()})
    crossed = _crossed(others, left)
    return sorted(
        [
            Found(
                reference[i],
                candidate[j],
                "value",
                _contradicted((i, j), certain, candidate, likeness),
            )
            for i, j in certain.items()
        ]
        + [_judged(reference, candidate, (i, j), others, left, crossed) for i, j in others.items()],
        key=lambda found: found.reference.place,
    )


def _contradicted(
    at: tuple[int, int],
    certain: Mapping[int, int],
    candidate: Sequence[Layer],
    likeness: Mapping[tuple[int, int], _Likeness],
) -> tuple[Layer, ...]:
    """Layers that names would exchange with the one that has the same values."""
    others = ((at[0], column) for column in certain.values() if column != at[1])
    fitting = (other for other in others if other in likeness)
    return tuple(
        candidate[other[1]] for other in fitting if _loss(at, other, certain, likeness) < -_LEAD
    )


def _judged(
    reference: list[Layer],
    candidate: list[Layer],
    at: tuple[int, int],
    chosen: dict[int, int],
    left: dict[tuple[int, int], _Likeness],
    crossed: bool,
) -> Found:
    """By what a pair was decided, and what would have done as well."""
    i, j = at
    others = [(k, m) for k, m in left if (k == i) != (m == j)]
    rivals = [
        other
        for other in others
        if _loss(at, other, chosen, left) < _LEAD
        or (crossed and left[other].family >= left[at].family)
    ]
    if rivals:
        alternatives = tuple(candidate[m] for k, m in rivals if k == i)
        return Found(reference[i], candidate[j], "order", alternatives or (candidate[j],))
    return Found(
        reference[i], candidate[j], "name" if left[at].name >= _NAMED or others else "shape", ()
    )


def _loss(
    at: tuple[int, int],
    other: tuple[int, int],
    chosen: Mapping[int, int],
    left: Mapping[tuple[int, int], _Likeness],
) -> float:
    """How much less names and kinds say of two pairs with their partners exchanged.

    Args:
        at: A pair that was chosen.
        other: One that shares a layer with it.
    """
    (i, j), (k, m) = at, other
    if k == i:
        k = next((row for row, column in chosen.items() if column == m), -1)
    else:
        m = chosen.get(k, -1)
    if (k, m) not in left:  # the other layer is free
        return left[at].said - left[other].said
    if (i, m) not in left or (k, j) not in left:
        return np.inf
    return left[at].said + left[k, m].said - left[i, m].said - left[k, j].said


def _crossed(chosen: dict[int, int], left: dict[tuple[int, int], _Likeness]) -> bool:
    """Whether names led away from the order, and yet some pair's names have nothing in common."""
    ordered = [chosen[i] for i in sorted(chosen)]
    return ordered != sorted(ordered) and any(left[at].name < _NAMED for at in chosen.items())


def _only(found: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the pairs of which neither side is in another pair.

    Layers that all hold the same values cannot be told apart by them.
    """
    rows, columns = (Counter(at[axis] for at in found) for axis in (0, 1))
    return {i: j for i, j in found if rows[i] == columns[j] == 1}


def _greedy(scores: Mapping[tuple[int, int], float]) -> dict[int, int]:
    """The best pair, then the best of what is left, and so on."""
    found: dict[int, int] = {}
    for i, j in sorted(scores, key=lambda at: (-scores[at], at)):
        if i not in found and j not in found.values():
            found[i] = j
    return found


def _ranks(indices: list[int]) -> dict[int, float]:
    """Places from 0 to 1."""
    return {index: place / max(1, len(indices) - 1) for place, index in enumerate(indices)}


def _fits(one: Layer, two: Layer) -> bool:
    if one.role and two.role and one.role != two.role:
        return False
    return all(
        name in two.units
        and transforms(unit.shape, two.units[name].shape)
        and one.side.value(unit).dtype.kind == two.side.value(two.units[name]).dtype.kind
        for name, unit in one.units.items()
    )


@cache
def alike(one: str, two: str) -> float:
    """From 0 to 1: how alike the names of two classes are, whatever framework they are from."""
    return (
        SequenceMatcher(None, bare(one), bare(two), autojunk=False).ratio() if one and two else 0.5
    )


def bare(kind: str) -> str:
    """A class's name without dimensions, endings and spelling.

    Example:
        >>> bare("BatchNorm2d"), bare("BatchNormalization"), bare("Deconvolution2D")
        ('batchnorm', 'batchnorm', 'convtranspose')
    """
    name = kind.lower()
    name = name.removesuffix("nd").removesuffix("1d").removesuffix("2d").removesuffix("3d")
    for theirs, ours in _SPELLINGS.items():
        name = name.replace(theirs, ours)
    return name


def _same_values(one: Layer, two: Layer) -> bool:
    """Whether both hold the same values in some layout, and values that say something."""
    if not (one.distinctive and two.distinctive):
        return False
    pairs = [(name, unit, two.units[name]) for name, unit in one.units.items()]
    if not all(
        np.allclose(one.prints[name], two.prints[name], rtol=1e2 * NEAR) for name, _, _ in pairs
    ):
        return False
    return all(same_layout(one.side, unit, two.side, other) for _, unit, other in pairs)


def same_layout(reference: Side, unit: Unit, candidate: Side, other: Unit) -> Transform | None:
    """Return the transform under which two units hold the same values.

    None without one.
    """
    first, second = reference.value(unit), candidate.value(other)
    options = transforms(unit.shape, other.shape)
    if unit.shape == other.shape and len(unit.shape) < 3:
        for axis in range(len(unit.shape)):
            options += flattenings(unit.shape, channels(reference), axis)
    return equal_under(first, second, options)


def is_telling(value: np.ndarray) -> bool:
    """Whether a tensor's values are numbers and not all the same."""
    is_finite = value.size > 1 and bool(np.isfinite(value).all())
    return is_finite and bool(np.ptp(value.astype(np.float64)) > 0)


def _flattened(side: Side, unit: Unit, other: Unit) -> tuple[Transform, ...]:
    """Orders of the columns of a layer behind convolutions: channels or pixels first."""
    if not _is_of_matrix(side, unit, other) or len(unit.shape) != 2:
        return ()
    before = _matrices(side, unit)[0]
    beside = [shape for shape in before if shape[1:] != unit.shape[1:]]  # of several heads
    if not beside or len(beside[0]) < 3:
        return ()
    return flattenings(unit.shape, beside[0][:1])[::-1]


def _unflattened(side: Side, unit: Unit, other: Unit) -> tuple[Transform, ...]:
    """Orders of the rows of a layer in front of convolutions, if its output becomes a picture."""
    after = _matrices(side, unit)[1]
    if not _is_of_matrix(side, unit, other) or not after or len(after[0]) < 3:
        return ()
    return flattenings(unit.shape, after[0][:2], axis=0)[:2]


def _is_of_matrix(side: Side, unit: Unit, other: Unit) -> bool:
    """Whether both are the weight, or the bias, of a matrix of equal shape."""
    matrix = side.tensors.get(join(unit.layer, "weight"))
    return unit.shape == other.shape and matrix is not None and len(matrix.shape) == 2


def _matrices(side: Side, unit: Unit) -> tuple[list[Shape], list[Shape]]:
    """The shapes of the weights before a tensor, from the nearest on, and behind it."""
    names = list(side.tensors)
    at = names.index(unit.source)
    shapes = [side.tensors[name].shape for name in names]
    before = [shape for shape in shapes[:at][::-1] if len(shape) > 1]
    return before, [shape for shape in shapes[at + 1 :] if len(shape) > 1]


def channels(side: Side) -> list[int]:
    """The numbers of channels that convolutions give out."""
    return [tensor.shape[0] for tensor in side.tensors.values() if len(tensor.shape) > 2]


def layout(
    reference: Side, unit: Unit, candidate: Side, other: Unit
) -> tuple[Transform, tuple[Transform, ...]]:
    """How a unit lies in another one: by values, else by what their names say of the layout.

    Returns:
        The transform, and others that would do as well.
    """
    options = transforms(unit.shape, other.shape)
    known = [_known_layout(unit), _known_layout(other)]
    found = same_layout(reference, unit, candidate, other)
    if found is not None and is_telling(reference.value(unit)):
        as_named = options[0].plain and not found.plain and None not in known
        return found, options[:1] if as_named and known[0] == known[1] else ()
    if reference.channels_last != candidate.channels_last:
        if columns := _flattened(reference, unit, other):
            return columns[candidate.channels_last], (columns[reference.channels_last], options[0])
        if rows := _unflattened(reference, unit, other):
            return options[0], rows
    turned = [option for option in options if option.turned] if known[0] != known[1] else []
    first = next(iter([*turned, *options]))
    certain = len(options) == 1 or None not in known or len(unit.shape) < 2
    return first, () if certain else tuple(o for o in options if o.effect != first.effect)


def _known_layout(unit: Unit) -> str | None:
    """What a tensor's name says of its layout; None where it says nothing."""
    leaf = unit.source.rpartition(".")[2]
    if leaf in _MATRIX_LAST:
        return "in, out"
    return (
        "out, in"
        if leaf in _ROLES or not unit.whole or unit.name != unit.source or "weight" in leaf
        else None
    )
