"""The steps from a job to its batch: read, transform each sample, stack, transform the batch.

A job holds all that a worker must know, so it does not matter which worker takes it, or when.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data import batching
from deliralike.data.collate import collate
from deliralike.data.keyed_rng import Call, keyed_generator, mixes_samples
from deliralike.data.source import Source
from deliralike.errors import BatchError


@dataclass(frozen=True)
class Job:
    """The order to make one batch of an epoch.

    Attributes:
        epoch: The epoch.
        number: The number of the batch in the epoch.
        indices: The samples of the batch.
        repeats: For each sample, how often it came before in the epoch.
        rows: The rows that are kept of a batch whose samples were mixed; all when None.
    """

    epoch: int
    number: int
    indices: np.ndarray
    repeats: np.ndarray
    rows: slice | None = None

    @property
    def place(self) -> str:
        """The batch and its samples in words, for messages."""
        samples = np.array2string(self.indices, threshold=8)
        return f"batch {self.number} of epoch {self.epoch}, samples {samples}"


@dataclass(frozen=True)
class BatchPipeline:
    """A function from a job to its batch."""

    source: Source
    seed: int
    transform: Call | None = None
    batch_transform: Call | None = None

    @property
    def mixes_samples(self) -> bool:
        """Whether the transform of batches has to see all samples of a batch."""
        return mixes_samples(self.batch_transform)

    def __call__(self, job: Job) -> Any:
        """Return the batch of a job."""
        batch = self._stacked(job)
        if self.batch_transform is None:
            return batch
        generator = partial(
            keyed_generator, self.seed, "data/batch_transform", job.epoch, job.number
        )
        with _noted("batch", job.number, job.epoch):
            batch = self.batch_transform(batch, generator)
            if job.rows is None:
                return batch
            return _shared(batch, job.rows, len(job.indices))

    def _stacked(self, job: Job) -> Any:
        if self.transform is None:
            return self.source.take(job.indices)
        of_epoch = partial(keyed_generator, self.seed, "data/transform", job.epoch)
        samples = []
        for index, repeat in zip(
            job.indices.tolist(), job.repeats.tolist(), strict=True
        ):
            # A transform that writes must not change the source.
            sample = nest.map(_copy, self.source.sample(index))
            with _noted("sample", index, job.epoch):
                samples.append(self.transform(sample, partial(of_epoch, index, repeat)))
        return collate(samples)


def _copy(leaf: Any) -> Any:
    """Return a copy of an array that can be written to."""
    if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
        return leaf.copy()
    return leaf


def _shared(batch: Any, rows: slice, samples: int) -> Any:
    """Return the rows that a process keeps of a batch of arrays, made of so many samples.

    Raises:
        BatchError: A transform has changed their number: the shares would leave some out.
    """
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        if not isinstance(leaf, np.ndarray) or leaf.ndim == 0:
            raise BatchError(
                "a batch whose samples are mixed holds arrays alone where processes share it: "
                f"{path} is {nest.described(leaf)}"
            )
    count = batching.size(batch)
    if count != samples:
        raise BatchError(
            f"a batch that processes share has {count} samples, and {samples} were read: a "
            "batch_transform must keep their number there"
        )
    return batching.take(batch, rows)


@contextmanager
def _noted(what: str, number: int, epoch: int) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while {what} {number} was transformed, in epoch {epoch}")
        raise
