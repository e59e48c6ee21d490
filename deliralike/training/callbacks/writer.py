"""The base of callbacks that write a file or to the screen."""

from __future__ import annotations

from deliralike.training.callbacks.callback import Callback


class Writer(Callback):
    """The base of callbacks that write or show something, in one process of a group only.

    The run does not call it in the other processes (see `Run.call_callbacks`), so that no writer
    asks for its rank. When a run is resumed, `on_start` removes the records after the checkpoint,
    for the same reason.
    """

    main_only = True
