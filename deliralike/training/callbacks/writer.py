"""A callback that leaves something outside of the process: a file, or a line on the screen."""

from __future__ import annotations

from typing import Any, Protocol

from deliralike.training.callbacks.callback import Callback


class Record(Protocol):
    """What grows while a run goes on, and can be cut back to what it was at a checkpoint."""

    def measure(self) -> None:
        """Take what is there as given."""

    def cut_back(self, to: Any, /) -> None:
        """Take away what came after a checkpoint."""


def begin(record: Record, resumed_at: Any | None) -> None:
    """Go on with a record: from where it was at the checkpoint of a resumed run, else after all that it holds."""
    if resumed_at is None:
        record.measure()
    else:
        record.cut_back(resumed_at)


class Writer(Callback):
    """The base of callbacks that write or show something: once, however many processes train together.

    The run tells it nothing in the other processes (see `Run.tell`), so that no writer asks where
    it runs. When a run is resumed, what was written after the checkpoint is taken back in
    `on_start`, for the same reason.
    """

    main_only = True
