"""Losses of segmentations, by the overlap of regions or the distance of their boundaries."""

from deliralike.errors import SettingError, ShapeError
from deliralike.nn import checks
from deliralike.nn.arguments import in_float32
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array
from deliralike.nn.start import Shape


class OverlapLosses(Losses):
    """Functions from probabilities and one-hot labels (or distances, or logits) to a loss."""

    @in_float32
    def dice_loss(
        self,
        probabilities: Array,
        target: Array,
        smooth: float = 1e-5,
        include_background: bool = True,
        reduction: str = "mean",
    ) -> Array:
        """One minus the soft Dice coefficient of each sample and class.

        Source: Milletari 2016, arXiv 1606.04797.

        Args:
            probabilities: The network's outputs after softmax or sigmoid.
            target: One-hot labels of the same shape.
            smooth: Added to numerator and denominator.
            include_background: Whether channel 0 counts.
            reduction: The reduction over samples and classes: ``"mean"``, ``"sum"`` or ``"none"``.

        Shapes:
            ``(batch, classes, ...)`` twice gives a scalar, or ``(batch, classes)`` for ``"none"``.
        """
        probabilities, target, dims = self._regions(
            "dice_loss", probabilities, target, include_background
        )
        overlap = self.sum(probabilities * target, dims)
        total = self.sum(probabilities, dims) + self.sum(target, dims)
        return self._reduce(_dice_loss(overlap, total, smooth), reduction)

    def dice_ce_loss(
        self,
        logits: Array,
        target: Array,
        smooth: float = 1e-5,
        include_background: bool = True,
        dice_weight: float = 1.0,
        ce_weight: float = 1.0,
    ) -> Array:
        """The sum of Dice loss and cross-entropy, from logits and class numbers.

        MONAI's ``DiceCELoss(to_onehot_y=True, softmax=True)``. Source: Isensee et al. 2021,
        Nature Methods 18, 203.

        Args:
            logits: The network's outputs, before softmax.
            target: Whole numbers below the number of classes.
            smooth, include_background: As in `dice_loss`; cross-entropy counts all classes.
            dice_weight, ce_weight: The factors of the two terms.

        Shapes:
            ``(batch, classes, ...)`` and ``(batch, ...)`` give a scalar.
        """
        entropy = self.cross_entropy(logits, target)
        labels = self.one_hot(target, logits.shape[1], like=logits)
        probabilities = self.exp(self.log_softmax(logits, dim=1))
        dice = self.dice_loss(probabilities, labels, smooth, include_background)
        return dice_weight * dice + ce_weight * entropy

    @in_float32
    def generalized_dice_loss(
        self,
        probabilities: Array,
        target: Array,
        smooth: float = 1e-5,
        include_background: bool = True,
        reduction: str = "mean",
    ) -> Array:
        """One minus a soft Dice coefficient over all classes.

        Each class is weighted by one over its squared volume.

        A class that a sample lacks has the largest weight of those that it has, as in MONAI.
        Source: Sudre et al. 2017, arXiv 1707.03237.

        Args:
            probabilities, target, smooth, include_background: As in `dice_loss`.
            reduction: The reduction over samples: ``"mean"``, ``"sum"`` or ``"none"``.

        Shapes:
            ``(batch, classes, ...)`` twice gives a scalar, or ``(batch,)`` for ``"none"``.
        """
        probabilities, target, dims = self._regions(
            "generalized_dice_loss", probabilities, target, include_background
        )
        volume = self.sum(target, dims)  # (batch, classes)
        present = volume > 0.0
        safe = self.where(present, volume, 1.0)
        weight = self.where(present, 1.0 / (safe * safe), 0.0)
        largest = self.max_along(weight, 1, keepdim=True)
        weight = self.where(present, weight, self.broadcast_to(largest, weight.shape))
        overlap = self.sum(weight * self.sum(probabilities * target, dims), 1)
        total = self.sum(weight * (self.sum(probabilities, dims) + volume), 1)
        return self._reduce(_dice_loss(overlap, total, smooth), reduction)

    @in_float32
    def tversky_loss(
        self,
        probabilities: Array,
        target: Array,
        alpha: float = 0.5,
        beta: float = 0.5,
        gamma: float = 1.0,
        smooth: float = 1e-5,
        include_background: bool = True,
        reduction: str = "mean",
    ) -> Array:
        """One minus the Tversky index of each sample and class.

        With a `gamma` it is the focal Tversky loss.

        Source: Salehi et al. 2017, arXiv 1706.05721; Abraham and Khan 2018, arXiv 1810.07842.

        Args:
            probabilities, target, include_background, reduction: As in `dice_loss`.
            alpha: The weight of false positives.
            beta: The weight of false negatives. Halves make the soft Dice coefficient.
            gamma: The power to which the loss of each class is raised. Abraham and Khan state its
                inverse: their 4/3 is 0.75 here.
            smooth: Added to numerator and denominator.

        Shapes:
            ``(batch, classes, ...)`` twice gives a scalar, or ``(batch, classes)`` for ``"none"``.
        """
        probabilities, target, dims = self._regions(
            "tversky_loss", probabilities, target, include_background
        )
        overlap = self.sum(probabilities * target, dims)
        too_much = self.sum(probabilities * (1.0 - target), dims)
        missed = self.sum((1.0 - probabilities) * target, dims)
        index = (overlap + smooth) / (
            overlap + alpha * too_much + beta * missed + smooth
        )
        return self._reduce(self._power(1.0 - index, gamma), reduction)

    def boundary_loss(
        self,
        probabilities: Array,
        distances: Array,
        include_background: bool = True,
        reduction: str = "mean",
    ) -> Array:
        """Probabilities times the signed distance to the true boundary.

        The distance is negative inside and positive outside.

        To be added to a loss of regions. Source: Kervadec et al. 2019, arXiv 1812.07032.

        Args:
            probabilities: The network's outputs after softmax or sigmoid.
            distances: One map for each class, made on the host.
            include_background: Whether channel 0 counts; in the paper it does not.
            reduction: The reduction over all elements: ``"mean"``, ``"sum"`` or ``"none"``.

        Shapes:
            ``(batch, classes, ...)`` twice gives a scalar.
        """
        probabilities, distances, _ = self._regions(
            "boundary_loss", probabilities, distances, include_background
        )
        return self._reduce(probabilities * distances, reduction)

    def _regions(
        self, name: str, probabilities: Array, target: Array, include_background: bool
    ) -> tuple[Array, Array, Shape]:
        """Both arrays, without channel 0 if it does not count, and the spatial axes."""
        per_place = probabilities.shape[0], *probabilities.shape[2:]
        if tuple(target.shape) == per_place and not checks.is_floating(target):
            raise ShapeError(
                f"{name}: shapes {tuple(probabilities.shape)} and {tuple(target.shape)} differ: "
                "class numbers are for dice_ce_loss(logits, target), or become one-hot labels by "
                f"one_hot(target, {probabilities.shape[1]}, like=probabilities)"
            )
        target = self._target(name, probabilities, target)
        if not include_background:
            if probabilities.shape[1] == 1:
                raise SettingError(
                    f"{name}: include_background=False leaves out channel 0, and there is only "
                    "one channel, which would be left out"
                )
            probabilities = probabilities[:, 1:]
            target = target[:, 1:]
        return probabilities, target, tuple(range(2, probabilities.ndim))


def _dice_loss(overlap: Array, total: Array, smooth: float) -> Array:
    """One minus the soft Dice coefficient of regions with an overlap and a total size."""
    return 1.0 - (2.0 * overlap + smooth) / (total + smooth)
