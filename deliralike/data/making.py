"""How a batch is made from its job: read, transformed sample by sample, stacked, transformed as a whole.

A job says all that a worker must know, so it does not matter which one takes it, or when.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import progress
from deliralike.data.collate import collate
from deliralike.data.keyed import Call, Keyed
from deliralike.data.source import Source
from deliralike.errors import ArgumentError


@dataclass(frozen=True)
class Job:
    """The `number`-th batch of an epoch: which samples it has, and how often each of them came before in the epoch.

    `read` holds the samples themselves where only one reader can reach them.
    """

    epoch: int
    number: int
    indices: np.ndarray
    repeats: np.ndarray
    read: Sequence[Any] = ()


@dataclass(frozen=True)
class Make:
    """Makes batches from jobs; `source` is None where the jobs bring their samples."""

    source: Source | None
    seed: int
    transform: Call | None = None
    batch_transform: Call | None = None

    @classmethod
    def of(cls, source: Source | None, seed: int, transform: Any, batch_transform: Any) -> "Make":
        """Read off how each transform wants to be called.

        Raises:
            ArgumentError: A transform cannot be called.
        """
        return cls(source, seed, _call("transform", transform), _call("batch_transform", batch_transform))

    @property
    def is_plain(self) -> bool:
        """Whether batches are what the source holds, without any transform."""
        return self.transform is None and self.batch_transform is None

    def __call__(self, job: Job) -> Any:
        """The batch of a job."""
        progress.at_batch(job.number, job.epoch)
        batch = self._stacked(job)
        progress.at_batch(job.number, job.epoch)
        if self.batch_transform is None:
            return batch
        keyed = Keyed(self.seed, "data/batch_transform")
        with _noted("batch", job.number, job.epoch):
            return self.batch_transform(batch, partial(keyed.generator, job.epoch, job.number))

    def _stacked(self, job: Job) -> Any:
        if self.transform is None and self.source is not None:
            return self.source.take(job.indices)
        return collate([self._transformed(job, place) for place in range(len(job.indices))])

    def _transformed(self, job: Job, place: int) -> Any:
        index, repeat = int(job.indices[place]), int(job.repeats[place])
        progress.at_sample(index)
        sample = self.source.sample(index) if self.source is not None else job.read[place]
        if self.transform is None:
            return sample
        keyed = Keyed(self.seed, "data/transform")
        with _noted("sample", index, job.epoch):
            return self.transform(sample, partial(keyed.generator, job.epoch, index, repeat))


def _call(name: str, function: Callable[..., Any] | None) -> Call | None:
    if function is not None and not callable(function):
        raise ArgumentError(f"{name} must be a function, not {nest.described(function)}")
    return None if function is None else Call.of(function)


@contextmanager
def _noted(what: str, number: int, epoch: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while {what} {number} was transformed, in epoch {epoch}")
        raise
