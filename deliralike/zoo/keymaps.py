"""Other layouts of a state: names, and some shapes, that another library gives the same weights."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from deliralike.errors import StateError

Transform = Callable[[np.ndarray], np.ndarray]
State = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class KeyMap:
    r"""One other layout of the same weights.

    It is described from our names, so it works in both directions.

    Attributes:
        name: The library whose layout it is: ``"timm"``, ``"torchvision"`` …
        rename: A function from our names, in order, to a dict from ours to theirs. Names that they
            lack are left out.
        shapes: For patterns of our names, the functions that give an array our shape and theirs.
        mend: A function that turns a state of theirs into one of arrays that we have too, before
            it is renamed.
        complete: A function that adds to a state in their layout the arrays that only they have,
            after it is renamed.
        notes: Differences between the outputs that remain after the weights are converted.
        resampling: How the library resamples tables of positions, for networks whose
            `adapt_weight` asks for it; None for the network's own way.

    Example:
        >>> names = by_patterns({r"fc\.(.*)": r"head.\1"})
        >>> old = KeyMap("old", names, {"*.weight": (np.squeeze, lambda w: w[..., None])})
        >>> theirs = old.to_layout({"fc.weight": np.ones((3, 2))})
        >>> theirs["head.weight"].shape, old.from_layout(theirs, ["fc.weight"])["fc.weight"].shape
        ((3, 2, 1), (3, 2))
    """

    name: str
    rename: Callable[[Sequence[str]], Mapping[str, str]]
    shapes: Mapping[str, tuple[Transform, Transform]] = field(default_factory=dict)
    mend: Callable[[State], State] | None = None
    complete: Callable[[State], State] | None = None
    notes: tuple[str, ...] = ()
    resampling: Callable[[int, int], np.ndarray] | None = None

    def table(self, names: Iterable[str]) -> dict[str, str]:
        """Return the table from our names to theirs.

        Raises:
            StateError: Two of our names would be one of theirs, so that there were no way back.
        """
        table = dict(self.rename(list(names)))
        first: dict[str, str] = {}
        for name, other_name in table.items():
            if first.setdefault(other_name, name) != name:
                raise StateError(
                    f"the layout {self.name!r} gives {first[other_name]!r} and {name!r} the name "
                    f"{other_name!r}"
                )
        return table

    def from_layout(self, state: State, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Convert a state from their layout to ours.

        Arrays that only they have keep their names and come last.

        Args:
            names: All of our names, in order.
        """
        if self.mend is not None:
            state = self.mend(state)
        table = self.table(names)
        known = {}
        for name, other_name in table.items():
            if other_name in state:
                known[name] = self._transformed(name, state[other_name], 0)
        converted = {*table.values(), *known}
        for name, value in state.items():
            if name not in converted:
                known[name] = value
        return known

    def to_layout(self, state: State) -> dict[str, np.ndarray]:
        """Convert a state from our layout to theirs, in our order.

        Arrays that they lack are left out.

        Raises:
            StateError: An array would not come back as it was.
        """
        converted = {}
        for name, other_name in self.table(state).items():
            value = state[name]
            converted[other_name] = self._transformed(name, value, 1)
            if converted[other_name] is not value:
                back = self._transformed(name, converted[other_name], 0)
                if not np.array_equal(back, value, equal_nan=True):
                    raise StateError(
                        f"{name!r} would not come back from the layout {self.name!r} as it is"
                    )
        if self.complete is not None:
            return dict(self.complete(converted))
        return converted

    def _transformed(self, ours: str, value: np.ndarray, direction: int) -> np.ndarray:
        for pattern, pair in self.shapes.items():
            if fnmatchcase(ours, pattern):
                return pair[direction](value)
        return value


def below(
    keymap: KeyMap,
    path: str,
    other_path: str,
    name: str = "",
    notes: Sequence[str] = (),
) -> KeyMap:
    r"""Return the layout of a network that holds the one of a layout; other names are the same.

    Args:
        keymap: The layout of the network within.
        ours, theirs: The prefixes of its names here and in the other layout, for example
            ``"encoder."``.
        name: The name of the new layout; that of `keymap` when empty.
        notes: What to note beside the notes of `keymap`.

    Example:
        >>> old = KeyMap("old", by_patterns({r"fc\.(.*)": r"head.\1"}))
        >>> below(old, "encoder.", "encoder.model.").table(["encoder.fc.bias", "last.bias"])
        {'encoder.fc.bias': 'encoder.model.head.bias', 'last.bias': 'last.bias'}
    """

    def rename(names: Sequence[str]) -> dict[str, str]:
        within = [each.removeprefix(path) for each in names if each.startswith(path)]
        table = {
            f"{path}{old}": f"{other_path}{new}"
            for old, new in keymap.rename(within).items()
        }
        for each in names:
            if not each.startswith(path):
                table[each] = each
        return table

    def within(
        change: Callable[[State], State] | None,
    ) -> Callable[[State], State] | None:
        if change is None:
            return None
        return partial(_changed_below, change, other_path)

    shapes = {f"{path}{pattern}": pair for pattern, pair in keymap.shapes.items()}
    return KeyMap(
        name or keymap.name,
        rename,
        shapes,
        within(keymap.mend),
        within(keymap.complete),
        (*keymap.notes, *notes),
    )


