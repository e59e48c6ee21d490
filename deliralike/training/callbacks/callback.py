"""What may watch a run: a class with an empty method for each moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class Callback:
    """Something that watches a run; override what you need. `on_end` is called even when the run fails.

    Attributes:
        runs_last: Whether it comes after the others at each moment, to see what they have done.
        main_only: Whether, of several processes that train together, only the main one tells it
            anything; see `Writer`.
    """

    runs_last = False
    main_only = False

    def on_start(self, run: Run) -> None:
        """Before the first step; a run that is resumed has its position and state by then."""

    def on_step(self, run: Run, step: Step) -> None:
        """After each update."""

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """After each epoch, when validation data have been evaluated; `run.epoch` is the next one already."""

    def on_end(self, run: Run) -> None:
        """After the last step, or when an error or Ctrl-C ends the run early."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps for `load_state`: numbers, texts and arrays in dicts and lists."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` gave, when a run is resumed."""
