"""The callback interface: a class with an empty method for each moment of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from deliralike.training.fields import Kind, State, refuse_wrong_fields
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class Callback:
    """The base of callbacks, which override the methods that they need.

    `on_end` is called even when the run fails. One object may watch several runs, one after
    another: what it knows of a run is made in `reset`.

    Attributes:
        runs_last: Whether it is called after the others at each moment, to see their results.
        main_only: Whether only the main process of a group calls it; see `Writer`.
        watches_nan: Whether it looks for losses that are not finite, of which the run warns else.
        fields: The attributes that a checkpoint keeps, with their kinds.
    """

    fields: ClassVar[Mapping[str, Kind]] = {}
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
        if self.fields:
            refuse_wrong_fields(f"state of {type(self).__name__}", state, self.fields)
        for name in self.fields:
            setattr(self, name, state[name])
