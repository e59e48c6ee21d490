"""Which tensor of a file is which of a network, as an account and as a table to edit."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deliralike.errors import listed
from deliralike.weights.matching.match import Match
from deliralike.weights.matching.pairing import Pair
from deliralike.weights.matching.parts import Unit, shown

COLUMNS = ("network", "file", "layout", "decided by", "or else")
_MOST_SHOWN = 8


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
        if self.confirmed:
            return ()
        return self.match.ambiguous

    @property
    def missing(self) -> tuple[str, ...]:
        """The network's tensors without one in the file."""
        return tuple(self.match.missing)

    @property
    def unexpected(self) -> tuple[str, ...]:
        """The file's tensors without one in the network, by their names in the file."""
        return tuple(self.originals[name] for name in self.match.unexpected)

    @property
    def spelled(self) -> dict[str, str]:
        """The names under which the file's tensors were matched, by those in the file."""
        return {original: name for name, original in self.originals.items()}

    def state(self) -> dict[str, np.ndarray]:
        """Return the file's arrays under the network's names and in its layouts."""
        tensors = self.match.candidate.tensors.items()
        return self.match.to_reference({name: tensor.value for name, tensor in tensors})

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the pairs as texts, in the columns of the file of pairs."""
        for pair in self.match.names:
            mine = shown(pair.reference)
            theirs = self.shown(pair.candidate)
            others = [self.originals[name] for name in pair.alternatives]
            choices = "; ".join([*others, *_layouts(pair)])
            yield mine, theirs, str(pair.transform), pair.decided, choices
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
            lines.append(f"missing in the file: {listed(self.missing, _MOST_SHOWN)}")
        if self.unexpected:
            lines.append(f"in the file alone: {listed(self.unexpected, _MOST_SHOWN)}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n  ".join(lines)

    def choices(self, pair: Pair) -> str:
        """Return in words what a pair is, and what it may be as well."""
        own = pair.candidate[0].source
        choices = [self.originals[name] for name in pair.alternatives if name != own]
        if own in pair.alternatives:
            choices.append("that is another one of the network's")
        for layout in _layouts(pair):
            choices.append(f"in the layout {layout!r}")
        names = f"{shown(pair.reference)} is {self.shown(pair.candidate)}"
        return ", or ".join([names, *choices])


def _layouts(pair: Pair) -> list[str]:
    """Return the other layouts that would do, in words."""
    return [str(layout) or "as it is" for layout in pair.layouts]
