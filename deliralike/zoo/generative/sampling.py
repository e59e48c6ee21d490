"""How noise is added to pictures step by step, and taken away again by a network: DDPM and DDIM.

The random numbers are drawn on the host, so the pictures are the same on every backend.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deliralike.errors import SettingError
from deliralike.nn import checks, start
from deliralike.zoo.setting_checks import one_of

BETAS = ("linear", "scaled_linear")
METHODS = ("ddpm", "ddim")


@dataclass(frozen=True)
class NoiseSchedule:
    """How much noise a picture has after each step; networks predict the noise.

    Source: Ho et al. 2020, arXiv 2006.11239. Names and numbers are those of diffusers'
    ``DDPMScheduler``, in double precision.

    Attributes:
        num_train_timesteps: Number of steps.
        beta_schedule: How the variances that are added grow: ``"linear"``, or ``"scaled_linear"``
            (their roots do).
        beta_start, beta_end: The first and the last variance.
        clip_sample_range: The largest absolute value of a picture; None for no bound.

    Raises:
        SettingError: A setting makes no sense.

    Example:
        >>> schedule = NoiseSchedule(num_train_timesteps=4, beta_start=0.1, beta_end=0.4)
        >>> schedule.alphas_cumprod.round(4).tolist()
        [0.9, 0.72, 0.504, 0.3024]
        >>> schedule.timesteps(2)
        [2, 0]
    """

    num_train_timesteps: int = 1000
    beta_schedule: str = "linear"
    beta_start: float = 1e-4
    beta_end: float = 0.02
    clip_sample_range: float | None = 1.0

    def __post_init__(self) -> None:
        checks.positive(
            self.num_train_timesteps, "num_train_timesteps", "NoiseSchedule"
        )
        one_of(self.beta_schedule, BETAS, "beta_schedule", "NoiseSchedule")
        if not 0.0 < self.beta_start <= self.beta_end < 1.0:
            raise SettingError(
                f"NoiseSchedule: beta_start={self.beta_start!r} and beta_end={self.beta_end!r}; "
                "wanted variances between 0 and 1, the smaller one first"
            )

    @cached_property
    def alphas_cumprod(self) -> np.ndarray:
        """The share of a picture in the variance after each step, ``(num_train_timesteps,)``."""
        count = self.num_train_timesteps
        if self.beta_schedule == "linear":
            betas = np.linspace(self.beta_start, self.beta_end, count)
        else:
            betas = np.linspace(self.beta_start**0.5, self.beta_end**0.5, count) ** 2
        return np.cumprod(1.0 - betas)

    def timesteps(self, steps: int | None = None) -> list[int]:
        """Return the steps that sampling goes through, from the last to 0, evenly spaced.

        Raises:
            SettingError: There are more than `num_train_timesteps`.
        """
        count = self.num_train_timesteps
        steps = (
            count if steps is None else checks.positive(steps, "steps", "NoiseSchedule")
        )
        if steps > count:
            raise SettingError(
                f"NoiseSchedule: steps={steps}; there are {count} at most"
            )
        return [number * (count // steps) for number in reversed(range(steps))]

    def add_noise(self, nn: Any, x: Any, noise: Any, time: Any) -> Any:
        """Return pictures after some steps.

        Args:
            nn: The vocabulary of the arrays' backend.
            x, noise: ``(batch, ...)``.
            time: Whole numbers ``(batch,)``.
        """
        shape = (x.shape[0], *(1,) * (len(x.shape) - 1))
        y = 0.0
        for array, share in (
            (x, self.alphas_cumprod),
            (noise, 1.0 - self.alphas_cumprod),
        ):
            factors = nn.take(nn.constant(np.sqrt(share), like=x), time)
            y = y + nn.reshape(factors, shape) * array
        return y

    def before(
        self,
        nn: Any,
        x: Any,
        output: Any,
        time: int,
        previous: int | None,
        eta: float | None,
    ) -> tuple[Any, float]:
        """Return mean and standard deviation of pictures at an earlier step.

        Args:
            nn: The vocabulary of the arrays' backend.
            x: Pictures at step `time`.
            output: The noise in them as the network predicts it.
            time: The step.
            previous: The earlier step; None for pictures without noise.
            eta: The share of DDIM's noise; None for DDPM.
        """
        share = float(self.alphas_cumprod[time])
        earlier = 1.0 if previous is None else float(self.alphas_cumprod[previous])
        picture = (x - (1.0 - share) ** 0.5 * output) / share**0.5
        if self.clip_sample_range is not None:
            picture = nn.clamp(picture, -self.clip_sample_range, self.clip_sample_range)
        variance = (1.0 - earlier) / (1.0 - share) * (1.0 - share / earlier)
        if eta is None:
            of_picture = earlier**0.5 * (1.0 - share / earlier) / (1.0 - share)
            of_x = (share / earlier) ** 0.5 * (1.0 - earlier) / (1.0 - share)
            return of_picture * picture + of_x * x, variance**0.5
        deviation = eta * variance**0.5
        direction = max(1.0 - earlier - deviation**2, 0.0) ** 0.5
        return earlier**0.5 * picture + direction * output, deviation


def sample(
    network: Any,
    shape: Sequence[int],
    schedule: NoiseSchedule | None = None,
    *conditions: Any,
    method: str = "ddpm",
    steps: int | None = None,
    eta: float = 0.0,
    seed: int = 0,
    first_sample: int = 0,
) -> Any:
    """Make pictures from noise with a network that tells what noise is in them.

    The random numbers depend on seed, step and the number of the sample alone: the pictures are the
    same on every backend up to rounding, in batches of any size.

    Source: Ho et al. 2020, arXiv 2006.11239 (DDPM); Song et al. 2021, arXiv 2010.02502 (DDIM).

    Args:
        network: It takes pictures, time steps ``(batch,)`` and the conditions; on any backend.
        shape: Of the pictures: ``(batch, channels, *size)``.
        schedule: The one that the network was trained with; ``NoiseSchedule()`` when None.
        conditions: More inputs of the network, as it takes them (a context, labels).
        method: ``"ddpm"`` or ``"ddim"``.
        steps: Number of steps; all of the schedule when None.
        eta: For ``"ddim"``: the share of new noise in each step; 0 for none.
        seed: One whole number.
        first_sample: The number of the batch's first sample.

    Returns:
        An array of the network's backend.

    Raises:
        SettingError: There is no such method, or there are more steps than the schedule has.
    """
    one_of(method, METHODS, "method", "sample")
    schedule = NoiseSchedule() if schedule is None else schedule
    backend = network.backend
    times = schedule.timesteps(steps)
    earlier = [*times[1:], None]
    noise_share = None if method == "ddpm" else eta

    def drawn(step: int) -> Any:
        noise = portable_noise(seed, step, first_sample, shape)
        return backend.prepare(noise.astype(network.dtype_name), network)

    x = drawn(0)
    with network.training_mode(False), backend.evaluating():
        run = backend.program(operator.call, network)
        for number, (time, previous) in enumerate(zip(times, earlier, strict=True), 1):
            now = backend.prepare(np.full(shape[0], time), network)
            output = run(x, now, *conditions)
            x, deviation = schedule.before(
                network.nn, x, output, time, previous, noise_share
            )
            if deviation:
                x = x + deviation * drawn(number)
    return x


def portable_noise(
    seed: int, step: int, first_sample: int, shape: Sequence[int]
) -> np.ndarray:
    """Draw standard normal numbers, each sample's from seed, step and its own number alone.

    Example:
        >>> whole = portable_noise(0, 1, 0, (3, 2))
        >>> bool((whole[1:] == portable_noise(0, 1, 1, (2, 2))).all())
        True
    """
    samples = []
    for index in range(first_sample, first_sample + shape[0]):
        counter = np.array([0, 0, index, step], dtype=np.uint64)
        generator = np.random.Generator(
            np.random.Philox(key=start.key(seed, "noise"), counter=counter)
        )
        samples.append(generator.standard_normal(tuple(shape[1:])))
    return np.stack(samples)
