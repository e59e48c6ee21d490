"""Pictures of what a trained network predicts: a contact sheet, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from deliralike.data import Dataset, Loader
from deliralike.network.base import AbstractNetwork
from deliralike.pictures import COLOURS, overlay, palette_picture, pillow
from deliralike.training.curves import literal
from deliralike.training.evaluation import predict
from deliralike.training.experiment.folder import CONFUSION, SHEET
from deliralike.training.experiment.predictions import main_output
from deliralike.training.metrics import ConfusionMatrix, Dice
from deliralike.training.metrics.labels import log_softmax
from deliralike.training.metrics.scores import class_numbers

_MOST = 512  # samples whose pictures are kept in memory to choose from
_COLUMNS, _ROWS = 6, 4  # of pictures with one label each
_MASKS = 5  # pictures with masks
_NAMED = 30  # classes that fit beside a matrix
_NUMBERED = 12  # classes whose numbers fit into it
_RIGHT, _WRONG = "#009E73", "#D55E00"


@dataclass(frozen=True)
class _Judged:
    """A held-out sample: its picture, labels and predictions, and how well they agree."""

    picture: np.ndarray
    label: Any
    predicted: Any
    quality: float  # the probability of the label, or the mean Dice of the classes


def draw_predictions(
    network: AbstractNetwork, held_out: Loader, dataset: Dataset, folder: Path
) -> None:
    """Predict held-out pictures, and draw ``predictions.png`` and ``confusion.png`` in a folder.

    The sheet has wrong predictions first, those of which the network is the surest; of masks those
    from the worst to the best Dice, and of volumes a slice; all of the first 512 samples. Nothing
    is drawn where samples are no pictures, or where outputs are no scores of the classes.
    """
    shape = dataset.sample_shape
    is_picture = len(shape) in (3, 4) and shape[0] <= 4
    if not is_picture or dataset.task not in ("classification", "segmentation"):
        return
    judged, matrix = _judge(network, held_out, len(dataset.classes))
    if not judged:
        return
    if dataset.task == "classification":
        wrong = matrix.sum() - matrix.trace()
        title = f"{wrong:,.0f} of {matrix.sum():,.0f} held-out pictures wrong"
        figure = _draw_labels(judged, dataset.classes, title)
    else:
        figure = _draw_masks(judged, dataset.classes)
    figure.savefig(folder / SHEET)
    _draw_confusion(matrix, dataset.classes).savefig(folder / CONFUSION)


def _judge(
    network: AbstractNetwork, held_out: Loader, classes: int
) -> tuple[list[_Judged], np.ndarray]:
    """Return the first samples, judged, and the confusion matrix; none if outputs are no scores."""
    metric = ConfusionMatrix()
    matrix = np.zeros((classes, classes))
    judged: list[_Judged] = []
    for batch in held_out.batches(0):
        for outputs in predict(network, batch.inputs):
            scores = main_output(outputs)
            if scores.shape != (len(batch.labels), classes, *batch.labels.shape[1:]):
                return [], matrix
            matrix += metric.matrix(metric.evidence(scores, batch.labels))
            predicted = class_numbers(scores)
            qualities = _qualities(scores, batch.labels)
            rows = zip(batch.inputs, batch.labels, predicted, qualities, strict=True)
            judged.extend(_Judged(*row) for row in islice(rows, _MOST - len(judged)))
    return judged, matrix


def _qualities(scores: np.ndarray, labels: np.ndarray) -> Sequence[float]:
    if labels.ndim == 1:
        return np.exp(log_softmax(scores))[np.arange(len(labels)), labels].tolist()
    dice = Dice()
    qualities = []
    for place in range(len(labels)):
        evidence = dice.evidence(scores[[place]], labels[[place]])
        qualities.append(dice.compute(evidence)["mean"])
    return qualities


# Drawing ------------------------------------------------------------------------------------------


def _draw_labels(
    judged: Sequence[_Judged], classes: Sequence[str], title: str
) -> Figure:
    by_quality = sorted(judged, key=lambda each: each.quality)
    wrong = [each for each in by_quality if each.predicted != each.label]
    right = [each for each in by_quality if each.predicted == each.label]
    size = _COLUMNS * _ROWS
    shown = wrong[: max(size // 2, size - len(right))]
    shown += _spread(right, size - len(shown))
    rows = max(1, -(-len(shown) // _COLUMNS))
    figure = _figure(1.6 * _COLUMNS, 1.9 * rows + 0.4)
    for number, each in enumerate(shown, start=1):
        axis = figure.add_subplot(rows, _COLUMNS, number)
        axis.imshow(_drawable(each.picture), vmin=0, vmax=1)
        axis.set_axis_off()
        is_right = each.predicted == each.label
        text = classes[each.predicted]
        if not is_right:
            text = f"predicted {text}\ntrue {classes[each.label]}"
        colour = _RIGHT if is_right else _WRONG
        axis.set_title(literal(text), fontsize=8, color=colour)
    figure.suptitle(title, fontsize=10)
    return figure


def _draw_masks(judged: Sequence[_Judged], classes: Sequence[str]) -> Figure:
    shown = _spread(sorted(judged, key=lambda each: each.quality), _MASKS)
    pictures = [_slices(each) for each in shown]
    height, width = pictures[0][1].shape
    figure = _figure(7.5, (0.3 + 2.4 * height / width) * len(shown) + 0.8)
    axes = figure.subplots(len(shown), 3, squeeze=False)
    for row, each, images in zip(axes, shown, pictures, strict=True):
        picture, label, predicted = images
        below = _pillow_picture(picture)
        drawn = (below, _covered(below, label), _covered(below, predicted))
        titles = ("picture", "true", f"predicted, mean Dice {each.quality:.2f}")
        for axis, image, title in zip(row, drawn, titles, strict=True):
            axis.imshow(image)
            axis.set_axis_off()
            axis.set_title(title, fontsize=8)
    handles = []
    for number, name in enumerate(classes[1:]):
        colour = f"#{COLOURS[number % len(COLOURS)]}"
        handles.append(Patch(color=colour, label=literal(name)))
    figure.legend(
        handles=handles[:_NAMED], loc="outside lower center", ncols=4, fontsize=8
    )
    figure.suptitle("Held-out samples, from the worst to the best", fontsize=10)
    return figure


def _draw_confusion(matrix: np.ndarray, classes: Sequence[str]) -> Figure:
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    side = min(10.0, 3.0 + 0.35 * len(classes))
    figure = _figure(side + 0.8, side)
    axis = figure.add_subplot()
    picture = axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    figure.colorbar(picture, label="share of the true class", fraction=0.046)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    if len(classes) <= _NAMED:
        names = [literal(name) for name in classes]
        axis.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        axis.set_yticks(range(len(names)), names, fontsize=8)
    if len(classes) <= _NUMBERED:
        for (row, column), share in np.ndenumerate(shares):
            colour = "white" if share > 0.5 else "black"
            text = f"{matrix[row, column]:,.0f}"
            axis.text(
                column, row, text, ha="center", va="center", fontsize=7, color=colour
            )
    return figure


def _figure(width: float, height: float) -> Figure:
    return Figure(
        figsize=(width, height), dpi=120, layout="compressed", facecolor="white"
    )


def _spread(items: Sequence[Any], count: int) -> list[Any]:
    """Return so many items, or all, at equal distances."""
    if len(items) <= count:
        return list(items)
    places = np.linspace(0, len(items) - 1, count).round().astype(int)
    return [items[place] for place in places]


def _slices(each: _Judged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a sample's picture and masks; of a volume the slice with most of a true class."""
    if each.label.ndim == 2:
        return each.picture, each.label, each.predicted
    place = _fullest(each.label)
    return (
        _upright(each.picture[..., place]),
        _upright(each.label[..., place]),
        _upright(each.predicted[..., place]),
    )


