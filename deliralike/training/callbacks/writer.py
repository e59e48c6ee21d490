"""The bases of callbacks that write a file or to the screen."""

from __future__ import annotations

import time
from abc import abstractmethod

from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run

SECONDS = 0.5  # that a step may wait; a run that is killed loses no more of its records


class Writer(Callback):
    """The base of callbacks that write or show something, in one process of a group only.

    The run does not call it in the other processes (see `Run.call_callbacks`), so that no writer
    asks for its rank. When a run is resumed, `on_start` removes the records after the checkpoint,
    for the same reason.
    """

    main_only = True


class StepWriter(Writer):
    """The base of writers of all steps, in batches, so that no step waits for the device."""

    def __init__(self) -> None:
        """Begin without a step."""
        self._waiting: list[Step] = []
        self._written = time.monotonic()

    @abstractmethod
    def write_step(self, step: Step) -> None:
        """Write one step."""

    def on_step(self, run: Run, step: Step) -> None:
        """Take a step, and write all that wait if the last writing is some time ago."""
        self._waiting.append(step)
        if time.monotonic() - self._written >= SECONDS:
            self.flush()

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Write the steps of the epoch."""
        self.flush()

    def on_end(self, run: Run) -> None:
        """Write the last steps."""
        self.flush()

    def flush(self) -> None:
        """Write all steps that wait."""
        steps, self._waiting = self._waiting, []
        for step in steps:
            self.write_step(step)
        self._written = time.monotonic()
