"""The callback interface, and the bases of callbacks that write a file or to the screen."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from deliralike.training.history import Epoch, Step
from deliralike.training.json_nests import State
from deliralike.training.run import Run


class Callback:
    """The base of callbacks, which override the methods that they need.

    `on_end` is called even when the run fails. One object may watch several runs, one after
    another: what it knows of a run is made in `reset`.

    Attributes:
        runs_last: Whether it is called after the others at each moment, to see their results.
        main_only: Whether only the main process of a group calls it; see `Writer`.
        watches_nan: Whether it looks for losses that are not finite, of which the run warns else.
        fields: The names of the attributes that a checkpoint keeps.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    runs_last = False
    main_only = False
    watches_nan = False

    def reset(self) -> None:
        """Forget the run before; called before each run, and before `load_state` of a resumed one.

        It is not called where a trainer's `fit` goes on from its last one, see `Run.goes_on`.
        """

    def on_start(self, run: Run) -> None:
        """Called before the first step; a resumed run has its position and state by then."""

    def on_step(self, run: Run, step: Step) -> None:
        """Called after each update."""

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Called after each epoch and its validation; `run.epoch` is the next epoch already."""

    def on_end(self, run: Run) -> None:
        """Called after the last step, or when an error or Ctrl-C ends the run early."""

    def state(self) -> State:
        """Return the state for a checkpoint: numbers, texts and arrays in dicts and lists."""
        return {name: getattr(self, name) for name in self.fields}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Load the result of `state` when a run is resumed."""
        for name in self.fields:
            setattr(self, name, state[name])


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
