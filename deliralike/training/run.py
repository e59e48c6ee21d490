"""A run in progress: where it is, what it has recorded, and whether it shall stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deliralike.network import AbstractNetwork
from deliralike.optimizer import AbstractOptimizer
from deliralike.steps import the_optimizer
from deliralike.training.history import History

if TYPE_CHECKING:
    from deliralike.training.callbacks.callback import Callback
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
        interrupted: Whether Ctrl-C or another signal ended it.
        loader: What gives the batches.
        resumed: Whether it goes on from a checkpoint.
        in_step: Whether an update is being made: an error in it leaves network and position apart.
        latest_batches: The batches of the step that was made last, as they came from the data: one for each
            micro-batch.
        validation: What is evaluated after every epoch; None for nothing.
        fingerprints: What its future depends on, as it was when the run began; see `deliralike.training.fingerprints`.
        fingerprinted_at: The step at which they were taken; None once they have been compared with a later one.
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
    loader: Any = None
    resumed: bool = False
    in_step: bool = False
    latest_batches: Sequence[Any] = ()
    validation: Any = None
    fingerprints: dict[str, str] = field(default_factory=dict, repr=False)
    fingerprinted_at: int | None = None

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

    @property
    def latest_batch(self) -> Any:
        """The last of `latest_batches`; None before the first step."""
        return self.latest_batches[-1] if self.latest_batches else None

    @property
    def is_main(self) -> bool:
        """Whether this process is the one that writes and shows, among those that train together."""
        return self.trainer.is_main

    @property
    def is_complete(self) -> bool:
        """Whether it came to its end, early or not, rather than to an error or a signal."""
        return not self.interrupted and (self.epoch >= self.epochs or bool(self.stopped))

    def judged(self) -> AbstractContextManager[Any]:
        """A ``with`` block in which the network has the weights that validation judges: averaged ones, if there are."""
        average = self.trainer.average
        return nullcontext() if average is None else average.applied()

    def stop(self, reason: str) -> None:
        """End the run after this step or epoch; the first reason stays, in the history too."""
        self.stopped = self.history.stopped = self.stopped or reason

    def position(self) -> dict[str, int]:
        """Where the run is, as a checkpoint keeps it."""
        return {"epoch": self.epoch, "batch": self.batch, "step": self.step}

    def place(self) -> str:
        """Where the run is, in words."""
        return f"epoch {self.epoch}, step {self.step}"

    def tell(self, moment: str, *what: Any) -> None:
        """Call a method of every callback, in order; an error gets a note with the callback's name."""
        for callback in self.callbacks:
            _call(callback, moment, self, *what)

    def tell_all(self, moment: str) -> None:
        """`tell` that goes on after errors, so that every callback is called; then the errors are raised, chained."""
        self._tell_rest(iter(self.callbacks), moment)

    def _tell_rest(self, rest: Iterator[Callback], moment: str) -> None:
        for callback in rest:
            try:
                _call(callback, moment, self)
            finally:
                self._tell_rest(rest, moment)

    @property
    def callbacks(self) -> list[Callback]:
        """Those that are told: of the processes that train together, one tells all of its callbacks."""
        return [each for each in self.trainer.callbacks if self.is_main or not each.main_only]


def _call(callback: Callback, moment: str, *arguments: Any) -> None:
    method: Callable[..., None] = getattr(callback, moment)
    try:
        method(*arguments)
    except BaseException as error:
        error.add_note(f"in {moment} of the callback {type(callback).__name__}")
        raise