def _changed_below(
    change: Callable[[State], State], prefix: str, state: State
) -> State:
    """Change the part of a state whose names begin with a prefix."""
    inner = {}
    outer = {}
    for name, value in state.items():
        if name.startswith(prefix):
            inner[name.removeprefix(prefix)] = value
        else:
            outer[name] = value
    changed = {f"{prefix}{name}": value for name, value in change(inner).items()}
    return changed | outer


def by_layers(table: Mapping[str, str]) -> Callable[[Sequence[str]], dict[str, str]]:
    """Make a renaming by the paths of layers; names of other layers are left out.

    Example:
        >>> by_layers({"fc": "head.fc"})(["fc.weight", "conv.weight"])
        {'fc.weight': 'head.fc.weight'}
    """

    def rename(names: Sequence[str]) -> dict[str, str]:
        renamed = {}
        for name in names:
            layer, _, field_name = name.rpartition(".")
            if layer in table:
                renamed[name] = f"{table[layer]}.{field_name}"
        return renamed

    return rename


Replacement = str | Callable[[re.Match[str]], str]


def by_patterns(
    table: Mapping[str, Replacement],
) -> Callable[[Sequence[str]], dict[str, str]]:
    r"""Make a renaming by regular expressions.

    Each name is renamed by the first one that matches it whole; names without a match are left out.

    Args:
        table: For each pattern a template like ``r"head.\1"``, or a function of the match.

    Example:
        >>> by_patterns({r"fc\.(.*)": r"head.\1"})(["fc.weight", "step"])
        {'fc.weight': 'head.weight'}
    """
    patterns = {
        re.compile(pattern): replacement for pattern, replacement in table.items()
    }

    def renamed(name: str) -> str | None:
        for pattern, replacement in patterns.items():
            match = pattern.fullmatch(name)
            if match is None:
                continue
            if isinstance(replacement, str):
                return match.expand(replacement)
            return replacement(match)
        return None

    def rename(names: Sequence[str]) -> dict[str, str]:
        table = {}
        for name in names:
            new = renamed(name)
            if new is not None:
                table[name] = new
        return table

    return rename


def without(state: State, pattern: str) -> State:
    r"""Return a state without the names in which a regular expression is found; all if it is empty.

    Example:
        >>> without({"fc.bias": 1, "fc.mask": 2}, r"\.mask$")
        {'fc.bias': 1}
    """
    if not pattern:
        return state
    return {name: state[name] for name in state if not re.search(pattern, name)}


# Several arrays that another layout has as one
# -----------------------------------------------------------------------------


def joined(state: State, parts: Sequence[str], packed: str) -> dict[str, np.ndarray]:
    """Join arrays of several layers, one below the other; those that are missing are zero.

    Args:
        state: Arrays by name.
        parts: What the names of these layers hold, such as ``(".query.", ".key.", ".value.")``.
        packed: What the joined arrays hold in that place.

    Example:
        >>> joined({"a.q": np.ones(1), "a.v": np.ones(1)}, (".q", ".k", ".v"), ".qkv")
        {'a.qkv': array([1., 0., 1.])}
    """
    first, *others = parts
    whole = {}
    for name, value in state.items():
        if any(part in name for part in others):
            continue
        if first in name:
            zeros = np.zeros_like(value)
            value = np.concatenate(
                [state.get(name.replace(first, part), zeros) for part in parts]
            )
        whole[name.replace(first, packed)] = value
    return whole


def apart(state: State, parts: Sequence[str], packed: str) -> dict[str, np.ndarray]:
    """Split arrays again that `joined` would join.

    Example:
        >>> apart({"a.qkv": np.ones(3)}, (".q", ".k", ".v"), ".qkv")
        {'a.q': array([1.]), 'a.k': array([1.]), 'a.v': array([1.])}
    """
    split = {}
    for name, value in state.items():
        if packed not in name:
            split[name] = value
            continue
        for part, array in zip(parts, np.split(value, len(parts)), strict=True):
            split[name.replace(packed, part)] = array
    return split
