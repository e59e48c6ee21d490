"""From one kind of file into another, bit for bit; and what was done on the way."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deliralike.weights.expansion import refuse_nul
from deliralike.weights.mark import mark_archive
from deliralike.weights.reading import Contents, contents
from deliralike.weights.writing import replacing, storable, writer_of


@dataclass(frozen=True)
class Renaming:
    """How weights come by the names and layouts of the target.

    Attributes:
        state: The weights to write.
        layout: In words, from which names to which.
        renamed: How many names changed.
        reshaped: The names of arrays whose shape or order of elements changed.
        notes: What somebody who uses the target must know.
        neutral: False for Chainer's names; such a file is not marked as ours, so that they become neutral when read.
    """

    state: dict[str, np.ndarray]
    layout: str = ""
    renamed: int = 0
    reshaped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    neutral: bool = True


@dataclass(frozen=True)
class ConversionReport:
    """What a conversion did, or would do.

    Attributes:
        source, target: The two files.
        names: The names of the weights, in order.
        bytes: What the arrays take in memory.
        dtypes: How many arrays there are of each type.
        written: False after a dry run.
        kind: What the source is.
        layout, renamed, reshaped, notes: See `Renaming`.
        largest_difference: Between the outputs of the networks built from both files, where that was asked for.
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
    reshaped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    largest_difference: float | None = None

    def __str__(self) -> str:
        """One sentence, and a line for each thing that was done to names and layouts."""
        kinds = ", ".join(f"{count} {dtype}" for dtype, count in self.dtypes.items())
        done = "" if self.written else " (dry run: nothing was written)"
        lines = [f"{self.source} -> {self.target}: {len(self.names)} arrays ({kinds}), {self.bytes / 1e6:.1f} MB{done}"]
        if self.layout:
            lines += [f"  {self.layout}: {self.renamed} renamed, {len(self.reshaped)} in another layout"]
        lines += [f"  note: {note}" for note in self.notes]
        if self.largest_difference is not None:
            lines += [f"  largest difference of the outputs in float64: {self.largest_difference:.3g}"]
        return "\n".join(lines)


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    dry_run: bool = False,
    rename: Callable[[Contents], Renaming] | None = None,
) -> ConversionReport:
    """Write the weights of one file into another, in the format that the target's suffix names; see `read` and `write`.

    Args:
        dry_run: Read and check everything, write nothing.
        rename: What gives the weights other names and layouts; `deliralike.zoo.convert` has one for each architecture.
    """
    source, target = refuse_nul(source), refuse_nul(target)
    writer = writer_of(target)
    found = contents(source)
    renaming = rename(found) if rename else _as_it_is(found)
    state = storable(target, renaming.state)
    if not dry_run:
        with replacing(target) as temporary:
            writer(temporary, state)
            if renaming.neutral and temporary.is_file():
                mark_archive(temporary)
    dtypes = Counter(str(array.dtype) for array in state.values())
    size = sum(array.nbytes for array in state.values())
    return ConversionReport(
        source, target, tuple(state), size, dict(dtypes), written=not dry_run, kind=found.kind, layout=renaming.layout,
        renamed=renaming.renamed, reshaped=renaming.reshaped, notes=renaming.notes,
    )  # fmt: skip


def _as_it_is(found: Contents) -> Renaming:
    state, notes = found.best()
    return Renaming(state, notes=notes)
