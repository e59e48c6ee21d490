"""Transforms of other libraries as transforms of a `Loader`, with keyed random numbers.

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
from deliralike.data.field_access import Entry, entry, with_entries
from deliralike.data.keyed_rng import GLOBALS
from deliralike.errors import ArgumentError, BatchError


@contextmanager
def seeded_globals(generator: np.random.Generator) -> Iterator[None]:
    """Seed NumPy's and Python's global random states inside the block, and put both back after it.

    One thread at a time is inside; code outside of such blocks must not draw from the global states
    meanwhile.

    Example:
        >>> with seeded_globals(np.random.default_rng(0)):
        ...     first = np.random.rand()
        >>> with seeded_globals(np.random.default_rng(0)):
        ...     first == np.random.rand()
        True
    """
    with GLOBALS:
        numpy_state = np.random.get_state()
        python_state = random.getstate()
        np.random.seed(generator.integers(2**32, size=8, dtype=np.uint32))
        random.seed(int(generator.integers(2**63)))
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)


class albumentations:  # noqa: N801
    """A transform of albumentations (or of that style) as a `transform` of samples.

    Pictures go in channels last and come back channels first; masks keep their type. Volumes
    ``(C, D, H, W)`` go in as albumentations' ``volume`` and ``mask3d``. Every thread has a copy of
    the transform, seeded for each sample.

    Args:
        transform: A function of ``image=`` and ``mask=`` that returns a dict with the same keys. It
            has albumentations' ``set_random_state``; without it, it may draw from NumPy's and
            Python's global random states.
        image: The place of the picture in a sample: a position, a key, or a field's name.
        mask: The place of its mask, if the sample has one; whole numbers on the picture's grid want
            it.

    Shapes:
        Pictures ``(C, H, W)`` or ``(H, W)``, masks ``(H, W)`` or ``(C, H, W)``; ``H`` and ``W`` may
        change.

    Raises:
        ArgumentError: The sample has no such entry, an array of other dimensions, or a mask that is
            not named.
        BatchError: The transform returns something else than arrays, such as the tensors of
            ``ToTensorV2``.

    Example:
        >>> flip = lambda image, mask: {"image": image[:, ::-1], "mask": mask[:, ::-1]}
        >>> augment = albumentations(flip, image="x", mask="y")
        >>> sample = {"x": np.zeros((3, 7, 5)), "y": np.arange(35).reshape(7, 5)}
        >>> augment(sample, np.random.default_rng(0))["y"][0].tolist()
        [4, 3, 2, 1, 0]
    """

    def __init__(
        self,
        transform: Callable[..., Any],
        *,
        image: Entry = 0,
        mask: Entry | None = None,
    ):
        self._transform = _checked_callable(transform)
        self._image = image
        self._mask = mask
        self._of_thread = threading.local()

    def __call__(self, sample: Any, generator: np.random.Generator) -> Any:
        """Return the transformed sample."""
        if isinstance(sample, np.ndarray):
            return self._applied(sample, None, generator)[0]
        picture = np.asarray(entry(sample, self._image))
        if self._mask is None:
            _refuse_masks(sample, picture, "mask", picture.shape[picture.ndim > 2 :])
            new_picture, _ = self._applied(picture, None, generator)
            return with_entries(sample, {self._image: new_picture})
        mask = np.asarray(entry(sample, self._mask))
        new_picture, new_mask = self._applied(picture, mask, generator)
        return with_entries(sample, {self._image: new_picture, self._mask: new_mask})

    def __reduce__(self) -> Any:
        return _albumentations, (self._transform, self._image, self._mask)

    def _applied(
        self,
        picture: np.ndarray,
        mask: np.ndarray | None,
        generator: np.random.Generator,
    ) -> Any:
        image_name, mask_name = _argument_names(picture)
        arguments = {image_name: _channels_last(picture)}
        if mask is None:
            output = self._call_seeded(generator, arguments)
            return _restored(output, image_name, picture), None
        # A mask has channels only if it has as many axes as a picture with channels.
        mask_has_channels = mask.ndim == picture.ndim > 2
        arguments[mask_name] = _channels_last(mask) if mask_has_channels else mask
        output = self._call_seeded(generator, arguments)
        new_picture = _restored(output, image_name, picture)
        new_mask = _array(output, mask_name)
        if mask_has_channels:
            new_mask = _channels_first(new_mask)
        return new_picture, new_mask.astype(mask.dtype, copy=False)

    def _call_seeded(
        self, generator: np.random.Generator, arguments: dict[str, np.ndarray]
    ) -> dict[str, Any]:
        transform = self._transform_of_thread()
        # set_random_seed (2.0.8) makes all transforms of a Compose draw the same numbers.
        if hasattr(transform, "set_random_state"):
            python_state = random.Random(int(generator.integers(2**63)))
            transform.set_random_state(generator, python_state)
            return transform(**arguments)
        with seeded_globals(generator):
            return transform(**arguments)

    def _transform_of_thread(self) -> Any:
        if not hasattr(self._of_thread, "transform"):
            self._of_thread.transform = copy.deepcopy(self._transform)
        return self._of_thread.transform


class batchgenerators:  # noqa: N801
    """A transform of batchgenerators (or of that style) as a `batch_transform`.

    Such transforms draw from the global random states of NumPy and Python, so these are seeded for
    each batch, and put back afterwards. Threads therefore take turns; processes do not have to.

    Args:
        transform: A function of ``data=`` and ``seg=`` that returns a dict with the same keys.
        data: The place of the pictures in a batch: a position, a key, or a field's name.
        seg: The place of their masks, if the batch has some.

    Shapes:
        Pictures ``(B, C, X, Y[, Z])``, masks ``(B, X, Y[, Z])`` or ``(B, C, X, Y[, Z])``; X, Y, Z
        may change.

    Raises:
        ArgumentError: The batch has no such entry, or a mask that is not named.
        BatchError: The transform gives something else than arrays.

    Example:
        >>> mirror = lambda data, seg: {"data": data[..., ::-1], "seg": seg[..., ::-1]}
        >>> augment = batchgenerators(mirror, data="x", seg="y")
        >>> batch = {"x": np.zeros((1, 1, 2, 3)), "y": np.arange(6).reshape(1, 2, 3)}
        >>> augment(batch, np.random.default_rng(0))["y"][0].tolist()
        [[2, 1, 0], [5, 4, 3]]
    """

    def __init__(
        self,
        transform: Callable[..., Any],
        *,
        data: Entry = 0,
        seg: Entry | None = None,
    ):
        self._transform = _checked_callable(transform)
        self._data = data
        self._seg = seg

    def __call__(self, batch: Any, generator: np.random.Generator) -> Any:
        """Return the transformed batch."""
        if isinstance(batch, np.ndarray):
            return _array(self._call_seeded(generator, batch, None), "data")
        pictures = np.asarray(entry(batch, self._data))
        if self._seg is None:
            _refuse_masks(batch, pictures, "seg", pictures.shape[2:])
            output = self._call_seeded(generator, pictures, None)
            return with_entries(batch, {self._data: _array(output, "data")})
        masks = np.asarray(entry(batch, self._seg))
        has_channels = masks.ndim == pictures.ndim
        masks_with_channels = masks if has_channels else masks[:, np.newaxis]
        output = self._call_seeded(generator, pictures, masks_with_channels)
        new_pictures = _array(output, "data")
        new_masks = _array(output, "seg").astype(masks.dtype)
        if not has_channels:
            new_masks = new_masks[:, 0]
        return with_entries(batch, {self._data: new_pictures, self._seg: new_masks})

    def _call_seeded(
        self,
        generator: np.random.Generator,
        pictures: np.ndarray,
        masks: np.ndarray | None,
    ) -> Any:
        # Such transforms may write into their arguments, hence the copies.
        arguments = {"data": pictures.copy()}
        if masks is not None:
            arguments["seg"] = masks.copy()
        with seeded_globals(generator):
            return self._transform(**arguments)


def _albumentations(transform: Any, image: Entry, mask: Entry | None) -> albumentations:
    return albumentations(transform, image=image, mask=mask)


def _checked_callable(transform: Any) -> Any:
    if not callable(transform):
        raise ArgumentError(
            f"transform must be a function, not {nest.described(transform)}"
        )
    return transform


def _refuse_masks(
    sample: Any, picture: np.ndarray, option: str, size: tuple[int, ...]
) -> None:
    """Raise an error if whole numbers on the picture's grid would stay behind."""
    for path, leaf in nest.leaves_with_paths(sample, "sample"):
        is_mask = (
            isinstance(leaf, np.ndarray)
            and leaf.dtype.kind in "iub"
            and leaf is not picture
        )
        if is_mask and leaf.shape[-len(size) :] == size:
            raise ArgumentError(
                f"{path} of shape {leaf.shape} lies on the grid of the picture and would not move "
                f"with it: name its place, {option}=... (transforms of values alone leave it)"
            )


