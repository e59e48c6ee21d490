"""A run in progress: its position, its records, and whether it stops."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from deliralike.network.base import AbstractNetwork
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.terminal import warn
from deliralike.training.history import History, Step
from deliralike.training.pending_losses import PendingLosses


@dataclass
class Run:
    """A run in progress, as callbacks see it.

    Attributes:
        trainer: The trainer of the run.
        epochs: The number of epochs.
        steps_per_epoch: The number of updates of an epoch; None if the data have no length.
        epoch: The epoch that the next batch belongs to, from 0.
        batch: The number of batches of that epoch that have been used. ``(epoch, batch)`` is the
            position of the data.
        step: The number of finished steps, over all epochs.
        history: The records so far.
        stopped: The reason why the run stops early; empty while it goes on.
        interrupted: Whether Ctrl-C or another signal ended the run.
        loader: The loader of the batches.
        resumed: Whether the run goes on from a checkpoint.
        goes_on: Whether the run goes on where the last `fit` of its trainer ended.
        in_step: Whether an update is being made: an error in it leaves the network and the position
            inconsistent.
        in_on_epoch: Whether callbacks are told of an epoch: where that is interrupted, some of them
            have not seen it, and the position is not one to go on from.
        latest_batches: The batches of the latest step, as they came from the data: one for each
            micro-batch.
        validation: The data that are evaluated after every epoch; None for nothing.
        fingerprints: The values that the run's future depends on, as they were when the run began;
            see `deliralike.training.identity.fingerprints`.
        pending: The steps whose losses are still on the device.
        fingerprinted_at: The step at which the fingerprints were taken; None once they have been
            compared with later ones.
    """

    trainer: Any
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
    goes_on: bool = False
    in_step: bool = False
    in_on_epoch: bool = False
    latest_batches: Sequence[Any] = ()
    validation: Any = None
    fingerprints: dict[str, str] = field(default_factory=dict, repr=False)
    fingerprinted_at: int | None = None
    pending: PendingLosses = field(init=False, repr=False)
    _warns_of_nan: bool = field(default=True, init=False, repr=False)

    def __post_init__(self) -> None:
        """Begin without a step."""
        self.pending = PendingLosses(self.network.backend.numbers, self._warn_of_nan)

    @property
    def network(self) -> AbstractNetwork:
        """The network that is trained."""
        return self.trainer.network

    @property
    def optimizers(self) -> Mapping[str, AbstractOptimizer]:
        """The optimizers by name."""
        return self.trainer.optimizers

    @property
    def is_main(self) -> bool:
        """Whether this process is the main one of its group, which writes and shows results."""
        return self.trainer.is_main

    @property
    def is_complete(self) -> bool:
        """Whether the run came to its end, early or not, rather than to an error or a signal."""
        return not self.interrupted and (
            self.epoch >= self.epochs or bool(self.stopped)
        )

    def evaluated(self) -> AbstractContextManager[Any]:
        """Return a ``with`` block in which the network has the weights that validation evaluates.

        They are the averaged weights, if the trainer averages.
        """
        average = self.trainer.average
        if average is None:
            return nullcontext()
        return average.swap_in()

    def stop(self, reason: str) -> None:
        """Stop the run after this step or epoch; the first reason stays, in the history too."""
        self.stopped = self.history.stopped = self.stopped or reason

    def _warn_of_nan(self, step: Step) -> None:
        """Warn of the first loss that is not finite, unless a callback looks for it."""
        if math.isfinite(step.loss) or not self._warns_of_nan:
            return
        self._warns_of_nan = False
        if not any(callback.watches_nan for callback in self.callbacks):
            warn(
                f"the loss is {step.loss} in step {step.step} of epoch {step.epoch}, and training "
                "goes on: look for NaN in the data, or take a smaller learning rate or clip_norm. "
                "The callback StopOnNaN (--set stop_on_nan=1) stops there and names the first bad "
                "tensor",
                RuntimeWarning,
            )

    def position(self) -> dict[str, int]:
        """Return the position of the run, as a checkpoint keeps it."""
        return {"epoch": self.epoch, "batch": self.batch, "step": self.step}

    def place(self) -> str:
        """Return the position of the run in words."""
        return f"epoch {self.epoch}, step {self.step}"

    def call_callbacks(self, moment: str, *what: Any) -> None:
        """Call a method of every callback in order; an error gets a note of its class."""
        for callback in self.callbacks:
            _call(callback, moment, self, *what)

    def call_all_callbacks(self, moment: str) -> None:
        """Call a method of every callback, also after errors, which are then raised, chained."""
        self._call_rest(iter(self.callbacks), moment)

    def _call_rest(self, rest: Iterator[Any], moment: str) -> None:
        for callback in rest:
            try:
                _call(callback, moment, self)
            finally:
                self._call_rest(rest, moment)

    @property
    def callbacks(self) -> list[Any]:
        """The callbacks of this process: only the main process calls those with `main_only`."""
        callbacks = self.trainer.callbacks
        return [
            callback for callback in callbacks if self.is_main or not callback.main_only
        ]


def _call(callback: Any, moment: str, *arguments: Any) -> None:
    method: Callable[..., None] = getattr(callback, moment)
    try:
        method(*arguments)
    except BaseException as error:
        error.add_note(f"in {moment} of the callback {type(callback).__name__}")
        raise
