"""The loader: batches of a source, epoch by epoch, from any position on."""

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from deliralike.data import batching, pool
from deliralike.data.batch_pipeline import BatchPipeline, Job
from deliralike.data.keyed_rng import Call, KeyedGlobals, watched
from deliralike.data.sampling import (
    Sampler,
    SequentialSampler,
    ShuffledSampler,
    drawn,
    repeats,
)
from deliralike.data.source import readable
from deliralike.errors import (
    BatchError,
    SettingError,
    is_number,
    refuse_unknown,
    whole_number,
)
from deliralike.nn import start
from deliralike.nn.start import Shape
from deliralike.parallel.batches.scatter import partition


class Loader:
    """Batches of a source, epoch by epoch: the same in every process and on every backend.

    The contents of a batch follow from `seed`, the epoch and the batch's number alone, so a loader
    can begin at any position. Workers and prefetching change when a batch is made, not its
    contents, nor the order of the batches.

    ``for batch in loader`` goes over the next epoch each time, beginning with epoch 0. Worker
    processes take about a second to start, in every epoch; inside ``with loader:`` they are started
    once and end with the block.

    Args:
        source: A tuple or dict of arrays with the samples along their first axis; or a dataset with
            a length and an item for each index (so a list is a list of samples).
        batch_size: The number of samples in each batch but the last one.
        seed: The seed of the order of the samples and of the random numbers of transforms, which
            also depend on the epoch.
        shuffle: Whether the order is drawn anew for each epoch; it is if not given.
        sampler: A sampler that gives the order instead: `RepeatedSampler`, or any callable with the
            arguments ``(samples, seed, epoch)``.
        drop_last: Whether to leave out a last batch that is smaller than the others.
        transform: A function of one sample. If it has a second argument without a default, or one
            named ``generator`` or ``rng``, it gets a `numpy.random.Generator` keyed by seed, epoch
            and the sample's index.
        batch_transform: The same for a whole batch; its generator is keyed by the batch's number.
            One that mixes samples has an attribute ``whole_batch`` that is true, as `Mixup` has.
        prefetch: The number of batches to prepare while one is used; at least one for each worker.
        workers: The number of threads or processes that prepare them; without any, prefetching
            takes one.
        worker_kind: ``"thread"``, or ``"process"`` for transforms that hold Python's lock. Objects
            that are sent to a process must be picklable. Global random generators (NumPy's,
            Python's, PyTorch's) are keyed by the batch in a process; threads share them with the
            run, so a warning names those from which the data draw.
        timeout: The most seconds to wait for a batch of the workers, the start of processes aside.
            None waits without a limit, as only the user knows how long a sample may take; a second
            Ctrl-C ends the wait in any case.

    Shapes:
        A leaf ``(samples, ...)`` of arrays, or ``(...)`` of a sample, becomes ``(batch, ...)``.

    Raises:
        BatchError: The source has no samples, its arrays differ in length, or every batch would be
            dropped; while batches are made: samples that cannot be stacked.
        SettingError: An option has a value that makes no sense.
        ArgumentError: Samples cannot be read from the source, or a transform cannot be called.
        WorkerTimeout: While batches are made: none has come in time; the worker and its batch are
            named.

    Example:
        >>> tenfold = lambda sample: {"x": 10 * sample["x"]}
        >>> loader = Loader({"x": np.arange(5)}, 2, shuffle=False, transform=tenfold)
        >>> [batch["x"].tolist() for batch in loader]
        [[0, 10], [20, 30], [40]]
    """

    def __init__(
        self,
        source: Any,
        batch_size: int = 32,
        *,
        seed: int = 0,
        shuffle: bool | None = None,
        sampler: Sampler | None = None,
        drop_last: bool = False,
        transform: Callable[..., Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        prefetch: int = 0,
        workers: int = 0,
        worker_kind: str = "thread",
        timeout: float | None = None,
    ):
        whole_number("batch_size", batch_size, 1)
        whole_number("prefetch", prefetch, 0)
        whole_number("workers", workers, 0)
        start.key(seed, "data")
        message = f"worker_kind {worker_kind!r} is unknown"
        refuse_unknown(worker_kind, pool.KINDS, message, SettingError)
        if timeout is not None and not (is_number(timeout) and 0 < timeout < np.inf):
            raise SettingError(
                "timeout is a number of seconds above 0, or None for no limit, not "
                f"{timeout!r}"
            )
        if timeout is not None and not max(prefetch, workers):
            raise SettingError(
                f"timeout={timeout!r} limits the wait for workers, and there are none: give "
                "workers=1 or more"
            )
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.drop_last = drop_last
        self.sampler: Any = _sampler(shuffle, sampler)
        self._read = readable(source)
        self._pipeline = BatchPipeline(
            self._read,
            seed,
            None if transform is None else Call.of(transform),
            None
            if batch_transform is None
            else Call.of(batch_transform, "batch_transform"),
        )
        self._ahead = max(prefetch, workers)
        self._workers = max(workers, 1)
        self._kind = worker_kind
        self._timeout = timeout
        # The workers of the block that is open, which copies of this loader use too.
        self._running: list[pool.Pool] = []
        self._block = ExitStack()
        self._next_epoch = 0
        self._latest: tuple[int, np.ndarray] = (-1, np.empty(0))
        # The rank of this process among those that share each batch, and their number.
        self._rank = 0
        self._world_size = 1
        if len(self) == 0:
            raise BatchError(
                f"an epoch has {self.samples} samples, fewer than the {self.batch_size} of a "
                "batch, and drop_last=True leaves out the only one"
            )

    def shared(self, rank: int, count: int) -> "Loader":
        """Return a loader of the same batches that loads only the share of one process.

        No sample is lost or doubled: shares are contiguous and of any size. A process without a
        sample, as in a last batch that is smaller than their number, gets the batch's first sample,
        which it is not to count. A transform of batches sees the share alone, unless it has
        ``whole_batch``: then each process loads the whole batch, and keeps its share of what the
        transform makes of it. `share_sizes` returns the sizes of the shares.
        """
        return self._changed(_rank=rank, _world_size=count)

    @property
    def reads_all(self) -> bool:
        """Whether each epoch has all samples, each of them once, but for a last batch left out."""
        return isinstance(self.sampler, SequentialSampler | ShuffledSampler)

    def in_order(self) -> "Loader":
        """Return a loader of all samples in the order of the data, each of them once.

        Raises:
            SettingError: A sampler chooses other samples.
        """
        if not self.reads_all:
            raise SettingError(
                "the rows would not be in the order of the data: a "
                f"{type(self.sampler).__name__} chooses the samples. Give the dataset, or a Loader "
                "with shuffle=False"
            )
        return self._changed(
            sampler=SequentialSampler(), drop_last=False, _latest=(-1, np.empty(0))
        )

    def _changed(self, **attributes: Any) -> "Loader":
        loader = copy.copy(self)
        vars(loader).update(
            attributes, _block=ExitStack()
        )  # workers end with their own block
        return loader

    def check_epochs(self, epochs: int) -> None:
        """Raise an error if the source cannot be read so often; this one can."""

    def share_sizes(self, epoch: int, number: int) -> Shape:
        """Return the number of samples of a batch in the share of each process; it may be 0.

        The processes are those that the loader is `shared` among.
        """
        rest = len(self.order(epoch)) - number * self.batch_size
        samples = min(self.batch_size, rest)
        sizes = partition(samples, self._world_size)
        return sizes + (0,) * (self._world_size - len(sizes))

    @property
    def knows_sizes(self) -> bool:
        """Whether shares surely have the sizes that `share_sizes` says.

        A transform of batches may change the number of samples.
        """
        return self._pipeline.batch_transform is None

    def _share_of(self, epoch: int, number: int) -> slice:
        """Return the rows of a batch that this process loads."""
        if self._world_size == 1:
            return slice(None)
        sizes = self.share_sizes(epoch, number)
        own_size = sizes[self._rank]
        if own_size == 0:
            return slice(0, 1)
        begin = sum(sizes[: self._rank])
        return slice(begin, begin + own_size)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return batching.batch_count(self.samples, self.batch_size, self.drop_last)

    @property
    def samples(self) -> int:
        """The number of samples in an epoch; in epoch 0 where a sampler varies it."""
        if self.reads_all:
            return self._read.samples
        return len(self.order(0))

    def __repr__(self) -> str:
        return (
            f"Loader({self._read.samples} samples, batch_size={self.batch_size}, "
            f"seed={self.seed}, sampler={self.sampler!r}, drop_last={self.drop_last})"
        )

    def contents(self) -> dict[str, Any]:
        """Return the source and the transforms by name, which do not tell size or order."""
        return {
            "data": self.source,
            "transform": getattr(self._pipeline.transform, "function", None),
            "batch_transform": getattr(
                self._pipeline.batch_transform, "function", None
            ),
        }

    def order(self, epoch: int) -> np.ndarray:
        """Return the indices of an epoch's samples in their order; do not change the array."""
        if self._latest[0] != epoch:
            indices = drawn(
                self.sampler, self._read.samples, seed=self.seed, epoch=epoch
            )
            self._latest = (epoch, indices)
        return self._latest[1]

    def batches(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch from number `first` on.

        Batches before `first` are not loaded. The workers end with the iterator: at its end, when
        it is closed, or when it is collected.

        Raises:
            SettingError: `epoch` or `first` is below zero, or `first` lies past the end of the
                epoch.
        """
        whole_number("epoch", epoch, 0)
        whole_number("first", first, 0)
        indices = self.order(epoch)
        count = batching.batch_count(len(indices), self.batch_size, self.drop_last)
        if first > count:
            raise SettingError(
                f"first is {first}, and epoch {epoch} has {count} batches"
            )
        return self._prepared(self._jobs(epoch, range(first, count)))

    def __iter__(self) -> Iterator[Any]:
        """Return the batches of the next epoch."""
        self._next_epoch += 1
        return self.batches(self._next_epoch - 1)

    def __enter__(self) -> "Loader":
        """Start the workers, if there are any, and keep them for all epochs of the block."""
        if self._ahead and not self._running:
            self._running.append(self._block.enter_context(self._started()))
            self._block.callback(self._running.clear)
        return self

    def __exit__(self, *error: object) -> None:
        self._block.__exit__(*error)  # type: ignore[arg-type]

    def _jobs(self, epoch: int, numbers: range) -> Iterator[Job]:
        indices = self.order(epoch)
        before = np.zeros(len(indices), int)
        if self._pipeline.transform and not self.reads_all:
            before = repeats(indices)
        for number in numbers:
            begin = number * self.batch_size
            batch = slice(begin, begin + self.batch_size)
            own = self._share_of(epoch, number)
            if self._world_size > 1 and self._pipeline.mixes_samples:
                # Each process loads whole batches, and keeps its rows afterwards.
                yield Job(epoch, number, indices[batch], before[batch], rows=own)
            else:
                yield Job(epoch, number, indices[batch][own], before[batch][own])

    def _prepared(self, jobs: Iterator[Job]) -> Iterator[Any]:
        with ExitStack() as stack:
            if not self._ahead:
                yield from map(self._pipeline, jobs)
                return
            if self._running:
                workers = self._running[0]
            else:
                workers = stack.enter_context(self._started())
            batches = pool.ahead(jobs, workers, self._ahead)
            stack.enter_context(closing(batches))  # type: ignore[type-var]
            yield from watched(batches)

    def _started(self) -> pool.Pool:
        make: Callable[[Any], Any] = self._pipeline
        if self._kind == "process":
            make = KeyedGlobals(make, self.seed)
        return pool.Pool(self._kind, self._workers, make, self._timeout)


def _sampler(shuffle: bool | None, sampler: Sampler | None) -> Sampler:
    if sampler is None:
        is_shuffled = shuffle is None or shuffle
        return ShuffledSampler() if is_shuffled else SequentialSampler()
    if shuffle:
        raise SettingError("the sampler gives the order: leave shuffle out")
    if not callable(sampler):
        raise SettingError(
            f"sampler must be callable with (samples, seed, epoch), not {sampler!r}"
        )
    return sampler
