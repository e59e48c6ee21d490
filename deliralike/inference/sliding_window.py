"""Sliding-window inference: outputs for a large picture from those for windows of one size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.data.transforms import margins
from deliralike.errors import BatchError, SettingError, StructureError
from deliralike.inference import windows
from deliralike.inference.predictor import described, pictures, predictor_of
from deliralike.setting_types import TypedSettings


@dataclass(frozen=True)
class SlidingWindowInferer(TypedSettings):
    """The settings of sliding-window inference, with MONAI's names; see `sliding_window_inference`.

    It is what `training.evaluate` and `Trainer` take as `inferer`.

    Example:
        >>> inferer = SlidingWindowInferer(roi_size=(4, 4), sw_batch_size=2)
        >>> inferer(np.ones((1, 1, 7, 5)), lambda windows: 2 * windows).shape
        (1, 1, 7, 5)
    """

    roi_size: int | Sequence[int | None]
    sw_batch_size: int = 1
    overlap: float | Sequence[float] = 0.25
    mode: str = "constant"
    sigma_scale: float | Sequence[float] = 0.125

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sw_batch_size < 1:
            raise SettingError(
                f"sw_batch_size must be at least 1, not {self.sw_batch_size!r}"
            )

    def __call__(self, inputs: Any, network: Any) -> Any:
        """Return the outputs for whole pictures; see `sliding_window_inference`."""
        predict = predictor_of(network)
        arrays = pictures(inputs, network)
        samples = len(arrays[0])
        size = arrays[0].shape[2:]
        window = windows.window_size(self.roi_size, size)
        padding = margins(size, window)
        arrays = tuple(np.pad(array, [(0, 0), (0, 0), *padding]) for array in arrays)
        weights = windows.weights(window, self.mode, self.sigma_scale)
        whole = arrays[0].shape[2:]
        corners = windows.places(whole, window, self.overlap)
        rows = list(itertools.product(range(samples), corners))
        batch_size = min(self.sw_batch_size, len(rows))
        structure = None
        canvases = []
        for begin in range(0, len(rows), batch_size):
            batch = rows[begin : begin + batch_size]
            # The last batch is filled up, so that all have one shape: one program does for all.
            filled = batch + batch[-1:] * (batch_size - len(batch))
            outputs = predict(*[_cut(array, filled, window) for array in arrays])
            leaves, found = nest.flatten(outputs)
            if structure is None:
                structure = found
                for path, leaf in nest.leaves_with_paths(outputs, "output"):
                    canvas = Canvas(path, leaf, samples, whole, weights)
                    canvas.count(corners)
                    canvases.append(canvas)
            elif structure != found:
                raise StructureError(
                    "windows of one picture gave outputs of different structures: "
                    f"{structure} and {found}"
                )
            for canvas, leaf in zip(canvases, leaves, strict=True):
                canvas.add(batch, leaf)
        return nest.unflatten(
            structure, [canvas.mean(padding, size) for canvas in canvases]
        )


def sliding_window_inference(
    inputs: Any,
    roi_size: int | Sequence[int | None],
    sw_batch_size: int,
    predictor: Any,
    overlap: float | Sequence[float] = 0.25,
    mode: str = "constant",
    sigma_scale: float | Sequence[float] = 0.125,
) -> Any:
    """Return a network's outputs for whole pictures, from its outputs for windows.

    Where windows overlap, an output is the weighted mean of theirs. Names, order and numbers are
    those of `monai.inferers.sliding_window_inference`. Windows go to the network's device and
    outputs come back to the host batch by batch, so the device needs room for one batch only.

    Args:
        inputs: A NumPy array or one of the framework's; or a tuple, for a network of several.
        roi_size: The window's size: one number for all axes, or one for each; None or -1 for the
            picture's own. Smaller pictures are padded with zeros on both sides, and outputs cut to
            their size.
        sw_batch_size: The number of windows in a batch.
        predictor: A network of any backend, written once or native, or a function of NumPy arrays.
        overlap: The fraction of a window that the next one covers again: one number, or one for
            each axis.
        mode: ``"constant"``: all elements of a window count alike; ``"gaussian"``: those at its
            edges count less.
        sigma_scale: The standard deviation of the Gaussian, as a fraction of the window's size.

    Shapes:
        Inputs ``(samples, channels, *size)``. An output ``(windows, channels, *part)`` becomes
        ``(samples, channels, *whole)``; where a part has another size than the window, the whole
        has another size than the picture in the same proportion, rounded down, as places are.

    Returns:
        NumPy arrays in the nest that the network returns, in its floating type.

    Raises:
        BatchError: An input is no picture, or an output has no size.
        SettingError: A setting makes no sense.
        StructureError: Two batches of windows gave different nests.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("unet", backend="torch", features=(4, 8, 4))
        >>> volume = np.zeros((1, 1, 80, 100), np.float32)
        >>> sliding_window_inference(volume, (64, 64), 4, net, overlap=0.5, mode="gaussian").shape
        (1, 2, 80, 100)
    """
    inferer = SlidingWindowInferer(roi_size, sw_batch_size, overlap, mode, sigma_scale)
    return inferer(inputs, predictor)


Row = tuple[int, tuple[int, ...]]  # a sample's number, and the first corner of a window


class Canvas:
    """One output of whole pictures: sums of weighted windows, and sums of the weights.

    An output may be finer or coarser than the windows, by a factor for each axis.
    """

    def __init__(
        self,
        path: str,
        part: Any,
        samples: int,
        size: Sequence[int],
        weights: np.ndarray,
    ):
        self._window = weights.shape
        axes = weights.ndim
        if not isinstance(part, np.ndarray) or part.ndim != axes + 2:
            raise BatchError(
                f"{path} of a window of {self._window} must be an array (windows, channels, "
                f"*size) with {axes} axes of size, and is {described(part)}"
            )
        self._part = part.shape[2:]
        kind = np.result_type(part.dtype, np.float32)
        self._weights = _zoomed(weights, self._part).astype(kind)
        whole = self._scaled(size)
        self._sums = np.zeros((samples, part.shape[1], *whole), kind)
        self._counts = np.zeros(whole, kind)

    def count(self, corners: Sequence[tuple[int, ...]]) -> None:
        """Add the weights of windows at these corners."""
        for corner in corners:
            self._counts[_slices(self._scaled(corner), self._part)] += self._weights

    def add(self, rows: list[Row], parts: np.ndarray) -> None:
        """Add the weighted outputs of windows at their places."""
        for (sample, corner), part in zip(rows, parts, strict=False):
            self._sums[_place(sample, self._scaled(corner), self._part)] += (
                part * self._weights
            )

    def mean(self, padding: list[tuple[int, int]], size: tuple[int, ...]) -> np.ndarray:
        """Return the sums by the weights, without the padding."""
        self._sums /= self._counts
        if not np.any(padding):
            return self._sums
        place: list[Any] = [slice(None), slice(None)]
        axes = zip(padding, size, self._part, self._window, strict=True)
        for (before, _), length, part, window in axes:
            begin = round(before * part / window)
            end = round((before + length) * part / window)
            place.append(slice(begin, end))
        return self._sums[tuple(place)]

    def _scaled(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """Return places or sizes of the picture in whole elements of the output."""
        scaled = []
        for number, part, window in zip(numbers, self._part, self._window, strict=True):
            scaled.append(number * part // window)
        return tuple(scaled)


def _cut(array: np.ndarray, rows: list[Row], window: Sequence[int]) -> np.ndarray:
    """Return windows of an array: ``(rows, channels, *window)``."""
    parts = []
    for sample, corner in rows:
        parts.append(array[_place(sample, corner, window)])
    return np.stack(parts)


def _place(sample: int, corner: Sequence[int], size: Sequence[int]) -> tuple[Any, ...]:
    return (sample, slice(None), *_slices(corner, size))


def _slices(corner: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    slices = []
    for begin, length in zip(corner, size, strict=True):
        slices.append(slice(begin, begin + length))
    return tuple(slices)


def _zoomed(weights: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return weights for an output of another size: each takes the one nearest to its centre."""
    for axis, (length, wanted) in enumerate(zip(weights.shape, size, strict=True)):
        nearest = (2 * np.arange(wanted) + 1) * length // (2 * wanted)
        weights = weights.take(nearest, axis)
    return weights
