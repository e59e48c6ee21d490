"""Conversion of one kind of weight file into another, bit for bit, with a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deliralike.errors import WeightFileError
from deliralike.weights.inflate import AnyPath, refuse_nul
from deliralike.weights.mark import Notes, mark_archive
from deliralike.weights.reading import Contents, contents
from deliralike.weights.writing import replacing, storable, writer_of


@dataclass(frozen=True)
class Renaming:
    """Weights under the names and in the layouts of the target.

    Attributes:
        state: The weights to write.
        layout: In words, from which names to which.
        renamed: The number of names that changed.
        notes: Sentences that a user of the target must know.
        neutral: False for Chainer's names; such a file is not marked as ours, so that they become
            neutral when read.
    """

    state: dict[str, np.ndarray]
    layout: str = ""
    renamed: int = 0
    notes: Notes = ()
    neutral: bool = True


@dataclass(frozen=True)
class ConversionReport:
    """The account of a conversion, or of a dry run.

    Attributes:
        source, target: The two files.
        names: The names of the weights, in order.
        bytes: The size of the arrays in memory.
        dtypes: The number of arrays of each type.
        written: False after a dry run.
        kind: The kind of the source file.
        layout, renamed, notes: See `Renaming`.
        largest_difference: The largest difference from the outputs of the network that the file
            was made for, as a part of the largest output; None if they were not compared.
    """

    source: Path
    target: Path
    names: tuple[str, ...]
    bytes: int
    dtypes: dict[str, int]
    written: bool
    kind: str = ""
    layout: str = ""
    renamed: int = 0
    notes: Notes = ()
    largest_difference: float | None = None

    def __str__(self) -> str:
        """Return one sentence, and a line for each change of names and layouts."""
        types = [f"{count} {dtype}" for dtype, count in self.dtypes.items()]
        dry_run = "" if self.written else " (dry run: nothing was written)"
        megabytes = self.bytes / 1e6
        lines = [
            f"{self.source} -> {self.target}: {len(self.names)} arrays ({', '.join(types)}), "
            f"{megabytes:.1f} MB{dry_run}"
        ]
        if self.layout:
            lines.append(f"  {self.layout}: {self.renamed} renamed")
        for note in self.notes:
            lines.append(f"  note: {note}")
        if self.largest_difference is not None:
            lines.append(
                f"  outputs in float64 differ by {self.largest_difference:.3g} of the largest one"
            )
        return "\n".join(lines)


def convert(
    source: AnyPath,
    target: AnyPath,
    dry_run: bool = False,
    rename: Callable[[Contents], Renaming] | None = None,
) -> ConversionReport:
    """Write the weights of one file into another, in the format of the target's suffix.

    Args:
        dry_run: Read and check everything, write nothing.
        rename: A function that gives the weights other names and layouts; `deliralike.zoo.convert`
            has one for each architecture.

    Raises:
        WeightFileMissing, WeightFileError, BackendUnavailable: As for `read` and `write`; or the
            target is the source, of which a checkpoint has more than the weights.
    """
    source = refuse_nul(source)
    target = refuse_nul(target)
    if target.exists() and source.exists() and target.samefile(source):
        raise WeightFileError(
            f"{target} is the source itself, which would be lost: name another target"
        )
    writer = writer_of(target)
    source_contents = contents(source)
    if rename is None:
        unchanged, notes = source_contents.without_network()
        renaming = Renaming(unchanged, notes=notes)
    else:
        renaming = rename(source_contents)
    state = storable(target, renaming.state)
    if not dry_run:
        with replacing(target) as temporary:
            writer(temporary, state)
            if renaming.neutral:
                mark_archive(temporary)
    dtypes = Counter(str(array.dtype) for array in state.values())
    size = sum(array.nbytes for array in state.values())
    return ConversionReport(
        source,
        target,
        tuple(state),
        size,
        dict(dtypes),
        written=not dry_run,
        kind=source_contents.kind,
        layout=renaming.layout,
        renamed=renaming.renamed,
        notes=renaming.notes,
    )
