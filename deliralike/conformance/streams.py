"""Streams of batches from any pipeline, as NumPy arrays by field."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import numpy as np

from deliralike import backends, data, nest
from deliralike.backends.base import Backend
from deliralike.conformance.findings import is_array
from deliralike.conformance.kinds import Tensors
from deliralike.errors import BatchError

_NAMES = {"data": "inputs", "label": "target", "labels": "target"}


@dataclass(frozen=True)
class Stream:
    """Batches, each a dict of arrays by field.

    The fields are ``"inputs"`` and ``"target"``, or the batches' own keys.

    Attributes:
        batches: They, in order.
        backends: The backends whose arrays were among them; none where all were NumPy's.

    Shapes:
        Every array is ``(samples, ...)``.
    """

    batches: tuple[Tensors, ...]
    backends: tuple[Backend, ...] = ()

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the arrays in the first batch."""
        return tuple(self.batches[0]) if self.batches else ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples in each batch."""
        return tuple(len(next(iter(batch.values()))) for batch in self.batches)

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of the first sample of each batch, and at the end that of all samples."""
        return np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)

    def __len__(self) -> int:
        """The number of samples."""
        return sum(self.sizes)

    def samples(self, field: str) -> list[np.ndarray]:
        """One array for each sample."""
        return list(chain.from_iterable(batch[field] for batch in self.batches))

    def shapes(self, field: str) -> set[tuple[int, ...]]:
        """The shapes that samples have."""
        return {batch[field].shape[1:] for batch in self.batches}

    def place(self, sample: int, field: str = "") -> str:
        """``"batch 0, sample 3, inputs"``: where a sample is, counted within its batch."""
        batch = int(np.searchsorted(self.starts, sample, side="right")) - 1
        parts = [f"batch {batch}", f"sample {sample - self.starts[batch]}", field]
        return ", ".join(filter(None, parts))

    def named_as(self, other: Stream) -> Stream:
        """Return the stream with another's field names.

        Fields correspond by name if the names are the same, else by position.
        """
        if set(self.fields) == set(other.fields) or len(self.fields) != len(other.fields):
            return self
        renamed = (dict(zip(other.fields, batch.values(), strict=True)) for batch in self.batches)
        return Stream(tuple(renamed), self.backends)


def read(source: Iterable[Any], batches: int | None = None) -> Stream:
    """Return the batches of a source in order, at most `batches` of them.

    A source without an end needs that number.

    A batch is a tuple or list of fields of which the last is the target, a dict of fields, an array
    by itself, or a list of samples that are tuples or dicts, as Chainer's iterators give it. Arrays
    may be those of any framework that is loaded. Leaves that are no arrays with an axis of samples
    (texts, None, numbers) are left out.

    Raises:
        BatchError: A batch has no array, arrays of different length, or other fields than the first
            batch.
    """
    # Copies are taken at once: pipelines may write the next batch into the same storage.
    found: list[Backend] = []
    convert = partial(_as_numpy, _loaded(), found)
    fields = []
    for number, batch in enumerate(islice(iter(source), batches)):
        fields.append(_fields(batch, number, convert))
    stream = Stream(tuple(fields), tuple(found))
    for number, batch in enumerate(stream.batches):
        if tuple(batch) != stream.fields:
            raise BatchError(
                f"batch {number} has the fields {', '.join(batch)}, and batch 0 has "
                f"{', '.join(stream.fields)}: all batches of a stream have the same"
            )
    return stream


def _fields(batch: Any, number: int, convert: Callable[[Any], Any]) -> Tensors:
    is_list = isinstance(batch, list) and bool(batch)
    if is_list and all(isinstance(sample, tuple | Mapping) for sample in batch):
        batch = data.collate([nest.map(convert, sample) for sample in batch])
    found = {}
    for name, part in _named(batch):
        for path, leaf in nest.leaves_with_paths(part, name):
            array = convert(leaf)
            if is_array(array) and array.ndim and array.dtype.kind in "biufc":
                found[path] = array
    sizes = {path: len(array) for path, array in found.items()}
    if len(set(sizes.values())) != 1:
        raise BatchError(
            f"batch {number} wants arrays with one length along their first axis, and has "
            f"{sizes or nest.described(batch)}: give (inputs, target) or a dict of arrays"
        )
    return found


def _named(batch: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a batch by name."""
    if isinstance(batch, Mapping):
        for key, value in batch.items():
            yield _NAMES.get(key, str(key)), value
        return
    if not isinstance(batch, Sequence) or not batch:
        yield "inputs", batch
        return
    *inputs, last = batch
    for i, value in enumerate(inputs or [last]):
        yield f"inputs {i}" if len(inputs) > 1 else "inputs", value
    if inputs:
        yield "target", last


def _loaded() -> list[Backend]:
    """The backends whose framework has been imported: an array exists only where it has."""
    found = []
    for name, entry in backends.known().items():
        if not entry.packages or entry.packages[0] in sys.modules:
            found.append(backends.get(name))
    return found


def _as_numpy(loaded: list[Backend], found: list[Backend], leaf: Any) -> Any:
    """Return an array of any loaded framework as a NumPy array with storage of its own.

    Anything else stays as it is.
    """
    if isinstance(leaf, np.ndarray | np.generic):
        return np.array(leaf)
    for backend in loaded:
        if backend.is_array(leaf):
            found += [] if backend in found else [backend]
            return backend.numpy(leaf)
    return leaf
