"""Pictures of a network's outputs for images and volumes: labels, regions, values.

They are drawn with matplotlib's figure objects alone: no window is opened, no backend chosen, no
global setting changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from deliralike.errors import BatchError
from deliralike.pictures import COLOURS
from deliralike.training.metrics.scores import class_numbers

RIGHT = "#009E73"
WRONG = "#D55E00"
INCHES = 1.5


def new_figure(dpi: int = 110) -> Figure:
    """Return an empty figure; the functions here set its size."""
    layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
    return Figure(dpi=dpi, layout=layout, facecolor="white")


def draw(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """Draw samples in the way that fits the shapes of targets and outputs.

    Shapes:
        Scores ``(samples, classes)`` and labels ``(samples,)``: `draw_labels`. Scores
        ``(samples, classes, ...)`` and whole numbers ``(samples, ...)``: `draw_regions`. All else:
        `draw_values`.

    Raises:
        BatchError: The inputs are no images and no volumes.
    """
    if outputs.ndim == 2 and targets.ndim == 1:
        draw_labels(figure, inputs, targets, outputs)
    elif targets.dtype.kind in "iub" and outputs.ndim > 2:
        draw_regions(figure, inputs, targets, outputs)
    else:
        draw_values(figure, inputs, targets, outputs)


def draw_labels(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """Draw each image with its prediction above it; a wrong one with the right one in brackets."""
    columns = min(len(inputs), 8)
    axes = _grid(figure, -(-len(inputs) // columns), columns)
    predicted = outputs.argmax(1)
    for axis, image, target, label in zip(
        axes.flat, inputs, targets, predicted, strict=False
    ):
        _show(axis, image)
        if label == target:
            axis.set_title(f"{label}", fontsize=9, color=RIGHT)
        else:
            axis.set_title(f"{label} (is {target})", fontsize=9, color=WRONG)


def draw_regions(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """Draw a column for each sample: the image, and the outlines of target and prediction.

    Class 0 is background. Outputs with one channel are scores of class 1, above or below zero.
    """
    predicted = class_numbers(outputs)
    if targets.ndim == outputs.ndim:
        targets = targets[:, 0]
    classes = range(1, max(outputs.shape[1], 2))
    axes = _grid(figure, 3, len(inputs), ("input", "target", "prediction"))
    for column, image in enumerate(inputs):
        for row in range(3):
            _show(axes[row, column], image)
        _outline_classes(axes[1, column], targets[column], classes)
        _outline_classes(axes[2, column], predicted[column], classes)


def draw_values(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """Draw a column for each sample: the image, the target and the prediction.

    Targets and predictions have one range of grey; numbers are written as titles.
    """
    if outputs.ndim <= 2:
        axes = _grid(figure, 1, len(inputs))
        for axis, image, target, output in zip(
            axes.flat, inputs, targets, outputs, strict=True
        ):
            _show(axis, image)
            title = f"{_numbers(output)}\n(is {_numbers(target)})"
            axis.set_title(title, fontsize=8)
        return
    axes = _grid(figure, 3, len(inputs), ("input", "target", "prediction"))
    for column, (image, target, output) in enumerate(
        zip(inputs, targets, outputs, strict=True)
    ):
        if target.ndim != output.ndim:
            target = target[np.newaxis]
        limits = float(np.nanmin(target)), float(np.nanmax(target))
        _show(axes[0, column], image)
        _show(axes[1, column], target, limits)
        _show(axes[2, column], output, limits)


def _grid(
    figure: Figure, rows: int, columns: int, names: tuple[str, ...] = ()
) -> np.ndarray:
    width = max(columns * INCHES, 3.0)
    row_height = INCHES
    if names:
        width += 0.3  # for the names of the rows
    else:
        row_height += 0.3  # for titles
    figure.set_size_inches(width, rows * row_height)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.set_frame_on(False)
    for axis, name in zip(axes[:, 0], names, strict=False):
        axis.set_ylabel(name, fontsize=9)
    return axes


def _show(
    axis: Any, image: np.ndarray, limits: tuple[float, float] | None = None
) -> None:
    """Draw one sample, channels first: three channels as colours, else the first one in grey."""
    if image.ndim not in (3, 4):
        raise BatchError(
            "a picture is drawn of samples (channels, height, width) or (channels, depth, "
            f"height, width), not of shape {image.shape}: give Images a draw function of your own"
        )
    if image.shape[0] == 3:
        low, high = limits or (float(image.min()), float(image.max()))
        span = (high - low) or 1.0
        channels_last = np.stack([_middle(channel) for channel in image], -1)
        scaled = (channels_last - low) / span
        axis.imshow(np.clip(scaled, 0.0, 1.0), interpolation="nearest")
    else:
        low, high = limits or (None, None)  # type: ignore[assignment]
        grey = _middle(image[0])
        axis.imshow(grey, cmap="gray", vmin=low, vmax=high, interpolation="nearest")


def _middle(values: np.ndarray) -> np.ndarray:
    """Return a picture unchanged; of a volume its middle slice."""
    if values.ndim == 3:
        return values[len(values) // 2]
    return values


def _outline_classes(axis: Any, labels: np.ndarray, classes: Iterable[int]) -> None:
    for label in classes:
        colour = f"#{COLOURS[(label - 1) % len(COLOURS)]}"
        _outline(axis, _middle(labels == label), colour)


def _outline(axis: Any, region: np.ndarray, colour: str) -> None:
    """Draw the border of a region, along the edges of its pixels; nothing where it is empty."""
    framed = np.pad(region.astype(int), 1)
    rows, columns = np.nonzero(np.diff(framed, axis=0))
    starts = np.stack([columns, rows], 1) - (1.5, 0.5)
    _draw_edges(axis, starts, (1.0, 0.0), colour)
    rows, columns = np.nonzero(np.diff(framed, axis=1))
    starts = np.stack([columns, rows], 1) - (0.5, 1.5)
    _draw_edges(axis, starts, (0.0, 1.0), colour)


def _draw_edges(
    axis: Any, starts: np.ndarray, step: tuple[float, float], colour: str
) -> None:
    segments = np.stack([starts, starts + step], 1)
    axis.add_collection(LineCollection(list(segments), colors=colour, linewidths=1.4))


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))
