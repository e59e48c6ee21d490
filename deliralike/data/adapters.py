"""Transforms of other libraries as transforms of a `Loader`, their random numbers keyed like everything else.

The libraries themselves are not imported here: their users bring ready callables.
"""

import copy
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data.entries import Entry, entry, with_entries
from deliralike.errors import ArgumentError, BatchError

_LOCK = threading.RLock()


@contextmanager
def seeded_globals(generator: np.random.Generator) -> Iterator[None]:
    """Seed NumPy's and Python's global random states inside the block, and put both back after it.

    One thread at a time is inside; code outside of such blocks must not draw from the global states meanwhile.

    Example:
        >>> with seeded_globals(np.random.default_rng(0)):
        ...     first = np.random.rand()
        >>> with seeded_globals(np.random.default_rng(0)):
        ...     first == np.random.rand()
        True
    """
    with _LOCK:
        numpy_state, python_state = np.random.get_state(), random.getstate()
        np.random.seed(generator.integers(2**32, size=8, dtype=np.uint32))
        random.seed(int(generator.integers(2**63)))
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


class albumentations:  # noqa: N801 - used like a function
    """A transform of albumentations (or of that style) as a `transform` of samples.

    Pictures go in channels last and come back channels first; masks keep their type. Volumes ``(C, D, H, W)`` go
    in as albumentations' ``volume`` and ``mask3d``. Every thread has a copy of the transform, seeded for each sample.

    Args:
        transform: Called with ``image=`` and ``mask=``, gives a dict with the same keys. It has albumentations'
            ``set_random_state``; without, it may draw from NumPy's and Python's global random states.
        image: Where the picture is in a sample: a position, a key, or a field's name.
        mask: Where its mask is, if the sample has one.

    Shapes:
        Pictures ``(C, H, W)`` or ``(H, W)``, masks ``(H, W)`` or ``(C, H, W)``; ``H`` and ``W`` may change.

    Raises:
        ArgumentError: The sample has no such entry, or an array of other dimensions.
        BatchError: The transform gives something else than arrays, such as the tensors of ``ToTensorV2``.

    Example:
        >>> flip = lambda image, mask: {"image": image[:, ::-1], "mask": mask[:, ::-1]}
        >>> augment = albumentations(flip, image="x", mask="y")
        >>> sample = {"x": np.zeros((3, 7, 5)), "y": np.arange(35).reshape(7, 5)}
        >>> augment(sample, np.random.default_rng(0))["y"][0].tolist()
        [4, 3, 2, 1, 0]
    """

    def __init__(self, transform: Callable[..., Any], *, image: Entry = 0, mask: Entry | None = None):
        self._transform, self._image, self._mask = _callable(transform), image, mask
        self._of_thread = threading.local()

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """The transformed sample."""
        if isinstance(sample, np.ndarray):
            return self._applied(sample, None, generator)[0]
        picture = np.asarray(entry(sample, self._image))
        if self._mask is None:
            return with_entries(sample, {self._image: self._applied(picture, None, generator)[0]})
        mask = np.asarray(entry(sample, self._mask))
        new_picture, new_mask = self._applied(picture, mask, generator)
        return with_entries(sample, {self._image: new_picture, self._mask: new_mask})

    def __reduce__(self) -> Any:
        return _albumentations, (self._transform, self._image, self._mask)

    def _applied(self, picture: np.ndarray, mask: np.ndarray | None, generator: np.random.Generator) -> Any:
        names = _names(picture)
        given = {names[0]: _channels_last(picture)}
        if mask is not None:
            given[names[1]] = _channels_last(mask) if mask.ndim == picture.ndim > 2 else mask
        found = self._seeded(generator, given)
        new = _channels_first(_array(found, names[0]), given[names[0]] is not picture)
        if mask is None:
            return new, None
        new_mask = _channels_first(_array(found, names[1]), given[names[1]] is not mask)
        return new, new_mask.astype(mask.dtype, copy=False)

    def _seeded(self, generator: np.random.Generator, given: dict[str, np.ndarray]) -> dict[str, Any]:
        own = self._own()
        if hasattr(own, "set_random_state"):  # set_random_seed (2.0.8) makes all transforms of a Compose draw the same
            own.set_random_state(generator, random.Random(int(generator.integers(2**63))))
            return own(**given)
        with seeded_globals(generator):
            return own(**given)

    def _own(self) -> Any:
        if not hasattr(self._of_thread, "transform"):
            self._of_thread.transform = copy.deepcopy(self._transform)
        return self._of_thread.transform


