"""Losses of regression, ranking and embeddings, by the names of PyTorch."""

import math
from collections.abc import Callable

from deliralike.errors import SettingError
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array

_VARIANCES = "gaussian_nll_loss: wanted variances that are not negative"


class DistanceLosses(Losses):
    """Functions from predictions and targets, or from embeddings, to a loss.

    `reduction` is ``"mean"``, ``"sum"`` or ``"none"`` in all of them.
    """

    # Regression

    def smooth_l1_loss(
        self, x: Array, target: Array, reduction: str = "mean", beta: float = 1.0
    ) -> Array:
        """``0.5 * d * d / beta`` where the distance d is below `beta`, else ``d - 0.5 * beta``."""
        self._same_shape("smooth_l1_loss", x, target)
        if beta < 0:
            raise SettingError(f"smooth_l1_loss: beta={beta!r} must not be negative")
        difference = x - target
        if beta == 0:
            return self._reduce(self.abs(difference), reduction)
        return self._reduce(self._smoothed(difference, beta), reduction)

    def huber_loss(
        self,
        x: Array,
        target: Array,
        reduction: str = "mean",
        delta: float = 1.0,
        weight: Array | None = None,
    ) -> Array:
        """``0.5 * d * d`` where the distance d is below `delta`, else linear with slope `delta`.

        With a `weight` for each element, the mean is still over the number of elements.
        """
        self._same_shape("huber_loss", x, target)
        if delta <= 0:
            raise SettingError(f"huber_loss: delta={delta!r} must be above 0")
        loss = delta * self._smoothed(x - target, delta)
        return self._reduce(loss, reduction, weight)

    def _smoothed(self, difference: Array, beta: float) -> Array:
        distance = self.abs(difference)
        is_near = distance < beta
        near = self.where(is_near, difference, 0.0)  # whose square does not overflow
        return self.where(is_near, 0.5 * near * near / beta, distance - 0.5 * beta)

    def poisson_nll_loss(
        self,
        x: Array,
        target: Array,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Array:
        """The negative logarithm of a Poisson distribution's probability of `target`.

        Args:
            x: The expected count, or its logarithm.
            target: Counts.
            log_input: Whether `x` is the logarithm.
            full: Whether to add Stirling's approximation of ``log(target!)``.
            eps: Added to `x` before the logarithm.
            reduction: The reduction over all elements.
        """
        self._same_shape("poisson_nll_loss", x, target)
        if log_input:
            loss = self.exp(x) - target * x
        else:
            loss = x - target * self.log(x + eps)
        if full:
            above_one = target > 1.0
            safe = self.where(above_one, target, 1.0)
            term = safe * self.log(safe) - safe + 0.5 * self.log(2.0 * math.pi * safe)
            loss = loss + self.where(above_one, term, 0.0)
        return self._reduce(loss, reduction)

    @in_float32
    def gaussian_nll_loss(
        self,
        x: Array,
        target: Array,
        var: Array,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Array:
        """The negative logarithm of a normal distribution's density at `target`.

        Args:
            x: Means.
            target: Samples.
            var: Variances, for each element or for the last axis as a whole; `eps` at least, which
                changes no gradient.
            full: Whether to add the constant term.
            eps: The smallest variance.
            reduction: The reduction over all elements.

        Raises:
            BatchError: A variance is negative. In a compiled program the loss is NaN then.
        """
        self._same_shape("gaussian_nll_loss", x, target)
        self.checked(var, checks.Between(0.0, math.inf, _VARIANCES))
        if var.ndim == x.ndim - 1:
            var = self.expand_dims(var, -1)
        var = self._raised(self.where(var < 0.0, math.nan, var), eps)
        difference = x - target
        loss = 0.5 * (self.log(var) + difference * difference / var)
        if full:
            loss = loss + 0.5 * math.log(2.0 * math.pi)
        return self._reduce(loss, reduction)

    # Two classes, written as -1 and 1, and several labels

    def soft_margin_loss(
        self, x: Array, target: Array, reduction: str = "mean"
    ) -> Array:
        """``log(1 + exp(-target * x))`` for targets -1 and 1."""
        self._same_shape("soft_margin_loss", x, target)
        return self._reduce(self.exact_softplus(-target * x), reduction)

    def hinge_embedding_loss(
        self, x: Array, target: Array, margin: float = 1.0, reduction: str = "mean"
    ) -> Array:
        """`x` for targets 1, ``max(0, margin - x)`` for targets -1."""
        self._same_shape("hinge_embedding_loss", x, target)
        apart = self.where(target != 1, self._above_zero(margin - x), 0.0)
        together = self.where(target != -1, x, 0.0)
        return self._reduce(apart + together, reduction)

    def multi_margin_loss(
        self,
        x: Array,
        target: Array,
        p: int = 1,
        margin: float = 1.0,
        weight: Array | None = None,
        reduction: str = "mean",
    ) -> Array:
        """The mean over the other classes of ``max(0, margin - x[label] + x[other]) ** p``.

        Shapes:
            ``(batch, classes)`` and labels ``(batch,)`` give a scalar.
        """
        self._check_label_shape(x, target, "multi_margin_loss")
        weight = self._class_weight(weight, x, "multi_margin_loss")
        if x.ndim > 2:
            raise checks.shape_error("multi_margin_loss", "(batch, classes)", x)
        checks.one_of(p, (1, 2), "multi_margin_loss: p")
        own = self.expand_dims(self._at_label(x, target), 1)
        terms = self.relu(margin - own + x)
        if p == 2:
            terms = terms * terms
        if weight is not None:
            terms = terms * self.expand_dims(self.select(weight, target, 0), 1)
        others = 1.0 - self.one_hot(target, x.shape[1], like=x)
        return self._reduce(self.mean(terms * others, 1), reduction)

    def multilabel_margin_loss(
        self, x: Array, target: Array, reduction: str = "mean"
    ) -> Array:
        """The sum over labels and other classes of ``max(0, 1 - x[label] + x[other]) / classes``.

        Args:
            x: Scores.
            target: The labels of each sample, and -1 behind the last one.
            reduction: The reduction over samples.

        Shapes:
            ``(batch, classes)`` twice give a scalar; so do ``(classes,)`` twice.
        """
        self._same_shape("multilabel_margin_loss", x, target)
        checks.whole_numbers(target, "multilabel_margin_loss: target")
        if x.ndim == 1:
            losses = self.multilabel_margin_loss(x[None], target[None], reduction)
            return losses[0] if reduction == "none" else losses
        # 1 before the first -1, 0 from there
        counts = self.cumprod(self.cast(target >= 0, x), 1)
        labels = self.where(counts > 0, target, target * 0)
        self.checked(
            labels, checks.InRange(x.shape[1], "multilabel_margin_loss: target")
        )
        own = self.expand_dims(self.select_along(x, labels, 1), 2)  # (batch, labels, 1)
        is_label = self.scatter_add(x * 0, 1, labels, counts) > 0
        others = self.expand_dims(self.where(is_label, x * 0, x * 0 + 1), 1)
        factors = self.expand_dims(counts, 2) * others
        terms = self.relu(1.0 - own + self.expand_dims(x, 1)) * self.stop_gradient(
            factors
        )
        return self._reduce(self.sum(terms, (1, 2)) * (1.0 / x.shape[1]), reduction)

    def multilabel_soft_margin_loss(
        self,
        x: Array,
        target: Array,
        weight: Array | None = None,
        reduction: str = "mean",
    ) -> Array:
        """The mean over classes of the binary cross-entropy of scores.

        Shapes:
            ``(batch, ..., classes)`` twice give a scalar.
        """
        terms = self.bce_with_logits(x, target, weight, reduction="none")
        return self._reduce(self.mean(terms, -1), reduction)

    # Ranking and embeddings

    def margin_ranking_loss(
        self,
        input1: Array,
        input2: Array,
        target: Array,
        margin: float = 0,
        reduction: str = "mean",
    ) -> Array:
        """``max(0, margin - target * (input1 - input2))`` for targets -1 and 1."""
        self._as_many_axes("margin_ranking_loss", input1, input2, target)
        return self._reduce(
            self._above_zero(-target * (input1 - input2) + margin), reduction
        )

    @in_float32
    def cosine_embedding_loss(
        self,
        input1: Array,
        input2: Array,
        target: Array,
        margin: float = 0,
        reduction: str = "mean",
    ) -> Array:
        """``1 - cos`` for targets 1, ``max(0, cos - margin)`` for targets -1.

        Shapes:
            ``(batch, width)`` twice and ``(batch,)`` give a scalar.
        """
        tiny = 1e-12  # within the roots, as PyTorch has it
        size1 = self.sum(input1 * input1, -1) + tiny
        size2 = self.sum(input2 * input2, -1) + tiny
        cosine = self.sum(input1 * input2, -1) / self.sqrt(size1 * size2)
        self._as_many_axes("cosine_embedding_loss: cosines and targets", cosine, target)
        together = self.where(target == 1, 1.0 - cosine, 0.0)
        apart = self.where(target == -1, self._above_zero(cosine - margin), 0.0)
        return self._reduce(together + apart, reduction)

    def triplet_margin_loss(
        self,
        anchor: Array,
        positive: Array,
        negative: Array,
        margin: float = 1.0,
        p: float = 2,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Array:
        """``max(0, margin + d(anchor, positive) - d(anchor, negative))``.

        The distances are those of `pairwise_distance`. Source: Balntas et al. 2016.

        Args:
            anchor, positive, negative: ``(..., width)``.
            margin: How much nearer the positive has to be.
            p, eps: Of the distances.
            swap: Whether the distance of positive and negative counts if that is smaller.
            reduction: The reduction over all triplets.
        """

        def distance(x: Array, y: Array) -> Array:
            return self.pairwise_distance(x, y, p, eps)

        return self.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=distance,
            margin=margin,
            swap=swap,
            reduction=reduction,
        )

    def triplet_margin_with_distance_loss(
        self,
        anchor: Array,
        positive: Array,
        negative: Array,
        *,
        distance_function: Callable[[Array, Array], Array] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Array:
        """`triplet_margin_loss` with a distance of one's own; `pairwise_distance` by default."""
        self._as_many_axes("triplet_margin_loss", anchor, positive, negative)
        distance = distance_function or self.pairwise_distance
        near = distance(anchor, positive)
        far = distance(anchor, negative)
        if swap:
            far = self.minimum(far, distance(positive, negative))
        return self._reduce(self._above_zero(margin + near - far), reduction)

    def _above_zero(self, x: Array) -> Array:
        """``max(x, 0)`` with derivative 1 at 0, as PyTorch's losses have it."""
        return self.where(x < 0, 0.0, x)  # NaN stays
