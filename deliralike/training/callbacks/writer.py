"""The base of callbacks that write a file or to the screen."""

from __future__ import annotations

from typing import Any, Protocol

from deliralike.training.callbacks.callback import Callback


class Record(Protocol):
    """A record that grows while a run goes on, and can be cut back to its state at a checkpoint."""

    def measure(self) -> None:
        """Take the present contents, to which records are added."""

    def cut_back(self, to: Any, /) -> None:
        """Remove the contents that came after a checkpoint."""


def begin(record: Record, resumed_at: Any | None) -> None:
    """Cut a record back to the checkpoint of a resumed run; else go on after its contents."""
    if resumed_at is None:
        record.measure()
    else:
        record.cut_back(resumed_at)


class Writer(Callback):
    """The base of callbacks that write or show something, in one process of a group only.

    The run does not call it in the other processes (see `Run.tell`), so that no writer asks for its
    rank. When a run is resumed, `on_start` removes the records after the checkpoint, for the same
    reason.
    """

    main_only = True
