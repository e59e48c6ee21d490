"""The bases of callbacks that hand the values of a run to another program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from deliralike.network.steps import TOTAL
from deliralike.training.callbacks.writer import StepWriter
from deliralike.training.fields import TEXT
from deliralike.training.history import Epoch, Step, rates
from deliralike.training.run import Run


class Tracker(StepWriter):
    """Hand on values of steps as ``train/…`` and metrics of epochs as ``validation/…``.

    The values of a step are losses, learning rates and speed. A subclass calls `flush` before its
    program ends.
    """

    @abstractmethod
    def log(self, values: Mapping[str, float], step: int) -> None:
        """Hand on values by name at a step."""

    def write_step(self, step: Step) -> None:
        """Hand on a step."""
        values = {f"train/{name}": value for name, value in scalars(step).items()}
        self.log(values, step.step)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Hand on its steps, and the metrics at the last step of the epoch."""
        super().on_epoch(run, epoch)
        values = {f"validation/{name}": value for name, value in epoch.held_out.items()}
        if values:
            self.log(values, epoch.steps - 1)


class TrackedRun(Tracker):
    """A tracker whose program has runs by id, so that a resumed run goes on in the same one.

    Attributes:
        id: The id of the run; None before it begins.
    """

    id: str | None = None
    fields = {"id": TEXT.or_none()}

    def reset(self) -> None:
        """Begin another run."""
        self.id = None


def scalars(step: Step) -> dict[str, float]:
    """Return the values of a step by name: losses, learning rates and speed."""
    scalars = {TOTAL: step.loss, **step.losses}
    for tag, lr in rates(step).items():
        if lr is not None:
            scalars[tag] = lr
    seconds = step.seconds + step.data_seconds or 1e-9
    scalars["samples_per_second"] = step.samples / seconds
    return scalars
