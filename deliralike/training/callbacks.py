"""What may watch a run: a class with an empty method for each moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from deliralike.optimizer import AbstractOptimizer
from deliralike.training.history import Epoch, History, Step


@dataclass
class Run:
    """A run in progress, as callbacks see it.

    Attributes:
        optimizer: The optimizer; ``run.optimizer.network`` is the network.
        epochs: How many epochs there will be.
        steps_per_epoch: How many updates each of them has.
        history: What has been recorded so far.
    """

    optimizer: AbstractOptimizer
    epochs: int
    steps_per_epoch: int
    history: History = field(default_factory=History)


class Callback:
    """Something that watches a run; override what you need. `on_end` is called even when the run fails."""

    def on_start(self, run: Run) -> None:
        """Before the first step."""

    def on_step(self, run: Run, step: Step) -> None:
        """After each update."""

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """After each epoch, when held-out data have been evaluated."""

    def on_end(self, run: Run) -> None:
        """After the last step, or when an error or Ctrl-C ends the run early."""