def slice_overlay(picture: np.ndarray, mask: np.ndarray) -> Any:
    """Return a slice of a volume in RAS, the one with the largest mask, with the mask over it.

    Shapes:
        Picture ``(channels, *size)``, mask ``(*size)``; a picture of Pillow.
    """
    place = _fullest(mask)
    return _covered(
        _pillow_picture(_upright(picture[..., place])), _upright(mask[..., place])
    )


def _fullest(mask: np.ndarray) -> int:
    """Return the slice with most of all classes but 0."""
    return int((mask > 0).sum(axis=(0, 1)).argmax())


def _upright(array: np.ndarray) -> np.ndarray:
    """Return a slice of RAS as it is drawn: the front is up."""
    return array.swapaxes(-2, -1)[..., ::-1, :]


def _drawable(picture: np.ndarray) -> np.ndarray:
    """Return a picture as RGB in [0, 1], scaled if it goes beyond; of two channels the first."""
    if picture.ndim == 4:
        picture = picture[..., picture.shape[-1] // 2]
    channels = picture[:3] if picture.shape[0] >= 3 else picture[[0, 0, 0]]
    low, high = float(channels.min()), float(channels.max())
    if low < 0 or high > 1:
        channels = (channels - low) / max(high - low, 1e-12)
    return np.moveaxis(channels, 0, -1).astype(np.float64)


def _pillow_picture(picture: np.ndarray) -> Any:
    return pillow("Image").fromarray(np.uint8(255 * _drawable(picture)))


def _covered(picture: Any, mask: np.ndarray) -> Any:
    """Return a picture with the colours of a mask over it; class 0 stays as it is."""
    return overlay(picture, palette_picture(mask, picture.size))
