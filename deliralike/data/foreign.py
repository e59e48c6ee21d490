"""Loaders and datasets of other libraries, and plain iterables, as loaders.

They are told apart by what they have: nothing here imports a framework.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data.keyed_rng import has_required_argument, random_words
from deliralike.data.loader import Loader
from deliralike.data.source import is_indexable
from deliralike.errors import ArgumentError, BatchError, SettingError
from deliralike.terminal import warn


def loader_of(source: Any, **options: Any) -> Loader:
    """Return a loader of whatever holds samples or gives batches.

    Datasets with a length and an item for each index are read by a `Loader` with these options.
    `Batches` are made of what has batches of its own: a ``DataLoader`` of PyTorch, a
    ``tf.data.Dataset``, a loader or an ``IterDataset`` of grain, and any other iterable. A `Loader`
    is returned as it is.

    Args:
        options: The options of the `Loader`.

    Raises:
        ArgumentError: Nothing can be read from the source, or it gives single samples.

    Example:
        >>> batches = [(np.zeros((2, 3)), np.array([0, 1]))]
        >>> next(loader_of(iter(batches)).batches())[1].tolist()
        [0, 1]
    """
    if isinstance(source, Loader):
        return source
    if _is_read_by_loader(source):
        return Loader(_with_arrays(source), **options)
    if _gives_samples(source):
        raise ArgumentError(
            f"{_class_name(source)} gives single samples, wanted batches: a DataLoader of PyTorch, "
            "or of Hugging Face's data sets.with_format('numpy').iter(batch_size=32) in "
            "data.Batches(function)"
        )
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return Batches(source, options.get("seed", 0))
    return Loader(source, **options)  # which raises the error


class Batches(Loader):
    """The batches of a source with an order of its own, as NumPy arrays.

    Every epoch is one pass over the source, and a position in it is reached by reading on. The
    order is the source's; that of PyTorch's samplers is drawn by `seed` (or by the seed of the
    generator that the source was given) and the epoch, so it is the same in every run, and in a
    resumed one. A source with ``set_epoch`` is told the epoch.

    Lists become tuples, and objects with ``to_dict`` (such as graphs of PyTorch Geometric) dicts.

    Args:
        source: An iterable of batches; or a function that returns one, ``source()`` or
            ``source(epoch)``.
        seed: The seed of an order that can be keyed.

    Raises:
        ArgumentError: The source is none of these.
        BatchError: While batches are made: an epoch has no batch.

    Example:
        >>> def pairs(epoch):
        ...     yield np.full((2, 3), epoch), np.array([0, 1])
        >>> [inputs[0].tolist() for inputs, labels in Batches(pairs).batches(epoch=4)]
        [[4, 4, 4]]
    """

    def __init__(self, source: Any, seed: int = 0):
        if not callable(source) and not isinstance(source, Iterable):
            raise ArgumentError(
                "Batches come from an iterable, or from a function that returns one, not from "
                f"{nest.described(source)}"
            )
        self.source = source
        self.seed = seed
        size = getattr(source, "batch_size", None)
        self.batch_size = size if isinstance(size, int) and size > 0 else 1
        self.drop_last = bool(getattr(source, "drop_last", False))
        self.sampler = _class_name(getattr(source, "sampler", None))
        self._next_epoch = 0
        self._expected: tuple[int, int, int] | None = None
        self._passes = 0
        self._ahead = 0  # there are no workers
        self._block = ExitStack()

    def __repr__(self) -> str:
        return f"Batches({_class_name(self.source)}, seed={self.seed})"

    def order(self, epoch: int) -> np.ndarray:
        """Raise an error: the indices are not known.

        Raises:
            ArgumentError: Always.
        """
        raise ArgumentError("data with batches of their own have an order of their own")

    def check_epochs(self, epochs: int) -> None:
        """Raise an error if the source cannot begin anew as often as that.

        Raises:
            SettingError: The source is an iterator.
        """
        if epochs > 1 and isinstance(self.source, Iterator):
            raise SettingError(
                f"epochs={epochs}: {_class_name(self.source)} can be read once. Give an object "
                "whose __iter__ begins anew, or data.Batches(function), whose function returns an "
                "iterator for each epoch"
            )

    def in_order(self) -> Loader:
        """Return this loader, if its order is that of the data as far as anyone can tell.

        Raises:
            SettingError: A sampler of PyTorch's ``DataLoader`` chooses the samples.
        """
        for each in _samplers(self.source):
            if _class_name(each) not in _IN_ORDER:
                raise SettingError(
                    f"the rows would not be in the order of the data: a {_class_name(each)} "
                    "chooses the samples. Give the dataset, or a DataLoader with shuffle=False"
                )
        return self

    def __len__(self) -> int:
        """The number of batches in an epoch.

        Raises:
            ArgumentError: The source has no length.
        """
        try:
            return len(self.source)
        except TypeError as error:
            raise ArgumentError(
                f"the number of batches is unknown: {_class_name(self.source)} has no length"
            ) from error

    def contents(self) -> dict[str, Any]:
        """Return the source's dataset, if it has one, or else the name of its class."""
        dataset = getattr(self.source, "dataset", _class_name(self.source))
        return {"data": dataset, "transform": None, "batch_transform": None}

    def shared(self, rank: int, count: int) -> Loader:
        """Return this loader, for a single process.

        Raises:
            SettingError: There are several processes.
        """
        if count > 1:
            raise SettingError(
                f"the batches of {_class_name(self.source)} cannot be shared out over processes: "
                "give the dataset, with a length and an item for each index, or a data.Loader of it"
            )
        return self

    def batches(self, epoch: int = 0, first: int = 0) -> Iterator[Any]:
        """Return the batches of an epoch from number `first` on; those before are read.

        Raises:
            SettingError: The epoch has ended before number `first`, or the source is an iterator
                and has been read before.
            BatchError: The epoch has no batch.
        """
        self._passes += 1
        self.check_epochs(self._passes)
        name = _class_name(self.source)
        count = 0
        for batch in _pass(self.source, self.seed, epoch):
            count += 1
            if count <= first:
                self._compare(epoch, count, batch)
                continue
            arrays = _on_host(batch)
            if count == 1:
                _refuse_sample(arrays, name)
            yield arrays
        if count < first:
            raise SettingError(
                f"first is {first}, and {name} ended after {count} batches in epoch {epoch}"
            )
        if not count:
            raise BatchError(f"{name} had no batch in epoch {epoch}")

    def expect(self, epoch: int, count: int, mark: int) -> None:
        """Warn, when batch number ``count - 1`` of the epoch is passed over, if it is another one.

        Args:
            mark: The checksum of the batch when it was used; see `checksum`.
        """
        self._expected = (epoch, count, mark)

    def _compare(self, epoch: int, count: int, batch: Any) -> None:
        if self._expected is None or self._expected[:2] != (epoch, count):
            return
        if checksum(_on_host(batch)) != self._expected[2]:
            warn(
                f"batch {count - 1} of epoch {epoch} is not the one that the run saw before it was "
                f"interrupted: {_class_name(self.source)} does not repeat its order or its "
                "transforms, so the run goes on with other batches than it would have had. Seed "
                "it for each epoch, or give a data.Loader of its dataset",
            )
        self._expected = None


