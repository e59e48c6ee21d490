"""The only place where a batch is split over devices: into which shares, and leaf by leaf."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import (
    BatchError,
    SettingError,
    StructureError,
    suggestion,
    whole_number,
)
from deliralike.nest.arrays import Arrays

WORDS = ("split", "copy", "keep")
# The root whose two items are the positional and the keyword arguments of a call.
ARGUMENTS = "arguments"


@dataclass(frozen=True)
class Shares:
    """The shares of a batch.

    Attributes:
        nests: One nest of the batch's structure for each device that takes part.
        sizes: The number of samples in each.
        counts: The number of samples in each leaf of the batch, in order; None for a leaf that goes
            to every device as it is.
    """

    nests: list[Any]
    sizes: tuple[int, ...]
    counts: Sequence[int | None] = ()


def scatter(
    batch: Any,
    devices: Sequence[Any],
    dim: int = 0,
    *,
    spec: Any = None,
    backend: Arrays | None = None,
) -> list[Any]:
    """Split a batch over devices: one nest of the same structure for each.

    Samples keep their order, no share is empty, and any two differ by at most one sample; a batch
    with fewer samples than devices makes fewer shares, and one without samples or without arrays
    makes one. Leaves that are not arrays (a name, a flag, ``None``) go to every device as they are,
    and so do arrays without axes. Pieces may be views of the batch, and keep its byte order and
    masks. NumPy arrays stay NumPy arrays on every backend but Chainer, which computes on them.

    Args:
        dim: The axis that counts samples; negative ones count from each array's last.
        spec: Exceptions to that rule: a nest of words built like the batch, in which one word may
            stand for a whole subtree. ``"split"``: an array is split along `dim`, a list or tuple
            without arrays is split as a sequence of samples. ``"copy"``: each device gets a copy of
            its own. ``"keep"``: each device gets the object as it is. None: the rule above.
        backend: The backend whose arrays are split, besides NumPy's, and moved to the devices.

    Shapes:
        An array leaf ``(batch, ...)`` becomes ``(share, ...)``; the shares add up to ``batch``.

    Raises:
        BatchError: Two leaves differ in size along `dim`, or one that is to be split cannot be.
        StructureError: The `spec` is not built like the batch.

    Example:
        >>> batch = {"x": np.zeros((7, 3)), "name": "train"}
        >>> [share["x"].shape for share in scatter(batch, ["cpu", "cpu"])]
        [(4, 3), (3, 3)]
        >>> scatter(["a", "b", "c"], ["cpu", "cpu"], spec="split")
        [['a', 'b'], ['c']]
    """
    return split_batch(batch, devices, dim, spec, backend).nests


def split_batch(
    batch: Any,
    devices: Sequence[Any],
    dim: int = 0,
    spec: Any = None,
    backend: Arrays | None = None,
    *,
    root: str = "batch",
) -> Shares:
    """Split a batch like `scatter`, and return the number of samples in each share too.

    Args:
        root: The name of the batch in errors; with `ARGUMENTS` the batch is a pair
            ``(args, kwargs)``.

    Raises:
        BatchError: Two leaves differ in size along `dim`, or one that is to be split cannot be.
        StructureError: The `spec` is not built like the batch.
    """
    splitter = _Splitter(_some(devices), whole("scatter: dim", dim), backend)
    words, leaves, structure = splitter.flatten(batch, spec, root)
    counts = _counts(splitter, words, leaves, structure, root)
    samples = next(filter(None, counts), 0)
    sizes = _share_sizes(samples, len(devices))
    if not leaves:
        return Shares([structure.unflatten(())], sizes)
    rows = zip(*splitter.split_all(words, leaves, counts, sizes), strict=True)
    return Shares([structure.unflatten(row) for row in rows], sizes, counts)


class LeafRefused(Exception):
    """The reason why a leaf cannot be split or joined, with the class of the public error."""

    def __init__(self, kind: type[Exception], reason: str) -> None:
        """Store both; `for_each_leaf` adds the path."""
        super().__init__(reason)
        self.kind = kind


def for_each_leaf(
    function: Callable[..., Any], arguments: Iterable[tuple], structure: Any, root: str
) -> list[Any]:
    """Return what a function returns for the arguments of each leaf of a structure.

    Raises:
        StructureError, ShapeError, BatchError: A leaf was refused; the message names its path.
    """
    results: list[Any] = []
    for of_leaf in arguments:
        try:
            results.append(function(*of_leaf))
        except LeafRefused as refused:
            path = nest.path_of(structure, len(results), root)
            raise refused.kind(readable(f"{path} {refused}", root)) from None
    return results


class _Splitter:
    """Splits or copies the leaves of a batch."""

    def __init__(self, devices: Sequence[Any], dim: int, backend: Any) -> None:
        """Take the devices, the axis, and the backend or None."""
        self.devices = tuple(devices)
        self.dim = dim
        self.backend = backend
        self.is_native = array_test(backend)

    def is_array(self, leaf: Any) -> bool:
        """Return whether a leaf is an array of the backend or of NumPy."""
        return self.is_native(leaf) or isinstance(leaf, np.ndarray)

    def flatten(self, batch: Any, spec: Any, root: str) -> tuple[list, list, Any]:
        """Return the word of the spec for each leaf, the leaves, and their structure."""
        if spec is not None:
            batch = mark_leaves(batch, spec, self.is_array, root)
        leaves, structure = nest.flatten(batch)
        return *unmarked(leaves), structure

    def count(self, word: str | None, leaf: Any) -> int | None:
        """Return the number of samples in a leaf, or None where it goes to every device.

        Args:
            word: The word of the spec for this leaf.

        Raises:
            LeafRefused: The leaf cannot be split.
        """
        if word in ("copy", "keep"):
            return None
        if word == "split" and type(leaf) in (list, tuple):
            return len(leaf)
        if self.is_array(leaf) and leaf.shape:
            return self._size(leaf.shape)
        if hasattr(leaf, "__dlpack__") and not self._is_known(leaf):
            owners = "NumPy's"
            if self.backend is not None:
                owners += f" or of backend {self.backend.name!r}"
            raise LeafRefused(
                BatchError,
                f"is {nest.described(leaf)}, which is no array of {owners}: convert it, or name "
                "its backend",
            )
        if word == "split":
            raise LeafRefused(
                BatchError,
                f"cannot be split, being {nest.described(leaf)}: say 'copy' or 'keep' of it in "
                "the spec",
            )
        return None

    def _is_known(self, leaf: Any) -> bool:
        return self.is_array(leaf) or isinstance(leaf, np.generic)

    def _size(self, shape: tuple[int, ...]) -> int:
        if not -len(shape) <= self.dim < len(shape):
            raise LeafRefused(
                BatchError,
                f"has shape {tuple(shape)}, so there is no dim {self.dim} to "
                "split it along: give another dim, or say 'copy' or 'keep' of it in the spec",
            )
        return shape[self.dim]

    def split_all(
        self,
        words: Sequence[str | None],
        leaves: Sequence[Any],
        counts: Sequence[int | None],
        sizes: tuple[int, ...],
    ) -> list[Sequence[Any]]:
        """Return the pieces of each leaf, one for each device."""
        slices = _slices(sizes)
        columns: list[Sequence[Any]] = []
        for word, leaf, count in zip(words, leaves, counts, strict=True):
            if count is None:
                columns.append(self._copies(word, leaf, self.devices[: len(sizes)]))
            elif self.is_native(leaf):
                split = self.backend.split(leaf, sizes, self.dim, self.devices)
                columns.append(split)
            elif isinstance(leaf, np.ndarray):
                axes = (slice(None),) * (self.dim % leaf.ndim)
                columns.append([leaf[(*axes, samples)] for samples in slices])
            else:  # a list or tuple of samples
                columns.append([leaf[samples] for samples in slices])
        return columns

    def _copies(
        self, word: str | None, leaf: Any, devices: Sequence[Any]
    ) -> Sequence[Any]:
        """Return a leaf that is not split, for each device."""
        if word == "copy":
            return [self._copy(leaf, device) for device in devices]
        if word != "keep" and self.is_native(leaf):
            return [self.backend.split(leaf, (1,), 0, (each,))[0] for each in devices]
        return (leaf,) * len(devices)

    def _copy(self, value: Any, device: Any) -> Any:
        if self.is_native(value):
            return self.backend.stack([value], device).reshape(value.shape)
        return copy.deepcopy(value)


@lru_cache
def _slices(sizes: tuple[int, ...]) -> list[slice]:
    """Return the samples of each share."""
    slices = []
    start = 0
    for size in sizes:
        slices.append(slice(start, start + size))
        start += size
    return slices


def _counts(
    splitter: _Splitter,
    words: Sequence[str | None],
    leaves: Sequence[Any],
    structure: Any,
    root: str,
) -> list[int | None]:
    """Return the number of samples in each leaf; None for one that is not split.

    Raises:
        BatchError: A leaf cannot be split, or two differ; the message names the paths.
    """
    pairs = zip(words, leaves, strict=True)
    counts = for_each_leaf(splitter.count, pairs, structure, root)
    paths: dict[int, str] = {}  # by size, of the first leaf that has it
    if len({*counts} - {None}) > 1:
        for index, count in enumerate(counts):
            if count is not None and count not in paths:
                paths[count] = nest.path_of(structure, index, root)
        (size, path), (other_size, other_path), *_ = paths.items()
        message = (
            f"the arrays of a batch must agree on their size along dim {splitter.dim}: "
            f"{path} has {size}, {other_path} has {other_size}."
        )
        raise BatchError(readable(message, root))
    return counts


def _some(devices: Sequence[Any]) -> Sequence[Any]:
    if isinstance(devices, str) or not len(devices):
        raise SettingError(f"devices={devices!r}: wanted a list of at least one device")
    return devices


# How many samples each share has
# ----------------------------------------------------------------------------------------------


def partition(size: int, parts: int) -> tuple[int, ...]:
    """Return the sizes of contiguous shares of `size` samples.

    Larger shares come first, and any two differ by at most one sample. No share is empty, so there
    are fewer than `parts` where there are fewer samples. No samples make one share.

    Raises:
        SettingError: The number of samples is negative or no whole number, or there are no parts.

    Example:
        >>> partition(7, 3), partition(2, 4), partition(0, 2)
        ((3, 2, 2), (1, 1), (0,))
    """
    size = whole_number("partition: size", size, 0)
    return _share_sizes(size, whole_number("partition: parts", parts, 1))


def _share_sizes(size: int, parts: int) -> tuple[int, ...]:
    count = max(1, min(parts, size))
    share, larger = divmod(size, count)
    return (share + 1,) * larger + (share,) * (count - larger)


def mean_by_samples(values: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return the mean of arrays of any framework, each weighted by the samples of its share.

    Without any sample all weights are equal.

    Example:
        >>> mean_by_samples([1.0, 4.0], sizes=[2, 1])
        2.0
    """
    samples = sum(sizes)
    terms = []
    for value, size in zip(values, sizes, strict=True):
        weight = size / samples if samples else 1 / len(sizes)
        terms.append(value * weight)
    return reduce(operator.add, terms)