def _argument_names(picture: np.ndarray) -> tuple[str, str]:
    """Return the names under which albumentations takes a picture or volume and its mask."""
    if picture.ndim not in (2, 3, 4):
        raise ArgumentError(
            f"a picture is (C, H, W) or (H, W), a volume (C, D, H, W); this one is {picture.shape}"
        )
    if picture.ndim == 4:
        return "volume", "mask3d"
    return "image", "mask"


def _channels_last(array: np.ndarray) -> np.ndarray:
    if array.ndim <= 2:
        return array
    return np.ascontiguousarray(np.moveaxis(array, 0, -1))


def _channels_first(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(array, -1, 0))


def _restored(output: Any, name: str, picture: np.ndarray) -> np.ndarray:
    """Return the new picture with its channels where those of the old one were."""
    new = _array(output, name)
    if picture.ndim <= 2:
        return new
    return _channels_first(new)


def _array(output: Any, key: str) -> np.ndarray:
    """Return the array that a transform gave under a key, or raise an error."""
    result = output
    if isinstance(output, dict) and key in output:
        result = output[key]
        if isinstance(result, np.ndarray):
            return result
    raise BatchError(
        f"a transform must give a dict with a NumPy array as {key!r}, and gave "
        f"{nest.described(result)}; leave out steps such as ToTensorV2: arrays become tensors "
        "later"
    )
