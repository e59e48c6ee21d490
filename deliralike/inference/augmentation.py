"""Test-time augmentation: the mean and the spread of outputs for several views of an input."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from deliralike import nest
from deliralike.data.transforms import check_axes
from deliralike.errors import BatchError, SettingError
from deliralike.inference.predictor import pictures, predictor_of

Arrays = Callable[[np.ndarray], np.ndarray]


class View(NamedTuple):
    """A transform of a batch of pictures, and the inverse for outputs.

    Shapes:
        Both take arrays ``(samples, channels, *size)``.
    """

    transform: Arrays
    inverse: Arrays


class Augmented(NamedTuple):
    """Outputs over several views: their mean and their standard deviation, as nests of arrays."""

    mean: Any
    std: Any


def augmented_inference(
    inputs: Any,
    predictor: Any,
    views: Iterable[View],
    *,
    inferer: Callable[[Any, Any], Any] | None = None,
) -> Augmented:
    """Return the mean and the spread of a network's outputs for several views of its inputs.

    Args:
        inputs: A NumPy array or one of the framework's; or a tuple, for a network of several.
        predictor: A network of any backend, written once or native, or a function of NumPy arrays.
        views: Pairs of a transform of inputs and the inverse for outputs: `flips`, or your own.
        inferer: What computes the outputs from inputs and network, such as a
            `SlidingWindowInferer`.

    Shapes:
        Inputs ``(samples, channels, *size)``. Outputs with as many axes, of any resolution, and
        those of ``(samples, *size)`` with two axes of size or more are turned back; others, such as
        the scores of a classifier, have no place and stay as they are.

    Returns:
        NumPy arrays in the nest that the network returns. The spread is the standard deviation over
        the views (of all of them, ``ddof=0``).

    Raises:
        BatchError: An input is no picture, or the outputs of two views differ in shape.
        SettingError: There is no view.

    Example:
        >>> picture = np.arange(6.0).reshape(1, 1, 2, 3)
        >>> found = augmented_inference(picture, lambda x: x[:, :, :, ::-1], flips((-1,)))
        >>> found.mean.tolist(), float(found.std.max())
        ([[[[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]]], 0.0)
    """
    arrays = pictures(inputs, predictor)
    if inferer is None:
        compute = predictor_of(predictor)
    else:
        compute = lambda *inputs: inferer(inputs, predictor)  # noqa: E731
    spread = Spread()
    for view in views:
        turned = [np.ascontiguousarray(view.transform(array)) for array in arrays]
        outputs = compute(*turned)
        spread.add(nest.map(partial(_turned_back, view, turned[0].shape), outputs))
    return spread.result()


def flips(axes: Sequence[int]) -> list[View]:
    """Return the views that mirror each choice of axes; the first is the picture as it is.

    Args:
        axes: Axes counted from the end: -1 is left and right.

    Example:
        >>> len(flips((-1, -2, -3)))
        8
    """
    check_axes(axes)
    views = []
    for count in range(len(axes) + 1):
        for chosen in itertools.combinations(axes, count):
            views.append(_flip(chosen))
    return views


class Spread:
    """The mean and the squared deviations of nests of arrays, one after the other (Welford)."""

    def __init__(self) -> None:
        self._count = 0
        self._means: list[np.ndarray] = []
        self._squares: list[np.ndarray] = []
        self._structure: Any = None

    def add(self, outputs: Any) -> None:
        """Take the outputs of one more view."""
        leaves, structure = nest.flatten(outputs)
        if not self._count:
            self._structure = structure
            for leaf in leaves:
                wide = np.result_type(leaf.dtype, np.float32)
                self._means.append(np.zeros(leaf.shape, wide))
                self._squares.append(np.zeros(leaf.shape, wide))
        self._count += 1
        for leaf, mean, squares in zip(leaves, self._means, self._squares, strict=True):
            if leaf.shape != mean.shape:
                raise BatchError(
                    f"the first view gave an output of shape {mean.shape}, and view "
                    f"{self._count} one of shape {leaf.shape}: does the inverse undo its transform?"
                )
            before = leaf - mean
            mean += before / self._count
            squares += before * (leaf - mean)

    def result(self) -> Augmented:
        """Return mean and standard deviation.

        Raises:
            SettingError: Nothing was added.
        """
        if not self._count:
            raise SettingError(
                "test-time augmentation needs at least one view, such as flips((-1,))"
            )
        deviations = [np.sqrt(squares / self._count) for squares in self._squares]
        mean = nest.unflatten(self._structure, self._means)
        return Augmented(mean, nest.unflatten(self._structure, deviations))


def _turned_back(view: View, shape: tuple[int, ...], output: np.ndarray) -> np.ndarray:
    """Return an output of a view, whose input had that shape, turned back if it has its places."""
    samples, _, *size = shape
    is_map = len(size) > 1 and output.shape == (samples, *size)
    if is_map or output.ndim == len(shape):
        return view.inverse(output)
    return output


def _flip(axes: tuple[int, ...]) -> View:
    def mirrored(array: np.ndarray) -> np.ndarray:
        return np.flip(array, axes)

    return View(mirrored, mirrored)
