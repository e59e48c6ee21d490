"""Pictures of what a network gives for images and volumes: labels, regions, values.

Drawn with matplotlib's figure objects alone: no window, no backend chosen, no global setting
changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from deliralike.errors import BatchError

COLOURS = (
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#CC79A7",
    "#F0E442",
    "#0072B2",
    "#D55E00",
)  # Okabe and Ito 2008
RIGHT, WRONG = "#009E73", "#D55E00"
INCHES = 1.5


def new_figure(dpi: int = 110) -> Figure:
    """An empty figure; the functions here set its size."""
    return Figure(
        dpi=dpi, layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02), facecolor="white"
    )


def draw(figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray) -> None:
    """Draw samples in the way that the shapes of targets and outputs ask for.

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
    """Each image with its prediction above it; a wrong one in another colour, with the right one in brackets."""
    columns = min(len(inputs), 8)
    axes = _grid(figure, -(-len(inputs) // columns), columns)
    predicted = outputs.argmax(1)
    for axis, image, target, label in zip(axes.flat, inputs, targets, predicted, strict=False):
        _show(axis, image)
        right = label == target
        text = f"{label}" if right else f"{label} (is {target})"
        axis.set_title(text, fontsize=9, color=RIGHT if right else WRONG)


def draw_regions(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """A column for each sample: the image, and below it the outlines of target and prediction, by class.

    Class 0 is background. Outputs with one channel are scores of class 1, above or below zero.
    """
    predicted = outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).astype(int)
    targets = targets[:, 0] if targets.ndim == outputs.ndim else targets
    classes = range(1, max(outputs.shape[1], 2))
    axes = _grid(figure, 3, len(inputs), ("input", "target", "prediction"))
    for column, image in enumerate(inputs):
        for row, regions in enumerate((None, targets[column], predicted[column])):
            _show(axes[row, column], image)
            for label in classes if regions is not None else ():
                _outline(
                    axes[row, column],
                    _middle(regions == label),
                    COLOURS[(label - 1) % len(COLOURS)],
                )


def draw_values(
    figure: Figure, inputs: np.ndarray, targets: np.ndarray, outputs: np.ndarray
) -> None:
    """A column for each sample: the image, the target and the prediction, in one range of grey; numbers as titles."""
    if outputs.ndim <= 2:
        axes = _grid(figure, 1, len(inputs))
        for axis, image, target, output in zip(axes.flat, inputs, targets, outputs, strict=True):
            _show(axis, image)
            axis.set_title(f"{_numbers(output)}\n(is {_numbers(target)})", fontsize=8)
        return
    axes = _grid(figure, 3, len(inputs), ("input", "target", "prediction"))
    for column, (image, target, output) in enumerate(zip(inputs, targets, outputs, strict=True)):
        target = target if target.ndim == output.ndim else target[np.newaxis]
        limits = float(np.nanmin(target)), float(np.nanmax(target))
        _show(axes[0, column], image)
        _show(axes[1, column], target, limits)
        _show(axes[2, column], output, limits)


def _grid(figure: Figure, rows: int, columns: int, names: tuple[str, ...] = ()) -> np.ndarray:
    figure.set_size_inches(
        max(columns * INCHES, 3.0) + 0.3 * bool(names), rows * (INCHES + 0.3 * (not names))
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
        axis.set_frame_on(False)
    for axis, name in zip(axes[:, 0], names, strict=False):
        axis.set_ylabel(name, fontsize=9)
    return axes


def _show(axis: Any, image: np.ndarray, limits: tuple[float, float] | None = None) -> None:
    """One sample, channels first: three channels as colours, else the first one in grey."""
    if image.ndim not in (3, 4):
        raise BatchError(
            "a picture is drawn of samples (channels, height, width) or (channels, depth, "
            f"height, width), not of shape {image.shape}: give Images a draw function of your own"
        )
    if image.shape[0] == 3:
        low, high = limits or (float(image.min()), float(image.max()))
        scaled = np.clip(
            (np.stack([_middle(part) for part in image], -1) - low) / ((high - low) or 1.0),
            0.0,
            1.0,
        )
        axis.imshow(scaled, interpolation="nearest")
    else:
        low, high = limits or (None, None)  # type: ignore[assignment]
        axis.imshow(_middle(image[0]), cmap="gray", vmin=low, vmax=high, interpolation="nearest")


def _middle(values: np.ndarray) -> np.ndarray:
    """A picture as it is; of a volume its middle slice."""
    return values[len(values) // 2] if values.ndim == 3 else values


def _outline(axis: Any, region: np.ndarray, colour: str) -> None:
    """The border of a region, along the edges of its pixels; nothing where it is empty."""
    framed = np.pad(region.astype(int), 1)
    for across in (0, 1):
        rows, columns = np.nonzero(np.diff(framed, axis=across))
        starts = (
            np.stack([columns, rows], 1) - (1.5, 0.5)
            if across == 0
            else np.stack([columns, rows], 1) - (0.5, 1.5)
        )
        step = (1.0, 0.0) if across == 0 else (0.0, 1.0)
        axis.add_collection(_lines(np.stack([starts, starts + step], 1), colour))


def _lines(segments: np.ndarray, colour: str) -> Any:
    return LineCollection(list(segments), colors=colour, linewidths=1.4)


def _numbers(values: np.ndarray) -> str:
    return ", ".join(f"{value:.3g}" for value in np.ravel(values))
