"""Signals between two steps instead of within one, so that what is saved is whole; in all processes after the same."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from deliralike.errors import ProcessError
from deliralike.parallel import Processes

# Ctrl-C, a scheduler's word that it will kill soon, and what launchers pass on where they kill at SIGTERM themselves
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interrupted(KeyboardInterrupt):
    """A signal has ended a run between two steps, in all of its processes after the same step.

    Attributes:
        signal: Which one.
    """

    def __init__(self, name: str) -> None:
        """By the signal of this name."""
        self.signal = signal.Signals[name]
        super().__init__("Ctrl-C" if self.signal == signal.SIGINT else name)


class Interrupt:
    """Asks all processes to end when a signal comes to this one; a second signal is not waited for.

    Args:
        processes: They.
        where: Says how far the run is.
    """

    def __init__(self, processes: Processes, where: Callable[[], str]) -> None:
        """None has come yet."""
        self.processes, self.where = processes, where
        self.pressed = False

    def check(self) -> None:
        """Raise what has been put off, once all processes know of it.

        Raises:
            Interrupted: In every process at the same call.
        """
        if name := self.processes.agreed:
            self.processes.forget()
            raise Interrupted(name)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        if reason := self.processes.abandoned():  # the launcher ends what hangs: here is where
            raise ProcessError(reason)
        name = signal.Signals(number).name
        if self.processes.count > 1:  # not by print, which may be what was interrupted
            os.write(2, f"{self.processes}: {name} in {self.where()}; all end after a step\n".encode())
        self.processes.ask(name)


@contextmanager
def deferred(processes: Processes, where: Callable[[], str]) -> Iterator[Interrupt]:
    """Put signals off until `Interrupt.check`; in threads other than the main one they stay as they are.

    So does a signal that the program handles in a way of its own, other than Ctrl-C.
    """
    interrupt = Interrupt(processes, where)
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield interrupt
        return
    ours = [each for each in SIGNALS if each == signal.SIGINT or signal.getsignal(each) == signal.SIG_DFL]
    before = {each: signal.signal(each, interrupt.handle) for each in ours}
    try:
        yield interrupt
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
