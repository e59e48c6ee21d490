"""Losses, written on the primitives. The default is the mean over what counts, as in PyTorch."""

import warnings
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.primitives import Array
from deliralike.nn.shaping import Shaping


class Losses(Shaping):
    """Functions from predictions and targets to a loss."""

    def cross_entropy(self, logits: Array, target: Array, weight: Array | None = None, ignore_index: int = -100,
                      label_smoothing: float = 0.0, reduction: str = "mean") -> Array:  # fmt: skip
        """Cross-entropy of whole-number labels.

        Args:
            logits: Scores, one for each class along axis 1.
            target: Labels from 0 to ``classes - 1``, or `ignore_index`.
            weight: One weight for each class.
            ignore_index: Positions with this label count neither in the sum nor in the mean's denominator.
            label_smoothing: The share of the label that is spread evenly over all classes.
            reduction: ``"mean"`` (divided by the sum of the labels' weights), ``"sum"`` or ``"none"``.

        Shapes:
            ``(batch, classes, ...)`` and ``(batch, ...)`` give a scalar, or ``(batch, ...)`` for ``"none"``.
            When every position is ignored the mean is 0, with a warning where the labels are at hand on the host.
        """
        self._check_labels(logits, target, ignore_index, reduction)
        self._check_weight(weight, logits.shape[1])
        if not 0.0 <= label_smoothing <= 1.0:
            raise SettingError(f"cross_entropy: label_smoothing={label_smoothing!r} must lie between 0 and 1")
        classes, counts = logits.shape[1], target != ignore_index
        label = self.expand_dims(self.where(counts, target, target * 0), 1)  # (batch, 1, ...)
        kept = self.cast(counts, logits)
        log_p = self.log_softmax(logits, dim=1)
        per_class = None if weight is None else self.reshape(weight, (1, -1) + (1,) * (len(logits.shape) - 2))
        label_weight = kept if weight is None else self.select(weight, label[:, 0], 0) * kept
        loss = -self.select_along(log_p, label, 1)[:, 0] * label_weight
        if label_smoothing:
            spread = -self.sum(log_p if per_class is None else log_p * per_class, dim=1) * kept
            loss = (1.0 - label_smoothing) * loss + (label_smoothing / classes) * spread
        if reduction != "mean":
            return self._reduce(loss, reduction)
        total = self.sum(label_weight)
        return self.sum(loss) / self.where(total == 0, total * 0 + 1.0, total)

    def bce_with_logits(self, logits: Array, target: Array, weight: Array | None = None,
                        pos_weight: Array | None = None, reduction: str = "mean") -> Array:  # fmt: skip
        """Binary cross-entropy of scores, without overflow; `target` lies between 0 and 1.

        Shapes:
            Two arrays of one shape give a scalar; `weight` and `pos_weight` broadcast to that shape.
        """
        self._same_shape("bce_with_logits", logits, target)
        positive = self.softplus(-logits) if pos_weight is None else pos_weight * self.softplus(-logits)
        loss = target * positive + (1.0 - target) * self.softplus(logits)
        return self._reduce(loss if weight is None else loss * weight, reduction)

    def mse_loss(self, prediction: Array, target: Array, reduction: str = "mean") -> Array:
        """The squared difference (not halved)."""
        self._same_shape("mse_loss", prediction, target)
        difference = prediction - target
        return self._reduce(difference * difference, reduction)

    def l1_loss(self, prediction: Array, target: Array, reduction: str = "mean") -> Array:
        """The absolute difference."""
        self._same_shape("l1_loss", prediction, target)
        return self._reduce(self.abs(prediction - target), reduction)

    def dice_loss(self, probabilities: Array, target: Array, smooth: float = 1e-5, include_background: bool = True,
                  reduction: str = "mean") -> Array:  # fmt: skip
        """One minus the soft Dice coefficient of each sample and class. Source: Milletari 2016, arXiv 1606.04797.

        Args:
            probabilities: The network's outputs after softmax or sigmoid.
            target: One-hot labels of the same shape.
            smooth: Added to numerator and denominator.
            include_background: Whether channel 0 counts.
            reduction: Over samples and classes: ``"mean"``, ``"sum"`` or ``"none"``.

        Shapes:
            ``(batch, classes, ...)`` twice gives a scalar, or ``(batch, classes)`` for ``"none"``.
        """
        self._same_shape("dice_loss", probabilities, target)
        if not include_background:
            probabilities, target = probabilities[:, 1:], target[:, 1:]
        dims = tuple(range(2, len(probabilities.shape)))
        overlap = self.sum(probabilities * target, dims)
        total = self.sum(probabilities, dims) + self.sum(target, dims)
        return self._reduce(1.0 - (2.0 * overlap + smooth) / (total + smooth), reduction)

    def one_hot(self, target: Array, classes: int, like: Array) -> Array:
        """Labels as an array with one channel for each class, in the type of `like`.

        Shapes:
            ``(batch, ...)`` gives ``(batch, classes, ...)``.
        """
        checks.whole_numbers(target, "one_hot: target")
        checks.index_range(self.concrete(target), classes, "one_hot: target")
        numbers = np.arange(classes).reshape((1, -1) + (1,) * (len(target.shape) - 1))
        return self.cast(self.expand_dims(target, 1) == self.constant(numbers, like=target), like)

    def _reduce(self, loss: Array, reduction: str) -> Array:
        if reduction == "none":
            return loss
        if reduction not in ("mean", "sum"):
            raise SettingError(f"reduction={reduction!r}; wanted 'mean', 'sum' or 'none'")
        return self.mean(loss) if reduction == "mean" else self.sum(loss)

    def _check_labels(self, logits: Array, target: Array, ignore_index: int, reduction: str) -> None:
        self._check_label_shape(logits, target)
        values = self.concrete(target)
        checks.index_range(values, logits.shape[1], "cross_entropy: target", ignore=ignore_index)
        if reduction == "mean" and values is not None and (values == ignore_index).all():
            warnings.warn("cross_entropy: every label is ignored, the loss is 0", stacklevel=3)

    def _check_label_shape(self, logits: Array, target: Array) -> None:
        if len(logits.shape) < 2:
            raise ShapeError(f"cross_entropy: logits have shape {tuple(logits.shape)}, wanted (batch, classes, ...)")
        wanted = (logits.shape[0], *logits.shape[2:])
        if tuple(target.shape) != wanted:
            raise ShapeError(f"cross_entropy: target has shape {tuple(target.shape)}; logits of shape "
                             f"{tuple(logits.shape)} want {wanted}")  # fmt: skip
        checks.whole_numbers(target, "cross_entropy: target")

    def _check_weight(self, weight: Array | None, classes: int) -> None:
        if weight is not None and tuple(weight.shape) != (classes,):
            raise ShapeError(
                f"cross_entropy: weight has shape {tuple(weight.shape)}; wanted one for each of {classes} classes"
            )

    def _same_shape(self, name: str, x: Any, y: Any) -> None:
        if tuple(x.shape) != tuple(y.shape):
            raise ShapeError(f"{name}: shapes {tuple(x.shape)} and {tuple(y.shape)} differ; nothing is broadcast")
