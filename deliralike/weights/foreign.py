"""Files whose names are of another hand: matched to a network by names, shapes and order."""

from __future__ import annotations

import csv
import logging
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deliralike.errors import StateError, UnknownName, WeightFileMissing, suggestion
from deliralike.network.state import LoadReport
from deliralike.weights.matching.layouts import Transform, transforms
from deliralike.weights.matching.match import Match, match_of, propose_between
from deliralike.weights.matching.naming import role
from deliralike.weights.matching.pairing import COUNTER, STATISTICS, Pair, Side, Tensor
from deliralike.weights.matching.parts import Unit, shown, whole
from deliralike.weights.reading import Contents, contents

if TYPE_CHECKING:
    from deliralike.network.base import AbstractNetwork

COLUMNS = ("network", "file", "layout", "decided by", "or else")
NOTHING = "-"  # in a file of pairs: the tensor has no counterpart, on purpose
_MOST_SHOWN = 8
_LOGGER = logging.getLogger("deliralike")

# Endings of names that other hands have given to what a layer holds.
_ROLES = {
    "w": "weight",
    "weights": "weight",
    "b": "bias",
    "biases": "bias",
    "mean": "running_mean",
    "moving_mean": "running_mean",
    "var": "running_var",
    "moving_variance": "running_var",
    **{name: name for name in ("weight", "bias", "kernel", "gamma", "beta", *STATISTICS)},
}
_LEAF = re.compile(rf"(.+?)_({'|'.join(sorted(_ROLES, key=len, reverse=True))})", re.IGNORECASE)


