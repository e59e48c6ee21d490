"""Losses that compare one distribution with another."""

import math

from deliralike.errors import ArgumentError
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array


class DistributionLosses(Losses):
    """Kullback-Leibler divergences."""

    def kl_divergence(
        self,
        log_prediction: Array,
        target: Array,
        dim: int = 1,
        reduction: str = "mean",
    ) -> Array:
        """The divergence of predicted probabilities from target probabilities.

        It is the sum of ``t * (log t - log p)``.

        Args:
            log_prediction: Logarithms of probabilities, as `log_softmax` gives them.
            target: Probabilities; where one is zero its term is zero.
            dim: The axis of the classes.
            reduction: The reduction over all other axes: ``"mean"``, ``"sum"`` or ``"none"``.

        Shapes:
            Two arrays of one shape give a scalar, or the shape without the axis `dim` for
            ``"none"``.
        """
        self._same_shape("kl_divergence", log_prediction, target)
        log_target = self.log(self.where(target > 0.0, target, 1.0))
        return self._reduce(
            self.sum(target * (log_target - log_prediction), dim), reduction
        )

    def kl_div(
        self, x: Array, target: Array, reduction: str = "mean", log_target: bool = False
    ) -> Array:
        """The terms ``t * (log t - log p)`` of the divergence, over all elements.

        Args:
            x: Logarithms of the predicted probabilities.
            target: Probabilities, or their logarithms.
            reduction: ``"batchmean"`` (the sum divided by the batch size, which is the
                divergence), ``"mean"`` over all elements, ``"sum"`` or ``"none"``.
            log_target: Whether `target` holds logarithms.

        Shapes:
            Two arrays of one shape give a scalar, or that shape for ``"none"``.
        """
        self._same_shape("kl_div", x, target)
        if log_target:
            terms = self.exp(target) * (target - x)
        else:
            terms = self.xlogy(target, target) - target * x
        if reduction != "batchmean":
            return self._reduce(terms, reduction)
        batch = x.shape[0] if x.ndim else 1
        return self.sum(terms) * (1.0 / batch if batch else math.nan)

    def kl_gaussian(
        self,
        mu: Array,
        logvar: Array,
        prior_mu: Array | None = None,
        prior_logvar: Array | None = None,
        reduction: str = "mean",
    ) -> Array:
        """The divergence of independent normal distributions from the standard normal one.

        With `prior_mu` and `prior_logvar` it is the divergence from those distributions.

        Source: Kingma and Welling 2013, arXiv 1312.6114, appendix B.

        Args:
            mu, logvar: Means, and logarithms of the variances.
            prior_mu, prior_logvar: The same of the other distributions; either both or none.
            reduction: The reduction over all elements: ``"mean"``, ``"sum"`` (as in that paper,
                over a batch) or ``"none"``.

        Shapes:
            Arrays of one shape give a scalar, or that shape for ``"none"``.
        """
        self._same_shape("kl_gaussian", mu, logvar)
        if (prior_mu is None) is not (prior_logvar is None):
            raise ArgumentError(
                "kl_gaussian: prior_mu and prior_logvar belong together: give both or none"
            )
        if prior_mu is None or prior_logvar is None:
            divergence = 0.5 * (mu * mu + self.exp(logvar) - 1.0 - logvar)
            return self._reduce(divergence, reduction)
        self._same_shape("kl_gaussian", prior_mu, prior_logvar)
        self._same_shape("kl_gaussian", mu, prior_mu)
        shift = mu - prior_mu
        ratio = self.exp(logvar - prior_logvar) + shift * shift * self.exp(
            -prior_logvar
        )
        return self._reduce(0.5 * (ratio - 1.0 - logvar + prior_logvar), reduction)
