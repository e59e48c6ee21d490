"""What happens when validation no longer improves: the run ends, or the learning rate falls."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from deliralike.errors import SettingError, whole_number
from deliralike.optim.rules import number
from deliralike.training.callbacks.callback import Callback
from deliralike.training.callbacks.monitor import Monitor
from deliralike.training.history import Epoch
from deliralike.training.run import Run


class Patience(Callback):
    """The base of callbacks that wait for a metric to improve.

    Attributes:
        best: The best value so far; None when there is none.
        best_epoch: The epoch of the best value, from 0.
        waited: The number of epochs since.
    """

    fields: ClassVar[tuple[str, ...]] = ("best", "best_epoch", "waited")

    def __init__(
        self, monitor: str, mode: str, patience: int, min_delta: float
    ) -> None:
        """Check the settings."""
        self.monitor = Monitor(monitor, mode, min_delta)
        self.patience = whole_number("patience", patience, 0)
        self.reset()

    def reset(self) -> None:
        """Forget the best epoch."""
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.waited = 0

    def observe(self, epoch: int, value: float) -> bool:
        """Record an epoch's value, and return whether the patience has ended."""
        if self.monitor.is_better(value, than=self.best):
            self.best = value
            self.best_epoch = epoch
            self.waited = 0
            return False
        self.waited += 1
        return self.waited >= self.patience


class EarlyStopping(Patience):
    """End the run after `patience` epochs in a row in which a metric has not improved.

    NaN is never an improvement. So a run of NaN alone ends too, without a best epoch.

    Args:
        monitor: The metric on validation data.
        mode: ``"min"`` where less is better, ``"max"`` where more is.
        patience: As in Keras and Lightning; 0 is the same as 1, the first epoch that is not better.
        min_delta: The least difference by which a value must be better than the best one.
        restore_best: Put the weights of the best epoch back at the end, those that were evaluated:
            averaged ones where the trainer averages. They are kept in the host's memory, and in
            checkpoints. After an error or Ctrl-C the weights stay as they are, so that the run can
            be resumed.

    Raises:
        SettingError: An option makes no sense.
        UnknownName: Before the first step: there will be no such metric; the nearest is named. If
            another callback may add figures, it is after the first epoch.

    Example:
        >>> stopping = EarlyStopping("loss", patience=2)
        >>> losses = [1.0, 0.5, 0.7, float("nan")]
        >>> [stopping.observe(epoch, loss) for epoch, loss in enumerate(losses)]
        [False, False, False, True]
        >>> stopping.best_epoch
        1
    """

    fields = (*Patience.fields, "weights")

    def __init__(
        self,
        monitor: str = "loss",
        *,
        mode: str = "min",
        patience: int = 5,
        min_delta: float = 0.0,
        restore_best: bool = False,
    ) -> None:
        """Check the settings."""
        self.restore_best = restore_best
        super().__init__(monitor, mode, patience, min_delta)

    def reset(self) -> None:
        """Forget the best epoch and its weights."""
        super().reset()
        self.weights: dict[str, np.ndarray] | None = None

    def on_start(self, run: Run) -> None:
        """End a run at once if it is resumed after its last epoch; each `fit` begins anew."""
        if run.goes_on:
            self.reset()
        if self.waited and self.waited >= self.patience:
            run.stop(self._reason())

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Observe the epoch; keep its weights if it is the best one."""
        is_last = self.observe(epoch.epoch, self.monitor.value(epoch))
        if self.restore_best and self.best_epoch == epoch.epoch:
            with run.evaluated():
                self.weights = run.network.neutral_state()
        if is_last:
            run.stop(self._reason())

    def on_end(self, run: Run) -> None:
        """Put the best weights back; an average of the weights begins anew with them."""
        if self.weights is not None and run.is_complete:
            run.network.load_neutral_state(self.weights)
            if run.trainer.average is not None:
                run.trainer.average.reset()

    def _reason(self) -> str:
        name = self.monitor.metric
        epochs = "1 epoch" if self.waited == 1 else f"{self.waited} epochs"
        if self.best is None:
            return f"{name} has been NaN for {epochs}"
        return f"{name} has not been better than {self.best:.6g} for {epochs}"


class ReduceLROnPlateau(Patience):
    """Multiply the learning rates by `factor` when a metric has not improved for some epochs.

    The rates of a schedule fall, too. NaN is never an improvement. A callback that adds the metric
    stands before this one.

    Args:
        monitor: The metric on validation data.
        mode: ``"min"`` where less is better, ``"max"`` where more is.
        factor: The number by which learning rates are multiplied.
        patience: The number of epochs in a row without an improvement; after that many more they
            fall again. PyTorch waits for one more.
        min_delta: The least difference by which a value must be better than the best one.

    Attributes:
        scale: What the learning rates have been multiplied by so far.

    Raises:
        SettingError: An option makes no sense.
        UnknownName: Before the first step: there will be no such metric.
    """

    fields = (*Patience.fields, "scale")

    def __init__(
        self,
        monitor: str = "loss",
        *,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 0.0,
    ) -> None:
        """Check the settings."""
        self.factor = number(factor, "factor")
        if factor >= 1:
            raise SettingError(f"factor={factor!r} must be below 1")
        super().__init__(monitor, mode, patience, min_delta)

    def reset(self) -> None:
        """Forget the values of the run before."""
        super().reset()
        self.scale = 1.0

    def on_start(self, run: Run) -> None:
        """Go on with the scale so far; raise an error where an optimizer hides its rate."""
        for optimizer in run.optimizers.values():
            _ = optimizer.lr
        run.trainer.lr_scale = self.scale

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Observe the epoch; a schedule sets its own rate before the next update."""
        if not self.observe(epoch.epoch, self.monitor.value(epoch)):
            return
        self.waited = 0
        self.scale *= self.factor
        run.trainer.lr_scale = self.scale
        for name, optimizer in run.optimizers.items():
            base = run.trainer.base_lr[name]
            if base is not None:
                optimizer.lr = base * self.scale
