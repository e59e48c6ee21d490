"""Handling of signals between two steps, after the same step in all processes.

So a checkpoint that is saved at the end is whole.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import FrameType, TracebackType

from deliralike.errors import ProcessError
from deliralike.parallel import ProcessGroup
from deliralike.terminal import say_error

KILLED = 128  # added to the number of a signal, the exit code of what it ends
# Ctrl-C, a scheduler's word that it will kill soon, and what launchers pass on where they kill at
# SIGTERM themselves
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Interrupted(KeyboardInterrupt):
    """A signal has ended a run between two steps, in all of its processes after the same step.

    Where nobody catches it, Python ends with one line and the exit code of the signal.

    Attributes:
        signal: The signal.
        advice: What was saved, and how to go on.
    """

    advice = ""

    def __init__(self, name: str) -> None:
        """Take the name of the signal."""
        self.signal = signal.Signals[name]
        super().__init__("Ctrl-C" if self.signal == signal.SIGINT else name)


@dataclass
class Interrupt:
    """A signal handler that asks all processes to end; a second signal takes effect at once.

    Args:
        processes: The group of processes.
        where: A function that returns the position of the run in words.
    """

    processes: ProcessGroup
    where: Callable[[], str]
    pressed: bool = field(default=False, init=False)

    def check(self) -> None:
        """Raise the signal that has been put off, once all processes know of it.

        Raises:
            Interrupted: In every process at the same call.
        """
        if name := self.processes.agreed:
            self.processes.clear_request()
            if getattr(sys.excepthook, "func", None) is not _end_in_one_line:
                sys.excepthook = partial(_end_in_one_line, sys.excepthook)
            raise Interrupted(name)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: record it, and ask all processes to end."""
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
        # The launcher ends processes that hang; the error says where this one does.
        reason = self.processes.abandoned()
        if reason:
            raise ProcessError(reason)
        name = signal.Signals(number).name
        if self.processes.count > 1:
            message = (
                f"{self.processes}: {name} in {self.where()}; all end after a step\n"
            )
            # Not by `print`, which the signal may have interrupted.
            os.write(2, message.encode())
        self.processes.request(name)


def _end_in_one_line(
    hook: Callable[..., None],
    kind: type[BaseException],
    error: BaseException,
    traceback: TracebackType | None,
) -> None:
    """Say what a signal ended, as `sys.excepthook`; pass other errors on to the hook before."""
    if not isinstance(error, Interrupted):
        hook(kind, error, traceback)
        return
    say_error(f"stopped by {error}; {error.advice}")
    raise SystemExit(KILLED + error.signal)


@contextmanager
def deferred(processes: ProcessGroup, where: Callable[[], str]) -> Iterator[Interrupt]:
    """Put signals off until `Interrupt.check`.

    Signals stay as they are in threads other than the main one. So does a signal other than Ctrl-C
    for which the program has its own handler.
    """
    interrupt = Interrupt(processes, where)
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGINT) is None:
        yield interrupt
        return
    handled = []
    for number in SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) == signal.SIG_DFL:
            handled.append(number)
    before = {number: signal.signal(number, interrupt.handle) for number in handled}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
