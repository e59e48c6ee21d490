"""Losses, written on the primitives; the default is PyTorch's mean."""

import math
from typing import Any

import numpy as np

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.checks import is_floating, is_whole
from deliralike.nn.means import mean_over
from deliralike.nn.primitives import Array, other_name
from deliralike.nn.selecting import Selecting
from deliralike.nn.start import Shape

_PROBABILITIES = (
    "binary_cross_entropy: wanted probabilities from 0 to 1 "
    "(binary_cross_entropy_with_logits takes scores)"
)


class Losses(Selecting):
    """Functions from predictions and targets to a loss."""

    def cross_entropy(
        self,
        logits: Array,
        target: Array,
        weight: Array | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Array:
        """Cross-entropy of whole-number labels, or of probabilities.

        Args:
            logits: Scores, one for each class along axis 1.
            target: Labels from 0 to ``classes - 1``, or `ignore_index`; or probabilities in the
                shape of `logits`.
            weight: One weight for each class; numbers of the host will do.
            ignore_index: Positions with this label count neither in the sum nor in the mean's
                denominator.
            reduction: ``"mean"`` (divided by the sum of the labels' weights, for probabilities by
                the number of positions), ``"sum"`` or ``"none"``.
            label_smoothing: The share of the label that is spread evenly over all classes.

        Shapes:
            ``(batch, classes, ...)`` and ``(batch, ...)`` give a scalar, or ``(batch, ...)`` for
            ``"none"``. When every position is ignored the mean is 0, with a warning where the
            labels are at hand on the host.
        """
        if not 0.0 <= label_smoothing <= 1.0:
            raise SettingError(
                f"cross_entropy: label_smoothing={label_smoothing!r} must lie between 0 and 1"
            )
        self._check_axes(logits, "cross_entropy")
        weight = self._class_weight(weight, logits, "cross_entropy")
        if is_floating(target) and tuple(target.shape) == tuple(logits.shape):
            if ignore_index >= 0:
                raise SettingError(
                    f"cross_entropy: ignore_index={ignore_index!r} is for labels, and the target "
                    "has probabilities"
                )
            return self._soft_cross_entropy(
                logits, target, weight, reduction, label_smoothing
            )
        settings = (ignore_index, weight, reduction)
        label, label_weight = self._checked_labels(logits, target, *settings)
        log_p = self.log_softmax(logits, dim=1)
        loss = -self._at_counted(log_p, label, target, ignore_index) * label_weight
        if label_smoothing:
            weighted = log_p
            if weight is not None:
                weighted = log_p * self._per_channel(weight, logits)
            spread = self.where(target != ignore_index, -self.sum(weighted, dim=1), 0.0)
            classes = logits.shape[1]
            loss = (1.0 - label_smoothing) * loss + (label_smoothing / classes) * spread
        return self._reduce_labels(loss, label_weight, reduction)

    def nll_loss(
        self,
        x: Array,
        target: Array,
        weight: Array | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Array:
        """The negative logarithms of the labels' probabilities.

        Args:
            x: Logarithms of probabilities, as `log_softmax` gives them, along axis 1.
            target, weight, ignore_index, reduction: As in `cross_entropy`.

        Shapes:
            ``(batch, classes, ...)`` and ``(batch, ...)`` give a scalar, or ``(batch, ...)`` for
            ``"none"``.
        """
        settings = (ignore_index, weight, reduction, "nll_loss")
        label, label_weight = self._checked_labels(x, target, *settings)
        loss = -self._at_counted(x, label, target, ignore_index) * label_weight
        return self._reduce_labels(loss, label_weight, reduction)

    def focal_loss(
        self,
        logits: Array,
        target: Array,
        gamma: float = 2.0,
        weight: Array | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
    ) -> Array:
        """Cross-entropy of whole-number labels in which well-classified positions count less.

        ``-(1 - p)**gamma * log(p)``, where p is the probability of the label; ``gamma=0`` is
        `cross_entropy`. Source: Lin et al. 2017, arXiv 1708.02002.

        Args:
            logits, target, weight, ignore_index, reduction: As in `cross_entropy`; the mean has its
                denominator.
            gamma: The exponent that determines how much less.

        Shapes:
            ``(batch, classes, ...)`` and ``(batch, ...)`` give a scalar, or ``(batch, ...)`` for
            ``"none"``.
        """
        settings = (ignore_index, weight, reduction, "focal_loss")
        label, label_weight = self._checked_labels(logits, target, *settings)
        log_p = self.log_softmax(logits, dim=1)
        log_p = self._at_counted(log_p, label, target, ignore_index)
        focus = self._power(1.0 - self.exp(log_p), gamma)
        loss = -focus * log_p * label_weight
        return self._reduce_labels(loss, label_weight, reduction)

    def bce_with_logits(
        self,
        logits: Array,
        target: Array,
        weight: Array | None = None,
        pos_weight: Array | None = None,
        reduction: str = "mean",
    ) -> Array:
        """Binary cross-entropy of scores, without overflow; `target` lies between 0 and 1.

        Shapes:
            Two arrays of one shape give a scalar; `weight` and `pos_weight` broadcast to that
            shape.
        """
        target = self._target("bce_with_logits", logits, target)
        positive = self.exact_softplus(-logits)
        if pos_weight is not None:
            positive = pos_weight * positive
        loss = target * positive + (1.0 - target) * self.exact_softplus(logits)
        return self._reduce(loss, reduction, weight)

    @other_name
    def binary_cross_entropy_with_logits(
        self,
        x: Array,
        target: Array,
        weight: Array | None = None,
        reduction: str = "mean",
        pos_weight: Array | None = None,
    ) -> Array:
        """`bce_with_logits` by PyTorch's name and order of arguments."""
        return self.bce_with_logits(x, target, weight, pos_weight, reduction)

    @in_float32
    def binary_cross_entropy(
        self,
        x: Array,
        target: Array,
        weight: Array | None = None,
        reduction: str = "mean",
    ) -> Array:
        """Binary cross-entropy of probabilities; logarithms count as -100 at least.

        Shapes:
            Two arrays of one shape give a scalar; `weight` broadcasts to that shape.

        Raises:
            BatchError: A number is no probability. In a compiled program the loss is NaN then.
        """
        target = self._target("binary_cross_entropy", x, target)
        self.checked(x, checks.Between(0.0, 1.0, _PROBABILITIES))
        # As in PyTorch the derivative is (x - target) / max(x * (1 - x), 1e-12): next to 0 and 1 a
        # line of the slope at x.
        is_inside = x * (1.0 - x) >= 1e-12
        inside = self.where(is_inside, x, 0.5)
        at = self.stop_gradient(x)
        slope = (at - self.stop_gradient(target)) * 1e12
        line = self._bounded_entropy(at, target) + slope * (x - at)
        loss = self.where(is_inside, self._bounded_entropy(inside, target), line)
        return self._reduce(loss, reduction, weight)

    def _bounded_entropy(self, x: Array, target: Array) -> Array:
        return -target * self._bounded_log(x) - (1.0 - target) * self._bounded_log(
            1.0 - x
        )

    def binary_focal_loss(
        self,
        logits: Array,
        target: Array,
        alpha: float | None = 0.25,
        gamma: float = 2.0,
        reduction: str = "mean",
    ) -> Array:
        """Binary cross-entropy of scores in which well-classified elements count less.

        Source: Lin et al. 2017, arXiv 1708.02002; settings as in torchvision's
        ``sigmoid_focal_loss``.

        Args:
            logits: Scores.
            target: Probabilities between 0 and 1.
            alpha: The weight of positives; negatives have ``1 - alpha``. None weighs both with one.
            gamma: The exponent that determines how much less; 0 is `bce_with_logits`.
            reduction: ``"mean"`` (over all elements), ``"sum"`` or ``"none"``.

        Shapes:
            Two arrays of one shape give a scalar.
        """
        target = self._target("binary_focal_loss", logits, target)
        missed = target * self.sigmoid(-logits) + (1.0 - target) * self.sigmoid(logits)
        entropy = self.bce_with_logits(logits, target, reduction="none")
        loss = entropy * self._power(missed, gamma)
        if alpha is not None:
            loss = loss * (alpha * target + (1.0 - alpha) * (1.0 - target))
        return self._reduce(loss, reduction)

    def mse_loss(
        self,
        prediction: Array,
        target: Array,
        reduction: str = "mean",
        weight: Array | None = None,
    ) -> Array:
        """Return the squared difference (not halved).

        With a `weight` for each element, the mean is that of the weights.
        """
        target = self._target("mse_loss", prediction, target)
        difference = prediction - target
        return self._weighted(difference * difference, weight, reduction)

    def l1_loss(
        self, prediction: Array, target: Array, reduction: str = "mean"
    ) -> Array:
        """Return the absolute difference."""
        target = self._target("l1_loss", prediction, target)
        return self._reduce(self.abs(prediction - target), reduction)

    def one_hot(
        self, target: Array, num_classes: int = -1, like: Array | None = None
    ) -> Array:
        """Return labels as whole numbers 0 and 1, one for each class along the last axis.

        Args:
            target: Whole numbers.
            num_classes: The number of classes; one more than the largest label when not given,
                which needs values on the host.
            like: With an array, the classes are axis 1, as losses want them, in its type.

        Shapes:
            ``(batch, ...)`` gives ``(batch, ..., classes)``; with `like`
            ``(batch, classes, ...)``.
        """
        checks.whole_numbers(target, "one_hot: target")
        classes = num_classes
        if classes == -1:
            values = self.concrete(target)
            if values is None:
                raise SettingError(
                    "one_hot: num_classes must be given where values are not at hand"
                )
            classes = int(values.max()) + 1
        self.checked(target, checks.InRange(classes, "one_hot: target"))
        axis, kind = (-1, "int64") if like is None else (1, like)
        labels = self.expand_dims(target, axis)
        shape = [1] * labels.ndim
        shape[axis] = classes
        numbers = np.arange(classes).reshape(shape)
        return self.cast(labels == self.constant(numbers, like=target), kind)

    def _soft_cross_entropy(
        self,
        logits: Array,
        target: Array,
        weight: Array | None,
        reduction: str,
        label_smoothing: float,
    ) -> Array:
        """The cross-entropy of probabilities: (batch, classes, ...)."""
        if label_smoothing:
            spread = label_smoothing / logits.shape[1]
            target = target * (1.0 - label_smoothing) + spread
        terms = self.log_softmax(logits, dim=1) * target
        if weight is not None:
            terms = terms * self._per_channel(weight, logits)
        return self._reduce(-self.sum(terms, dim=1), reduction)

    def _bounded_log(self, x: Array) -> Array:
        positive = x > 0.0
        logarithm = self.log(self.where(positive, x, 1.0))
        bounded = self.where(positive & (logarithm > -100.0), logarithm, -100.0)
        return self.where(x < 0.0, math.nan, bounded)

    @in_float32
    def _weighted(self, loss: Array, weight: Array | None, reduction: str) -> Array:
        """Reduce with a weight for each element, over whose sum the mean is taken."""
        if weight is not None:
            self._same_shape("a loss and its weights", loss, weight)
        if weight is not None and reduction == "mean":
            total = self.sum(weight)
            return mean_over(lambda: total, self.sum(loss * weight) / total)
        return self._reduce(loss, reduction, weight)

    def _reduce(
        self, loss: Array, reduction: str, weight: Array | None = None
    ) -> Array:
        """Reduce over all elements, each times its weight."""
        if weight is not None:
            shape = tuple(loss.shape)
            loss = loss * weight
            if tuple(loss.shape) != shape:
                raise ShapeError(
                    f"a weight of shape {tuple(weight.shape)} does not fit a loss of shape {shape}"
                )
        checks.one_of(reduction, ("mean", "sum", "none"), "reduction")
        if reduction == "mean":
            return mean_over(lambda: math.prod(loss.shape), self.mean(loss))
        return self.sum(loss) if reduction == "sum" else loss

    def _checked_labels(
        self,
        logits: Array,
        target: Array,
        ignore_index: int,
        weight: Array | None,
        reduction: str,
        name: str = "cross_entropy",
    ) -> tuple[Array, Array]:
        """Return labels with 0 for ignored ones, and the weight of each; all are checked."""
        self._check_labels(logits, target, ignore_index, reduction, name)
        weight = self._class_weight(weight, logits, name)
        counts = target != ignore_index
        label = self.where(counts, target, target * 0)
        label_weight = self.cast(counts, logits)
        if weight is not None:
            label_weight = self.select(weight, label, 0) * label_weight
        return label, label_weight

    def _at_label(self, values: Array, label: Array) -> Array:
        """Return the value of each position's label: (batch, classes, ...) gives (batch, ...)."""
        index = self.expand_dims(label, 1)
        return self.select_along(values, index, 1)[:, 0]

    def _at_counted(
        self, log_p: Array, label: Array, target: Array, ignore_index: int
    ) -> Array:
        """Return `_at_label`, or -1 where it is ignored: 0 times infinity would be NaN."""
        return self.where(target != ignore_index, self._at_label(log_p, label), -1.0)

    @in_float32
    def _reduce_labels(self, loss: Array, label_weight: Array, reduction: str) -> Array:
        """Reduce with a weighted mean, which is 0 where nothing counts; else as `_reduce`."""
        if reduction != "mean":
            return self._reduce(loss, reduction)
        total = self.sum(label_weight)
        divisor = self.where(total == 0, total * 0 + 1.0, total)
        return mean_over(lambda: total, self.sum(loss) / divisor)

    def _check_labels(
        self,
        logits: Array,
        target: Array,
        ignore_index: int,
        reduction: str,
        name: str,
    ) -> None:
        self._check_label_shape(logits, target, name)
        warns = reduction == "mean"
        check = checks.InRange(logits.shape[1], f"{name}: target", ignore_index, warns)
        self.checked(target, check)

    def _check_axes(self, logits: Array, name: str) -> None:
        if logits.ndim < 2:
            raise ShapeError(
                f"{name}: logits have shape {tuple(logits.shape)}, wanted (batch, classes, ...)"
            )

    def _check_label_shape(
        self, logits: Array, target: Array, name: str = "cross_entropy"
    ) -> None:
        self._check_axes(logits, name)
        wanted = (logits.shape[0], *logits.shape[2:])
        if tuple(target.shape) != wanted:
            raise ShapeError(
                f"{name}: target has shape {tuple(target.shape)}; logits of shape "
                f"{tuple(logits.shape)} want {wanted}{_remedy(target, logits, wanted)}"
            )
        checks.whole_numbers(target, f"{name}: target")

    def _class_weight(self, weight: Any, logits: Array, name: str) -> Array | None:
        """Return the weights of classes, which may be numbers of the host, as an array."""
        if isinstance(weight, list | tuple | np.ndarray):
            weight = self.constant(np.asarray(weight, np.float64), like=logits)
        classes = logits.shape[1]
        if weight is not None and tuple(weight.shape) != (classes,):
            raise ShapeError(
                f"{name}: weight has shape {tuple(weight.shape)}; wanted one for each of {classes} "
                "classes"
            )
        return weight

    def _target(self, name: str, x: Array, target: Array) -> Array:
        """Return a target of the shape of `x`; truth values and whole numbers become floating."""
        self._same_shape(name, x, target)
        if is_whole(target) or "bool" in str(target.dtype):
            return self.cast(target, x)
        return target

    def _same_shape(self, name: str, x: Any, y: Any) -> None:
        if tuple(x.shape) != tuple(y.shape):
            raise ShapeError(
                f"{name}: shapes {tuple(x.shape)} and {tuple(y.shape)} differ; nothing is broadcast"
            )

    def _as_many_axes(self, name: str, *arrays: Array) -> None:
        """Check that no axis would be added: a column and a row would become a table."""
        if len({x.ndim for x in arrays}) > 1:
            raise checks.shape_error(name, "as many axes in each", *arrays)


def _remedy(target: Array, logits: Array, wanted: Shape) -> str:
    """Return what to do with labels of a usual other shape, or with probabilities."""
    are_rows = is_floating(target) and target.ndim == logits.ndim
    if tuple(target.shape) == tuple(logits.shape):
        remedy = ": one-hot rows become class numbers by labels.argmax(1)"
        if are_rows:
            remedy += ", and probabilities, as mixup makes them, are for cross_entropy"
        return remedy
    if tuple(target.shape) == (wanted[0], 1, *wanted[1:]):
        return ": leave out the axis of size 1, labels[:, 0]"
    if are_rows:
        return "; probabilities for cross_entropy have the shape of logits"
    return ""
