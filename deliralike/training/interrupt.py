"""Ctrl-C between two steps instead of within one, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Interrupt:
    """Whether Ctrl-C has been pressed; a second one is not waited for."""

    def __init__(self) -> None:
        """Not yet."""
        self.pressed = False

    def check(self) -> None:
        """Raise the KeyboardInterrupt that has been put off."""
        if self.pressed:
            raise KeyboardInterrupt

    def _handle(self, signal_number: int, frame: object) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True


@contextmanager
def deferred() -> Iterator[Interrupt]:
    """Put Ctrl-C off until `Interrupt.check`; in threads other than the main one signals stay as they are."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield interrupt
        return
    before = signal.signal(signal.SIGINT, interrupt._handle)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