def checksum(batch: Any) -> int:
    """Return a checksum of the arrays of a batch."""
    value = 0
    for leaf in nest.leaves(batch):
        if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
            value = zlib.crc32(np.ascontiguousarray(leaf).data.cast("B"), value)
    return value


_IN_ORDER = (
    "",
    "torch.SequentialSampler",
    "torch.BatchSampler",
    "torch._InfiniteConstantSampler",  # that of an iterable dataset
)


# What a source is ---------------------------------------------------------------------------------


def _is_read_by_loader(source: Any) -> bool:
    """Return whether a `Loader` reads it: arrays, or a dataset with length and items."""
    if isinstance(source, tuple | Mapping | np.ndarray):
        return True
    if hasattr(source, "to_iter_dataset") and "Batch" in type(source).__name__:
        return False  # a ``MapDataset`` of grain whose items are batches
    return is_indexable(source) or (
        is_dataclass(source) and not hasattr(source, "__iter__")
    )


def _gives_samples(source: Any) -> bool:
    """Return whether it is a stream of single samples: an iterable dataset, which is no loader.

    PyTorch's has the methods of its datasets with items but no length, Hugging Face's makes batches
    by ``iter(batch_size)``.
    """
    is_iterable = isinstance(source, Iterable) and not isinstance(source, Iterator)
    has_items = hasattr(source, "__getitem__") and not hasattr(source, "__len__")
    makes_batches = callable(getattr(source, "iter", None))
    return (
        is_iterable
        and (has_items or makes_batches)
        and not hasattr(source, "batch_size")
    )