@dataclass(frozen=True)
class FileMatch:
    """Which tensor of a file is which of a network, as far as names, shapes and order tell.

    Attributes:
        source: The file.
        match: The network is the reference, the file the candidate.
        originals: The names in the file, by those under which they were matched.
        notes: What was guessed of the file when it was read.
        confirmed: Whether the pairs were given, so that none of them is open.
    """

    source: str
    match: Match
    originals: Mapping[str, str] = field(repr=False)
    notes: tuple[str, ...] = ()
    confirmed: bool = False

    @property
    def open_pairs(self) -> tuple[Pair, ...]:
        """The pairs for which something else would do as well."""
        return () if self.confirmed else self.match.ambiguous

    @property
    def missing(self) -> tuple[str, ...]:
        """The network's tensors without one in the file."""
        return tuple(self.match.missing)

    @property
    def unexpected(self) -> tuple[str, ...]:
        """The file's tensors without one in the network, by their names in the file."""
        return tuple(self.originals[name] for name in self.match.unexpected)

    def state(self) -> dict[str, np.ndarray]:
        """Return the file's arrays under the network's names and in its layouts."""
        tensors = self.match.candidate.tensors
        return self.match.to_reference({name: tensors[name].value for name in tensors})

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the pairs as texts, in the columns of the file of pairs."""
        for pair in self.match.names:
            others = [self.originals[name] for name in pair.alternatives]
            others += [str(layout) or "as it is" for layout in pair.layouts]
            cells = (shown(pair.reference), self.shown(pair.candidate), str(pair.transform))
            yield *cells, pair.decided, "; ".join(others)
        for name, near in self.match.missing.items():
            nearest = "; ".join(self.originals[other] for other in near)
            yield name, "", "", "missing", nearest
        for name, near in self.match.unexpected.items():
            yield "", self.originals[name], "", "unexpected", "; ".join(near)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the pairs as CSV, to be edited and given to `load` as ``match=path``.

        A row is a tensor of the network and the one of the file that it is. ``-`` in the place of
        either says that there is none, on purpose.
        """
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            writer.writerows(self.rows())

    def shown(self, units: Sequence[Unit]) -> str:
        """Return tensors of the file, or parts of them, by their names in the file."""
        named = [replace(unit, source=self.originals[unit.source]) for unit in units]
        return shown(named)

    def __str__(self) -> str:
        """Return how many pairs there are and by what, and a line for each that is open."""
        decided = Counter(pair.decided for pair in self.match.names)
        counts = ", ".join(f"{count} by {word}" for word, count in decided.items())
        name = self.match.reference.name
        lines = [f"{self.source}, matched to {name}: {len(self.match.names)} pairs ({counts})"]
        for pair in self.open_pairs[:_MOST_SHOWN]:
            lines.append(f"not certain: {self.choices(pair)}")
        more = len(self.open_pairs) - _MOST_SHOWN
        if more > 0:
            lines.append(f"not certain: {more} more")
        if self.missing:
            lines.append(f"missing in the file: {_some(self.missing)}")
        if self.unexpected:
            lines.append(f"in the file alone: {_some(self.unexpected)}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n  ".join(lines)

    def choices(self, pair: Pair) -> str:
        """Return in words what a pair is, and what it may be as well."""
        own = pair.candidate[0].source
        choices = [self.originals[name] for name in pair.alternatives if name != own]
        if own in pair.alternatives:
            choices.append("that is another one of the network's")
        choices += [f"in the layout {str(each) or 'as it is'!r}" for each in pair.layouts]
        mine = shown(pair.reference)
        return f"{mine} is {self.shown(pair.candidate)}, or {', or '.join(choices)}"


@dataclass(frozen=True)
class MatchReport(LoadReport):
    """What became of each name when weights of another hand were loaded.

    Attributes:
        match: The pairs.
    """

    match: FileMatch | None = None

    def __str__(self) -> str:
        """Return what was loaded, the pairs' account, and what they rest on."""
        account = f"{super().__str__()}; {self.match}"
        if self.match is None or self.match.confirmed:
            return account
        return (
            f"{account}\n  names, shapes and order tell which tensor is which, and no output was "
            "compared: try the network on data that you know"
        )


def match(
    network: AbstractNetwork,
    weights: str | os.PathLike[str] | Contents | Mapping[str, np.ndarray],
    names: str | os.PathLike[str] | Mapping[str, str | None] | None = None,
) -> FileMatch:
    """Find which tensor of a file is which of a network; nothing is loaded.

    Equal names and shapes throughout are taken as they are. Otherwise names (words, synonyms,
    numbers in a series), shapes (in any order of axes) and the order in which tensors stand decide,
    as `deliralike.conformance.compare` does before it compares outputs. There is nothing to compare
    here: what two choices fit as well is open, and `load` refuses it.

    Args:
        network: Any network, on any backend.
        weights: A file, its contents, or arrays by name.
        names: What is known: names of the file by those of the network, or None for a tensor of
            either that has no counterpart; or a file of pairs, as `FileMatch.write` writes it,
            which is then taken as it is.

    Raises:
        UnknownName: `names` has a name that is not there.
        ShapeError, StateError: `names` pairs tensors that no order of axes makes one.
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read`.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=4, hidden=(3,), out_features=2)
        >>> old = {"hidden_w": np.ones((3, 4)), "hidden_b": np.ones(3)}
        >>> old |= {"out_w": np.ones((2, 3)), "out_b": np.ones(2)}
        >>> print(match(net, old))
        a mapping, matched to MLP on torch: 4 pairs (4 by shape)
    """
    source, state, notes, channels_last = _state(weights)
    file, originals = _file_side(source, state, channels_last)
    reference = Side.of(network, with_values=False)
    if isinstance(names, str | os.PathLike):
        proposed = _by_number(propose_between(reference, file, {}))
        return _given(FileMatch(source, proposed, originals, notes), names)
    spelled = {original: name for name, original in originals.items()}
    corrections = {
        spelled.get(mine, mine): None if theirs is None else spelled.get(theirs, theirs)
        for mine, theirs in (names or {}).items()
    }
    found = _by_number(propose_between(reference, file, corrections))
    return FileMatch(source, found, originals, notes)


def load(
    network: AbstractNetwork,
    path: str | os.PathLike[str],
    strict: bool = True,
    names: str | os.PathLike[str] | Mapping[str, str | None] | None = None,
) -> MatchReport:
    """Match a file and load it; see `deliralike.weights.load`."""
    found = match(network, path, names)
    does_not_fit = not found.match.names or (strict and (found.missing or found.unexpected))
    if found.open_pairs or does_not_fit:
        leave = "\n  strict=False leaves alone what is missing or in the file alone."
        raise StateError(
            f"the weights were not loaded, and {type(network).__name__} is unchanged: {found}"
            f"{leave if does_not_fit else ''}\n  Write the pairs into a file, correct it, and give "
            f"it: weights.match(network, {str(path)!r}).write('pairs.csv'), then match='pairs.csv'"
        )
    loaded = network.load_neutral_state(found.state(), strict=False)
    report = MatchReport(
        loaded.loaded, loaded.missing, found.unexpected, loaded.mismatched, match=found
    )
    level = logging.INFO if found.confirmed and report.complete else logging.WARNING
    _LOGGER.log(level, "%s", report)
    return report


# The file
# -----------------------------------------------------------------------------


def _state(
    weights: str | os.PathLike[str] | Contents | Mapping[str, np.ndarray],
) -> tuple[str, dict[str, np.ndarray], tuple[str, ...], bool]:
    """Return a source's name, its arrays, notes, and whether its kernels had channels last."""
    if isinstance(weights, Mapping):
        return "a mapping", {name: np.asarray(array) for name, array in weights.items()}, (), False
    if isinstance(weights, Contents):
        found, source = weights, weights.kind
    else:
        found, source = contents(weights), str(weights)
    state, notes = found.best()
    return source, state, notes, found.channels_last


def _file_side(
    source: str, state: Mapping[str, np.ndarray], channels_last: bool
) -> tuple[Side, dict[str, str]]:
    """Return a file as a side of a match, and the names in the file by those of the side."""
    originals = _spelled(list(state))
    tensors = {}
    for name, original in originals.items():
        if not name.endswith(COUNTER):
            array = state[original]
            is_parameter = role(name) not in STATISTICS
            tensors[name] = Tensor(tuple(array.shape), is_parameter, name, array)
    return Side(source, tensors, {}, channels_last, frozenset(tensors)), originals


def _spelled(names: Sequence[str]) -> dict[str, str]:
    """Return the names by dotted ones; as they are where two would become one.

    Example:
        >>> _spelled(["conv1/w:0", "fc_bias"])
        {'conv1.weight': 'conv1/w:0', 'fc.bias': 'fc_bias'}
    """
    dotted = {_dotted(name): name for name in names}
    return dotted if len(dotted) == len(names) else {name: name for name in names}


def _dotted(name: str) -> str:
    path, _, leaf = name.removesuffix(":0").replace("/", ".").rpartition(".")
    parts = _LEAF.fullmatch(leaf)
    if leaf.lower() in _ROLES:
        leaf = _ROLES[leaf.lower()]
    elif parts is not None:
        leaf = f"{parts[1]}.{_ROLES[parts[2].lower()]}"
    return f"{path}.{leaf}" if path else leaf


# Numbered series
# -----------------------------------------------------------------------------


def _by_number(match: Match) -> Match:
    """Return the match with those open pairs settled that are numbered series of one length.

    Where ``layers.0``, ``layers.1`` may be ``fc1``, ``fc2`` in any order and stand in the order of
    their numbers, the numbers decide.
    """
    groups: dict[frozenset[str], list[int]] = defaultdict(list)
    for index, pair in enumerate(match.names):
        if pair.alternatives:
            choices = frozenset((pair.candidate[0].source, *pair.alternatives))
            groups[choices].append(index)
    pairs = list(match.names)
    for choices, indices in groups.items():
        members = [pairs[index] for index in indices]
        mine = _series([pair.reference[0].source for pair in members])
        theirs = _series([pair.candidate[0].source for pair in members])
        if len(members) == len(choices) > 1 and mine is not None and mine == theirs:
            for index in indices:
                pairs[index] = replace(pairs[index], decided="number", alternatives=())
    return replace(match, names=tuple(pairs))


def _series(names: Sequence[str]) -> list[int] | None:
    """Return the place of each name in a series that differs in one number; None if it is none.

    Example:
        >>> _series(["fc2.weight", "fc10.weight", "fc1.weight"]), _series(["a1.b", "c2.b"])
        ([1, 2, 0], None)
    """
    if len({re.sub(r"\d+", "#", name) for name in names}) > 1:
        return None
    numbers = [tuple(map(int, re.findall(r"\d+", name))) for name in names]
    changing = [column for column in zip(*numbers, strict=True) if len(set(column)) > 1]
    if len(changing) != 1 or len(set(changing[0])) < len(names):
        return None
    ordered = sorted(changing[0])
    return [ordered.index(number) for number in changing[0]]


# A file of pairs
# -----------------------------------------------------------------------------


def _given(proposal: FileMatch, path: str | os.PathLike[str]) -> FileMatch:
    """Return the match that a file of pairs says."""
    units = _units(proposal)
    pairs = []
    left_out = []
    for line, row in _table(path, proposal):
        mine, theirs = row["network"], row["file"]
        if NOTHING in (mine, theirs):
            left_out.append((mine, theirs))
        elif mine and theirs:
            one = _named(mine, units[0], f"{path}, line {line}: {proposal.match.reference.name}")
            two = _named(theirs, units[1], f"{path}, line {line}: {proposal.source}")
            layout = _layout(one[0], two[0], row["layout"] or "", proposal, f"{path}, line {line}")
            pairs.append(Pair(one, two, layout, "correction"))
    spelled = {original: name for name, original in proposal.originals.items()}
    mine_out = [mine for mine, theirs in left_out if theirs == NOTHING]
    theirs_out = [spelled.get(theirs, theirs) for mine, theirs in left_out if mine == NOTHING]
    reference = proposal.match.reference.without(mine_out)
    file = proposal.match.candidate.without(theirs_out)
    found = match_of(reference, file, pairs, (*mine_out, *theirs_out))
    return replace(proposal, match=found, confirmed=True)


def _table(
    path: str | os.PathLike[str], proposal: FileMatch
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the rows of a file of pairs, each with the number of its line."""
    if not Path(path).is_file():
        raise WeightFileMissing(
            f"there is no file of pairs {str(path)!r}: weights.match(network, "
            f"{proposal.source!r}).write({str(path)!r}) writes one to edit"
        )
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in COLUMNS[:3] if name not in (reader.fieldnames or ())]
        if lacking:
            raise StateError(
                f"{path} is no file of pairs: its first line lacks {', '.join(lacking)}; wanted "
                f"the columns {', '.join(COLUMNS[:3])}"
            )
        for row in reader:
            yield reader.line_num, {name: (row[name] or "").strip() for name in COLUMNS[:3]}


def _units(proposal: FileMatch) -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Return the tensors of both sides, and the parts of tensors in the pairs, by their texts."""
    mine = {name: whole(name, one.shape) for name, one in proposal.match.reference.tensors.items()}
    theirs = {}
    for name, one in proposal.match.candidate.tensors.items():
        theirs[proposal.originals[name]] = whole(name, one.shape)
    for pair in proposal.match.names:
        mine |= {str(unit): unit for unit in pair.reference}
        theirs |= {proposal.shown([unit]): unit for unit in pair.candidate}
    return mine, theirs


def _named(text: str, units: Mapping[str, Unit], where: str) -> tuple[Unit, ...]:
    """Return the tensors, or parts of tensors, that a cell names."""
    names = [name.strip() for name in text.split(" + ")]
    for name in names:
        if name not in units:
            raise UnknownName(f"{where} has no {name!r}. {suggestion(name, units)}")
    return tuple(units[name] for name in names)


def _layout(mine: Unit, theirs: Unit, text: str, proposal: FileMatch, where: str) -> Transform:
    """Return the layout that a cell says; the plainest one for an empty cell."""
    options = list(transforms(mine.shape, theirs.shape))
    for pair in proposal.match.names:
        if (pair.reference[0], pair.candidate[0]) == (mine, theirs):
            options += [pair.transform, *pair.layouts]
    if not options:
        raise StateError(
            f"{where}: {mine} of shape {mine.shape} cannot be {proposal.shown([theirs])} of shape "
            f"{theirs.shape}: no order of the axes makes one the other"
        )
    by_text = {str(option): option for option in reversed(options)}
    if text and text not in by_text:
        known = ", ".join(repr(each) for each in by_text)
        raise StateError(f"{where}: the layout {text!r} is none of those that fit: {known}")
    return by_text[text] if text in by_text else options[0]


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_SHOWN])
    more = len(names) - _MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