class batchgenerators:  # noqa: N801 - used like a function
    """A transform of batchgenerators (or of that style) as a `batch_transform`.

    Such transforms draw from the global random states of NumPy and Python, so these are seeded for each batch, and
    put back afterwards. Threads therefore take turns; processes do not have to.

    Args:
        transform: Called with ``data=`` and ``seg=``, gives a dict with the same keys.
        data: Where the pictures are in a batch: a position, a key, or a field's name.
        seg: Where their masks are, if the batch has some.

    Shapes:
        Pictures ``(B, C, X, Y[, Z])``, masks ``(B, X, Y[, Z])`` or ``(B, C, X, Y[, Z])``; X, Y, Z may change.

    Raises:
        ArgumentError: The batch has no such entry.
        BatchError: The transform gives something else than arrays.

    Example:
        >>> mirror = lambda data, seg: {"data": data[..., ::-1], "seg": seg[..., ::-1]}
        >>> augment = batchgenerators(mirror, data="x", seg="y")
        >>> batch = {"x": np.zeros((1, 1, 2, 3)), "y": np.arange(6).reshape(1, 2, 3)}
        >>> augment(batch, np.random.default_rng(0))["y"][0].tolist()
        [[2, 1, 0], [5, 4, 3]]
    """

    def __init__(self, transform: Callable[..., Any], *, data: Entry = 0, seg: Entry | None = None):
        self._transform, self._data, self._seg = _callable(transform), data, seg

    def __call__(self, batch: Any, generator: np.random.Generator) -> Any:
        """The transformed batch."""
        whole = isinstance(batch, np.ndarray)
        pictures = np.asarray(batch if whole else entry(batch, self._data))
        given = {"data": pictures.copy()}  # such transforms may write into what they get
        masks = None if whole or self._seg is None else np.asarray(entry(batch, self._seg))
        if masks is not None:
            given["seg"] = masks.copy() if masks.ndim == pictures.ndim else masks[:, np.newaxis].copy()
        with seeded_globals(generator):
            found = self._transform(**given)
        new = {self._data: _array(found, "data")}
        if masks is not None and self._seg is not None:
            seg = _array(found, "seg").astype(masks.dtype)
            new[self._seg] = seg if masks.ndim == pictures.ndim else seg[:, 0]
        return new[self._data] if whole else with_entries(batch, new)


def _albumentations(transform: Any, image: Entry, mask: Entry | None) -> albumentations:
    return albumentations(transform, image=image, mask=mask)


def _callable(transform: Any) -> Any:
    if not callable(transform):
        raise ArgumentError(f"transform must be a function, not {nest.described(transform)}")
    return transform


def _names(picture: np.ndarray) -> tuple[str, str]:
    if picture.ndim not in (2, 3, 4):
        raise ArgumentError(f"a picture is (C, H, W) or (H, W), a volume (C, D, H, W); this one is {picture.shape}")
    return ("volume", "mask3d") if picture.ndim == 4 else ("image", "mask")


def _channels_last(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, 0, -1)) if array.ndim > 2 else array


def _channels_first(array: np.ndarray, moved: bool) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, -1, 0)) if moved else array


def _array(found: Any, key: str) -> np.ndarray:
    value = found.get(key) if isinstance(found, dict) else None
    if not isinstance(value, np.ndarray):
        raise BatchError(
            f"a transform must give a dict with a NumPy array as {key!r}, and gave {_given(found, key)}; leave out "
            f"steps such as ToTensorV2: arrays become tensors later"
        )
    return value


def _given(found: Any, key: str) -> str:
    return nest.described(found[key] if isinstance(found, dict) and key in found else found)
