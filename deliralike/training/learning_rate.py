"""The learning-rate finder: short training at growing learning rates, which leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.errors import ArgumentError, SettingError, suggestion, whole_number
from deliralike.network.closure import MAIN
from deliralike.optim.rules import number
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Step
from deliralike.training.run import Run
from deliralike.training.schedules import Schedule
from deliralike.training.state import without_trace
from deliralike.training.trainer import Trainer

RULES = ("steepest", "minimum")


@dataclass(frozen=True)
class LearningRates:
    """The losses of a range of learning rates, which grow from step to step.

    Attributes:
        rates: The learning rate of each step.
        losses: The training loss of each step.
        smoothed: Their exponential average, divided by the sum of its weights.
        diverged: Whether the loss grew beyond its bound, or was not finite, before the last rate.

    Example:
        >>> curve = LearningRates([0.01, 0.1, 1.0, 10.0], [1, 0.9, 0.1, 3], [1, 0.9, 0.1, 3], True)
        >>> curve.suggestion, round(curve.suggest("minimum"), 3)
        (1.0, 0.1)
    """

    rates: list[float]
    losses: list[float]
    smoothed: list[float]
    diverged: bool = False

    @property
    def suggestion(self) -> float:
        """The suggested learning rate; see `suggest`."""
        return self.suggest()

    def suggest(self, rule: str = "steepest") -> float:
        """Return the learning rate that a rule finds on the curve.

        Args:
            rule: ``"steepest"``: where the smoothed loss falls fastest with the logarithm of the
                rate, before its smallest value (backward differences). ``"minimum"``: a tenth of
                the rate with the smallest smoothed loss. The first tenth of the steps is left out,
                since few losses are averaged there.

        Raises:
            SettingError: There is no such rule, or the smoothed loss falls nowhere.
        """
        if rule not in RULES:
            raise SettingError(
                f"rule={rule!r} must be one of {', '.join(map(repr, RULES))}"
            )
        first = len(self.rates) // 10
        smallest = first + int(np.argmin(self.smoothed[first:]))
        if rule == "minimum":
            return self.rates[smallest] / 10.0
        falls = -np.diff(self.smoothed[first : smallest + 1])
        if not len(falls) or falls.max() <= 0.0:
            raise SettingError(
                f"the smoothed loss falls at no learning rate from {self.rates[0]:.3g} to "
                f"{self.rates[-1]:.3g}: begin at a smaller one, or take more steps"
            )
        return self.rates[first + 1 + int(np.argmax(falls))]


def find_learning_rate(
    trainer: Trainer,
    train: Any,
    *,
    start: float = 1e-7,
    end: float = 10.0,
    steps: int = 100,
    smoothing: float = 0.9,
    bound: float = 4.0,
    batch_size: int = 32,
    optimizer: str = MAIN,
) -> LearningRates:
    """Find a learning rate: train with exponentially growing ones, and record the losses.

    The steps are those of ``trainer.fit(train)`` with another schedule, so a rate is suggested for
    its accumulation, clipping, precision and replicas; its callbacks and schedules rest. The search
    ends early when the smoothed loss is above `bound` times its smallest value, or the loss is not
    finite. Afterwards weights, buffers, optimizers, averages and random generators are as they were
    before, after an error as well. Gradients that a framework keeps beside its parameters are those
    of the last step. In float64 the curve is the same on every backend.

    Args:
        trainer: The trainer, whose optimizer's rate does not change: make its rule with the one
            that is suggested.
        train, batch_size: The data, as `Trainer.fit` takes them.
        start, end: The rates of the first and of the last step.
        steps: The number of steps; an epoch begins anew where the data are fewer.
        smoothing: The weight of the old average in the smoothed loss.
        bound: The multiple of the smallest smoothed loss at which the search ends.
        optimizer: The name of the optimizer whose rate grows, where there are several.

    Raises:
        SettingError: The rates do not grow, or a setting makes no sense.
        ArgumentError: There is no such optimizer.

    Source: Smith 2017, arXiv 1506.01186, section 3.3.

    Example:
        >>> from deliralike import rules, zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
        >>> samples = np.eye(3, dtype=np.float32), np.arange(3) % 2
        >>> trainer = Trainer(net, rules.rule("sgd", lr=0.1))
        >>> curve = find_learning_rate(trainer, samples, steps=30)
        >>> len(curve.rates), 1e-7 < curve.suggestion < 10
        (30, True)
    """
    _check(start, end, steps, smoothing, bound)
    if optimizer not in trainer.optimizers:
        known = suggestion(optimizer, trainer.optimizers)
        raise ArgumentError(f"the trainer has no optimizer {optimizer!r}. {known}")
    watch = _Watch(steps, smoothing, bound, optimizer)
    ratio = (end / start) ** (1.0 / (steps - 1))
    growing = _Growing(trainer.optimizers[optimizer].steps, ratio)
    probe = trainer.probe([watch], {optimizer: growing}, {optimizer: start})
    epochs = 1 if isinstance(train, Iterator) else steps
    with without_trace(trainer):
        probe.fit(train, epochs=epochs, batch_size=batch_size)
    return LearningRates(watch.rates, watch.losses, watch.smoothed, watch.diverged)


def _check(
    start: float, end: float, steps: int, smoothing: float, bound: float
) -> None:
    """Refuse settings that make no sense."""
    if not 0.0 < number(start, "start") < number(end, "end"):
        raise SettingError(f"start={start!r} must be above 0 and below end={end!r}")
    whole_number("steps", steps, 3)
    if number(smoothing, "smoothing") >= 1.0:
        raise SettingError(f"smoothing={smoothing!r} must be below 1")
    if number(bound, "bound") <= 1.0:
        raise SettingError(f"bound={bound!r} must be above 1")


@dataclass(frozen=True)
class _Growing(Schedule):
    """A factor that grows by a ratio with each step after the first ones."""

    first: int
    ratio: float

    def factor(self, steps: int) -> float:
        """Return the factor of a step."""
        return self.ratio ** (steps - self.first)


class _Watch(Callback):
    """Records rates and losses, and ends the run."""

    watches_nan = True

    def __init__(
        self, steps: int, smoothing: float, bound: float, optimizer: str
    ) -> None:
        self.rates: list[float] = []
        self.losses: list[float] = []
        self.smoothed: list[float] = []
        self.diverged = False
        self._steps, self._smoothing, self._bound = steps, smoothing, bound
        self._optimizer = optimizer
        self._average = 0.0
        self._weight = 0.0

    def on_step(self, run: Run, step: Step) -> None:
        """Record a step."""
        loss = step.loss
        if not math.isfinite(loss):
            self._diverge(run)
            return
        self._average = self._smoothing * self._average + (1.0 - self._smoothing) * loss
        self._weight = self._smoothing * self._weight + (1.0 - self._smoothing)
        smoothed = self._average / self._weight
        lr: Any = step.lr
        self.rates.append(lr[self._optimizer] if isinstance(lr, Mapping) else lr)
        self.losses.append(loss)
        self.smoothed.append(smoothed)
        if smoothed > self._bound * min(self.smoothed):
            self._diverge(run)
        elif len(self.rates) == self._steps:
            run.stop("all learning rates have been tried")

    def _diverge(self, run: Run) -> None:
        self.diverged = True
        run.stop("the loss has diverged")
