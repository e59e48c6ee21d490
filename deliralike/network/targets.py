"""Checks of the targets of losses, the same on every backend.

The values are looked at where they are at hand on the host; see `Primitives.checked`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import BatchError, IndexRangeError, ShapeError, StructureError
from deliralike.nn.checks import is_floating

# what the losses of PyTorch, Chainer and MMSegmentation leave out
IGNORED = (
    -100,
    -1,
    255,
)


def default_loss(prediction: Any, target: Any, *, network: Any) -> Any:
    """Return mean cross-entropy for targets of whole numbers, mean squared error for floats.

    Raises:
        StructureError: The prediction is a container, such as a dict, or a tuple with auxiliary
            outputs.
        ShapeError: Floating targets have another shape than the prediction.
        BatchError: Floating targets are one-hot rows, or rows of probabilities.
        IndexRangeError: A whole number is no class.
    """
    if not hasattr(prediction, "shape"):
        raise _no_array(prediction)
    if not is_floating(target):
        return network.nn.cross_entropy(prediction, target)
    shape = tuple(target.shape)
    wanted = tuple(prediction.shape)
    if shape != wanted:
        raise ShapeError(
            f"the targets are floating numbers of shape {shape}, and the prediction has shape "
            f"{wanted}: the default loss (mse_loss) wants both of one shape; class numbers are "
            "whole numbers, labels.astype('int64')"
        )
    if len(wanted) > 1 and wanted[1] > 1:
        network.nn.checked(target, refuse_probabilities)
    return network.nn.mse_loss(prediction, target)


def _no_array(prediction: Any) -> StructureError:
    """Return the error for a prediction that holds its arrays, or is something else."""
    if prediction is None:
        return StructureError(
            "the network gives None, and the default loss wants one array: end its forward with a "
            "return"
        )
    path = nest.leaves_with_paths(prediction, "prediction")[:1]
    inside = path[0][0] if path else "prediction"
    return StructureError(
        f"the network gives {nest.described(prediction)}, and the default loss wants one array: "
        "name a loss that takes it out, losses={'loss': lambda prediction, target: "
        f"network.nn.cross_entropy({inside}, target)}}; or build the network without auxiliary "
        "outputs, if it has them in training alone (in the zoo by aux_logits, aux_loss or "
        "deep_supervision)"
    )


def refuse_probabilities(values: np.ndarray) -> None:
    """Refuse one-hot rows and rows of probabilities, as mixup makes them of classes.

    The default loss would take their mean squared error.

    Raises:
        BatchError: Along axis 1 no value is below 0, and all of them add up to 1.
    """
    # a program's checks are those of all batches of its shapes
    if values.dtype.kind in "iu":
        return
    # Measured targets differ from such rows in the first sample; the others are left alone.
    if not _are_probabilities(values[:1]) or not _are_probabilities(values):
        return
    kind = "rows of probabilities, as mixup makes them of classes"
    remedy = "name"
    if ((values == 0) | (values == 1)).all():
        kind = "one-hot rows"
        remedy = "give class numbers, labels.argmax(1), for cross_entropy; or name"
    raise BatchError(
        f"the targets, floating numbers of shape {values.shape}, are {kind}, and the default loss "
        f"of floating targets is mse_loss: {remedy} the loss, "
        "losses={'loss': network.nn.cross_entropy} or network.nn.mse_loss"
    )


def _are_probabilities(values: np.ndarray) -> bool:
    tolerance = 1e-5 if values.dtype.itemsize >= 4 else 2e-2
    sums = values.sum(1, dtype=np.float64)
    return bool((values >= 0).all() and (abs(sums - 1.0) <= tolerance).all())


def check_classes(name: str, prediction: Any, target: Any, network: Any) -> None:
    """Check the class numbers for a loss ``function(prediction, target)``.

    Targets are class numbers if they are whole numbers in the shape of the prediction without its
    axis 1, where it has one. Frameworks differ in what their losses do with a number that is no
    class; some give NaN.

    Raises:
        IndexRangeError: A whole number is neither a class nor one of `IGNORED`.
    """
    shapes = [getattr(each, "shape", None) for each in (prediction, target)]
    if None in shapes or "int" not in str(getattr(target, "dtype", "")):
        return
    predicted, given = (tuple(shape) for shape in shapes)  # type: ignore[arg-type]
    has_classes = len(predicted) > 1 and predicted[1] > 1
    if has_classes and given == (predicted[0], *predicted[2:]):
        network.nn.checked(target, InClasses(name, predicted[1]))


@dataclass(frozen=True)
class InClasses:
    """A check that whole numbers are classes, or are ignored by convention."""

    loss: str
    classes: int

    def __call__(self, values: np.ndarray) -> None:
        """Raise an error if the values do not pass."""
        if values.dtype.kind not in "iu" or values.size == 0:
            return
        if values.min() >= 0 and values.max() < self.classes:
            return
        outside = (values < 0) | (values >= self.classes)
        outside &= ~np.isin(values, IGNORED)
        if outside.any():
            raise IndexRangeError(
                f"loss {self.loss!r}: target: {values[outside].flat[0]} is out of range, wanted "
                f"whole numbers from 0 to {self.classes - 1}, as the prediction has "
                f"{self.classes} classes (or one of {IGNORED}, if the loss ignores it). A loss "
                "with other targets is a function of (network, *inputs, target)"
            )
