"""Losses of a generator and a discriminator, and penalties on the discriminator's gradient."""

from collections.abc import Callable

from deliralike.errors import SettingError, ShapeError, suggestion
from deliralike.nn.losses import Losses
from deliralike.nn.primitives import Array

KINDS = ("non-saturating", "least-squares", "hinge", "wasserstein")


class AdversarialLosses(Losses):
    """Functions of the scores of a discriminator (or critic) before any sigmoid.

    Each loss is a mean over all scores.
    """

    def discriminator_loss(
        self, real: Array, fake: Array, kind: str = "non-saturating"
    ) -> Array:
        """Return the discriminator's loss.

        It is small where real samples have high scores and generated ones low scores.

        Args:
            real: The scores of real samples.
            fake: The scores of generated samples, which are best cut off from the generator by
                `stop_gradient`.
            kind: ``"non-saturating"`` (binary cross-entropy; Goodfellow et al. 2014, arXiv
                1406.2661), ``"least-squares"`` (halved, towards 1 and 0; Mao et al. 2017, arXiv
                1611.04076), ``"hinge"`` (Lim and Ye 2017, arXiv 1705.02894) or ``"wasserstein"``
                (Arjovsky et al. 2017, arXiv 1701.07875).

        Shapes:
            Two arrays of any shapes give a scalar.
        """
        _check(kind, "discriminator_loss")
        if kind == "wasserstein":
            return self.mean(fake) - self.mean(real)
        if kind == "hinge":
            return self.mean(self.relu(1.0 - real)) + self.mean(self.relu(1.0 + fake))
        if kind == "least-squares":
            distance = real - 1.0
            return 0.5 * (self.mean(distance * distance) + self.mean(fake * fake))
        return self.mean(self.exact_softplus(-real)) + self.mean(
            self.exact_softplus(fake)
        )

    def generator_loss(self, fake: Array, kind: str = "non-saturating") -> Array:
        """Return the generator's loss, which is small for high scores of generated samples.

        Args:
            fake: The scores of generated samples.
            kind: As in `discriminator_loss`.

        Shapes:
            An array of any shape gives a scalar.
        """
        _check(kind, "generator_loss")
        if kind == "least-squares":
            distance = fake - 1.0
            return 0.5 * self.mean(distance * distance)
        if kind == "non-saturating":
            return self.mean(self.exact_softplus(-fake))
        return -self.mean(fake)

    def gradient_penalty(
        self,
        critic: Callable[[Array], Array],
        real: Array,
        fake: Array,
        mix: Array,
        target: float = 1.0,
    ) -> Array:
        """Return the mean squared distance of the critic's gradient norm from `target` (WGAN-GP).

        The gradient is taken between two batches. The source multiplies the penalty by 10.

        Source: Gulrajani et al. 2017, arXiv 1704.00028.

        Args:
            critic: A network from samples to scores, one or several for each sample, or a function
                that calls one.
            real, fake: Two batches; the generated one is best cut off from the generator by
                `stop_gradient`.
            mix: For each sample, the point between the two where the gradient is taken: uniform
                random numbers from 0 (at the generated one) to 1 (at the real one). They are an
                input, so that a step can be repeated.
            target: The desired norm.

        Shapes:
            ``(batch, ...)`` twice and ``(batch,)`` give a scalar.
        """
        self._same_shape("gradient_penalty", real, fake)
        if tuple(mix.shape) != (real.shape[0],):
            raise ShapeError(
                f"gradient_penalty: mix has shape {tuple(mix.shape)}, wanted ({real.shape[0]},)"
            )
        axes = (1,) * (real.ndim - 1)
        share = self.reshape(mix, (-1, *axes))
        between = share * real + (1.0 - share) * fake
        distance = self._root(self._squared_norms(critic, between)) - target
        return self.mean(distance * distance)

    def r1_penalty(self, critic: Callable[[Array], Array], real: Array) -> Array:
        """Return half the mean squared norm of the discriminator's gradient at real samples.

        Source: Mescheder et al. 2018, arXiv 1801.04406.

        Args:
            critic: A network from samples to scores, or a function that calls one.
            real: A batch of real samples.

        Shapes:
            ``(batch, ...)`` gives a scalar.
        """
        return 0.5 * self.mean(self._squared_norms(critic, real))

    def _squared_norms(self, critic: Callable[[Array], Array], x: Array) -> Array:
        """Return the squared norm of the gradient at each sample: (batch,)."""

        def sum_of_scores(samples: Array) -> Array:
            return self.sum(critic(samples))

        gradient = self.flatten(self.gradient(sum_of_scores, x))
        return self.sum(gradient * gradient, 1)


def _check(kind: str, name: str) -> None:
    if kind not in KINDS:
        raise SettingError(
            f"{name}: there is no kind={kind!r}. {suggestion(kind, KINDS)}"
        )