def _with_arrays(source: Any) -> Any:
    """Return a dataset of Hugging Face with arrays instead of lists and pictures of Pillow."""
    if not hasattr(source, "with_format") or not hasattr(source, "features"):
        return source
    chosen = getattr(source, "format", None)
    if isinstance(chosen, Mapping) and chosen.get("type") is not None:
        return source
    return source.with_format("numpy")


def _refuse_sample(batch: Any, name: str) -> None:
    """Raise an error for the first element of a source if its target has no axis of samples."""
    is_pair = isinstance(batch, tuple) and len(batch) >= 2
    target = batch[-1] if is_pair else None
    if isinstance(target, int | float | np.ndarray) and np.ndim(target) == 0:
        raise BatchError(
            f"{name} gives single samples, wanted batches: dataset.batch(32), or a list of the "
            "samples"
        )


def _class_name(source: Any) -> str:
    if source is None:
        return ""
    if hasattr(source, "__qualname__"):
        return source.__qualname__
    return f"{type(source).__module__.partition('.')[0]}.{type(source).__name__}"


def _samplers(source: Any) -> tuple[Any, Any, Any]:
    """Return the samplers of a ``DataLoader`` of PyTorch; None where there is none."""
    batch_sampler = getattr(source, "batch_sampler", None)
    inner = getattr(batch_sampler, "sampler", None)
    return getattr(source, "sampler", None), inner, batch_sampler


# A pass over a source -----------------------------------------------------------------------------


def _pass(source: Any, seed: int, epoch: int) -> Iterator[Any]:
    """Yield what a source gives in an epoch, in an order that the epoch decides where it can."""
    if callable(source) and not isinstance(source, Iterable):
        iterable = source(epoch) if has_required_argument(source) else source()
    elif callable(getattr(source, "as_numpy_iterator", None)):
        iterable = source.as_numpy_iterator()
    else:
        iterable = source
    for each in (source, *_samplers(source)):
        if callable(getattr(each, "set_epoch", None)):
            each.set_epoch(epoch)
    if not isinstance(iterable, Iterable):
        raise ArgumentError(
            f"the function of Batches returned {nest.described(iterable)}, wanted an iterable"
        )
    with _keyed_generators(source, seed, epoch):
        yield from iterable


@contextmanager
def _keyed_generators(source: Any, seed: int, epoch: int) -> Iterator[None]:
    """Give a ``DataLoader`` of PyTorch and its sampler a generator of their own for an epoch."""
    torch = sys.modules.get("torch")
    owners = []
    for each in (source, *_samplers(source)):
        generator = getattr(each, "__dict__", {}).get("generator", "none")
        if generator is None or isinstance(generator, getattr(torch, "Generator", ())):
            owners.append(each)
    if torch is None or not owners:
        yield
        return
    before = [each.generator for each in owners]
    seeds = [each.initial_seed() for each in before if each is not None]
    key = random_words(seeds[0] % 2**63 if seeds else seed, "data/order", epoch, 1)[0]
    try:
        for each in owners:
            each.generator = torch.Generator().manual_seed(int(key) % 2**63)
        yield
    finally:
        for each, generator in zip(owners, before, strict=True):
            each.generator = generator


def _on_host(batch: Any) -> Any:
    """Return a batch of tuples and dicts with NumPy arrays: lists become tuples, objects dicts.

    An array that NumPy cannot read, such as one on a GPU, is left to the backend.
    """
    if isinstance(batch, np.ndarray):
        return batch
    if isinstance(batch, Mapping):
        return {key: _on_host(value) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_on_host, batch))
    if isinstance(batch, tuple | list):
        return tuple(map(_on_host, batch))
    if hasattr(batch, "__array__"):
        with suppress(TypeError, ValueError, RuntimeError):
            return np.asarray(batch)
    elif callable(getattr(batch, "to_dict", None)):
        return _on_host(batch.to_dict())
    return batch
