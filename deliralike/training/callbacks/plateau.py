"""A learning rate that falls when validation no longer improves."""

from __future__ import annotations

from deliralike.errors import SettingError
from deliralike.optim.rules import number
from deliralike.training.callbacks.early_stopping import Patience
from deliralike.training.fields import NUMBER
from deliralike.training.history import Epoch
from deliralike.training.run import Run


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
        minimum: The least that learning rates are multiplied by in all.

    Attributes:
        scale: What the learning rates have been multiplied by so far.

    Raises:
        SettingError: An option makes no sense.
        UnknownName: Before the first step: there will be no such metric.
    """

    fields = {**Patience.fields, "scale": NUMBER}

    def __init__(
        self,
        monitor: str = "loss",
        *,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        min_delta: float = 0.0,
        minimum: float = 0.0,
    ) -> None:
        """Check the settings."""
        self.factor = number(factor, "factor")
        self.minimum = number(minimum, "minimum")
        if factor >= 1 or minimum > 1:
            raise SettingError(
                f"factor={factor!r} must be below 1, minimum={minimum!r} at most 1"
            )
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
        self.scale = max(self.scale * self.factor, self.minimum)
        run.trainer.lr_scale = self.scale
        for name, optimizer in run.optimizers.items():
            base = run.trainer.base_lr[name]
            if base is not None:
                optimizer.lr = base * self.scale
