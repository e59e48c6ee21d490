"""A callback that leaves something outside of the process: a file, or a line on the screen."""

from __future__ import annotations

from deliralike.training.callbacks.callback import Callback


class Writer(Callback):
    """The base of callbacks that write or show something: once, however many processes train together.

    The run tells it nothing in the other processes (see `Run.tell`), so that no writer asks where it runs. When a run
    is resumed, what was written after the checkpoint is taken back in `on_start`, for the same reason.
    """

    main_only = True
