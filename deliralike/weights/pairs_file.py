"""Files of pairs: which tensor of a network is which of a file, as a user has edited it."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from deliralike.errors import StateError, UnknownName, WeightFileMissing, suggestion
from deliralike.weights.file_match import COLUMNS, FileMatch
from deliralike.weights.matching.layouts import Transform, transforms
from deliralike.weights.matching.match import match_of
from deliralike.weights.matching.pairing import Pair
from deliralike.weights.matching.parts import Unit, whole

_NOTHING = "-"  # the tensor has no counterpart, on purpose


def given(proposal: FileMatch, path: str | os.PathLike[str]) -> FileMatch:
    """Return the match that a file of pairs says.

    Args:
        proposal: The match without it; what it calls a part of a tensor may be named.
        path: The file, as `FileMatch.write` writes it.
    """
    mine_units, their_units = _units(proposal)
    match = proposal.match
    spelled = proposal.spelled
    pairs = []
    mine_out = []
    theirs_out = []
    for row in _rows(path, proposal.source):
        if row.theirs == _NOTHING:
            mine_out.append(row.mine)
        elif row.mine == _NOTHING:
            theirs_out.append(spelled.get(row.theirs, row.theirs))
        elif row.mine and row.theirs:
            mine = _named(row.mine, mine_units, f"{row.where}: {match.reference.name}")
            theirs = _named(row.theirs, their_units, f"{row.where}: {proposal.source}")
            layout = _layout(mine[0], theirs[0], row, proposal)
            pairs.append(Pair(mine, theirs, layout, "correction"))
    reference = match.reference.without(mine_out)
    file = match.candidate.without(theirs_out)
    found = match_of(reference, file, pairs, (*mine_out, *theirs_out))
    return replace(proposal, match=found, confirmed=True)


@dataclass(frozen=True)
class _Row:
    """A row of a file of pairs.

    Attributes:
        where: The file and the line.
        mine, theirs: Names of tensors in the network and in the file.
        layout: How the one lies in the other, as a text.
    """

    where: str
    mine: str
    theirs: str
    layout: str


def _rows(path: str | os.PathLike[str], source: str) -> Iterator[_Row]:
    """Yield the rows of a file of pairs."""
    if not Path(path).is_file():
        raise WeightFileMissing(
            f"there is no file of pairs {str(path)!r}: weights.match(network, "
            f"{source!r}).write({str(path)!r}) writes one to edit"
        )
    wanted = COLUMNS[:3]
    with Path(path).open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        lacking = [name for name in wanted if name not in (reader.fieldnames or ())]
        if lacking:
            raise StateError(
                f"{path} is no file of pairs: its first line lacks {', '.join(lacking)}; wanted "
                f"the columns {', '.join(wanted)}"
            )
        for row in reader:
            mine, theirs, layout = ((row[name] or "").strip() for name in wanted)
            yield _Row(f"{path}, line {reader.line_num}", mine, theirs, layout)


def _units(proposal: FileMatch) -> tuple[dict[str, Unit], dict[str, Unit]]:
    """Return the tensors of both sides, and the parts of tensors in the pairs, by their texts."""
    match = proposal.match
    mine = {name: whole(name, shape) for name, shape in match.reference.shapes.items()}
    theirs = {}
    for name, shape in match.candidate.shapes.items():
        theirs[proposal.originals[name]] = whole(name, shape)
    for pair in match.names:
        for unit in pair.reference:
            mine[str(unit)] = unit
        for unit in pair.candidate:
            theirs[proposal.shown([unit])] = unit
    return mine, theirs


def _named(text: str, units: Mapping[str, Unit], where: str) -> tuple[Unit, ...]:
    """Return the tensors, or parts of tensors, that a cell names."""
    names = [name.strip() for name in text.split(" + ")]
    for name in names:
        if name not in units:
            raise UnknownName(f"{where} has no {name!r}. {suggestion(name, units)}")
    return tuple(units[name] for name in names)


def _layout(mine: Unit, theirs: Unit, row: _Row, proposal: FileMatch) -> Transform:
    """Return the layout that a row says; the plainest one for an empty cell."""
    options = list(transforms(mine.shape, theirs.shape))
    for pair in proposal.match.names:
        if (pair.reference[0], pair.candidate[0]) == (mine, theirs):
            options += [pair.transform, *pair.layouts]
    if not options:
        raise StateError(
            f"{row.where}: {mine} of shape {mine.shape} cannot be {proposal.shown([theirs])} of "
            f"shape {theirs.shape}: no order of the axes makes one the other"
        )
    if not row.layout:
        return options[0]
    texts = [str(option) for option in options]
    if row.layout not in texts:
        known = ", ".join(map(repr, dict.fromkeys(reversed(texts))))
        raise StateError(
            f"{row.where}: the layout {row.layout!r} is none of those that fit: {known}"
        )
    return options[texts.index(row.layout)]
