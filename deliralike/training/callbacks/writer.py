"""The base of callbacks that write a file or to the screen."""

from __future__ import annotations

from typing import Any, Protocol

from deliralike.training.callbacks.callback import Callback
from deliralike.training.run import Run


class Record(Protocol):
    """A record that grows while a run goes on, and can be cut back to its state at a checkpoint."""

    def clear(self) -> None:
        """Begin anew: the first record takes the place of the present contents."""

    def measure(self) -> None:
        """Take the present contents, to which records are added."""

    def cut_back(self, to: Any, /) -> None:
        """Remove the contents that came after a checkpoint."""


def begin(record: Record, run: Run, resumed_at: Any | None) -> None:
    """Begin a record anew, or cut it back to the checkpoint of a resumed run.

    A run that goes on from another, without a place in a checkpoint, adds to the contents.
    """
    if resumed_at is not None:
        record.cut_back(resumed_at)
    elif run.resumed or run.goes_on:
        record.measure()
    else:
        record.clear()


class Writer(Callback):
    """The base of callbacks that write or show something, in one process of a group only.

    The run does not call it in the other processes (see `Run.call_callbacks`), so that no writer
    asks for its rank. When a run is resumed, `on_start` removes the records after the checkpoint,
    for the same reason.
    """

    main_only = True