def whole(name: str, value: int) -> int:
    """Return a whole number as Python's.

    Raises:
        SettingError: It is something else.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise SettingError(
            f"{name}={value!r} is a {type(value).__name__}, wanted a whole number"
        ) from None


# What a spec says of each leaf
# ----------------------------------------------------------------------------------------------


class Part:
    """A leaf with the word that a spec has for it.

    Under ``"split"`` the leaf may be a list or tuple of samples.
    """

    __slots__ = ("value", "word")

    def __init__(self, word: str | None, value: Any) -> None:
        """Store the word and the leaf."""
        self.word = word
        self.value = value


def mark_leaves(
    value: Any, spec: Any, is_array: Callable[[Any], bool], root: str
) -> Any:
    """Return a nest with a `Part` in the place of every leaf.

    Raises:
        SettingError: The spec has an unknown word.
        StructureError: The spec is not built like the nest.
    """
    for path, word in nest.leaves_with_paths(spec, root):
        if word is None or (isinstance(word, str) and word in WORDS):
            continue
        message = f"the spec says {word!r} of {path}. {suggestion(word, WORDS)}"
        raise SettingError(readable(message, root))
    difference = nest.first_difference(
        spec, value, root, ("in the spec", "here"), prefix=True
    )
    if difference:
        message = (
            f"{difference} A spec has the structure of the nest; one word may stand for a whole "
            "subtree."
        )
        raise StructureError(readable(message, root))
    return nest.graft(spec, value, partial(_mark_subtree, is_array))


def array_test(backend: Any) -> Callable[[Any], bool]:
    """Return the test whether a value is an array of a backend; without a backend none is."""
    return _never if backend is None else backend.is_array


def unmarked(leaves: list[Any]) -> tuple[list[str | None], list[Any]]:
    """Return the word for each leaf and the leaves, of a nest that may have been marked."""
    if not leaves or type(leaves[0]) is not Part:
        return [None] * len(leaves), leaves
    return [part.word for part in leaves], [part.value for part in leaves]


def readable(message: str, root: str) -> str:
    """Return a message in which the two parts of a call's arguments are ``args`` and ``kwargs``.

    Messages about any other root are returned as they are.
    """
    if root != ARGUMENTS:
        return message
    return message.replace(f"{root}[0]", "args").replace(f"{root}[1]", "kwargs")


def _mark_subtree(
    is_array: Callable[[Any], bool], word: str | None, subtree: Any
) -> Any:
    """Return the part of a nest for which a spec has one word, with a `Part` for every leaf."""
    mark = partial(Part, word)
    if word != "split":
        return nest.map(mark, subtree)

    def is_samples(value: Any) -> bool:
        """Return whether a value is a list or tuple of samples, rather than a container."""
        if type(value) not in (list, tuple):
            return False
        if not value:  # an empty list is one only where the word stands for it alone
            return type(value) is list and value is subtree
        return not any(is_array(leaf) for leaf in nest.leaves(value))

    return nest.map(mark, subtree, is_leaf=is_samples)


def _never(_: Any) -> bool:
    return False
