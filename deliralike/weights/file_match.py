"""Which tensor of a file is which of a network, and how that was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from deliralike.errors import listed
from deliralike.weights.matching.match import Match
from deliralike.weights.matching.pairing import Pair
from deliralike.weights.matching.parts import shown

_MOST_SHOWN = 8


@dataclass(frozen=True)
class FileMatch:
    """Which tensor of a file is which of a network, as far as names, shapes and order tell.

    Attributes:
        source: The file.
        match: The network is the reference, the file the candidate.
        originals: The names in the file, by those under which they were matched.
        notes: What was guessed of the file when it was read.
    """

    source: str
    match: Match
    originals: Mapping[str, str] = field(repr=False)
    notes: tuple[str, ...] = ()

    @property
    def open_pairs(self) -> tuple[Pair, ...]:
        """The pairs for which something else would do as well."""
        return self.match.ambiguous

    @property
    def missing(self) -> tuple[str, ...]:
        """The network's tensors without one in the file."""
        return self.match.missing

    @property
    def unexpected(self) -> tuple[str, ...]:
        """The file's tensors without one in the network, by their names in the file."""
        return tuple(self.originals[name] for name in self.match.unexpected)

    def state(self) -> dict[str, np.ndarray]:
        """Return the file's arrays under the network's names and in its layouts."""
        tensors = self.match.candidate.tensors.items()
        return self.match.to_reference({name: tensor.value for name, tensor in tensors})

    def __str__(self) -> str:
        """Return how many pairs there are and by what, and a line for each that is open."""
        decided = Counter(pair.decided for pair in self.match.names)
        counts = ", ".join(f"{count} by {word}" for word, count in decided.items())
        name = self.match.reference.name
        lines = [
            f"{self.source}, matched to {name}: {len(self.match.names)} pairs ({counts})"
        ]
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
        for layout in pair.layouts:
            choices.append(f"in the layout {str(layout) or 'as it is'!r}")
        units = [
            replace(unit, source=self.originals[unit.source]) for unit in pair.candidate
        ]
        names = f"{shown(pair.reference)} is {shown(units)}"
        return ", or ".join([names, *choices])
