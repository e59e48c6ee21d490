"""A run in progress: where it is, what it has recorded, and whether it shall stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer
from deliralike.steps import the_optimizer
from deliralike.training.history import History

if TYPE_CHECKING:
    from deliralike.training.trainer import Trainer


@dataclass
class Run:
    """A run in progress, as callbacks see it.

    Attributes:
        trainer: Whose run it is.
        epochs: How many epochs there will be.
        steps_per_epoch: How many updates each of them has; None when the data do not know.
        epoch: The epoch that the next batch belongs to, from 0.
        batch: How many batches of that epoch have been used. ``(epoch, batch)`` is the position of the data.
        step: The number of finished steps, over all epochs.
        history: What has been recorded so far.
        stopped: Why the run stops early; empty while it goes on.
        interrupted: Whether Ctrl-C ended it.
        latest_batch: The batch of the step that was made last, as it came from the data.
    """

    trainer: Trainer
    epochs: int
    steps_per_epoch: int | None = None
    epoch: int = 0
    batch: int = 0
    step: int = 0
    history: History = field(default_factory=History)
    stopped: str = ""
    interrupted: bool = False
    latest_batch: Any = None

    @property
    def network(self) -> AbstractNetwork:
        """The network that is trained."""
        return self.trainer.network

    @property
    def optimizers(self) -> Mapping[str, AbstractOptimizer]:
        """The optimizers by name."""
        return self.trainer.optimizers

    @property
    def optimizer(self) -> AbstractOptimizer:
        """The one that makes the default step."""
        return the_optimizer(self.optimizers)

    def stop(self, reason: str) -> None:
        """End the run after this step or epoch; the first reason stays."""
        self.stopped = self.stopped or reason

    def position(self) -> dict[str, int]:
        """Where the run is, as a checkpoint keeps it."""
        return {"epoch": self.epoch, "batch": self.batch, "step": self.step}

    def tell(self, moment: str, *what: Any) -> None:
        """Call a method of every callback, in order; those with ``runs_last`` after the others."""
        for callback in self.trainer.callbacks:
            method: Callable[..., None] = getattr(callback, moment)
            method(self, *what)
