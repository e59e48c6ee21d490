"""Steps that are written together, so that nobody waits for the device at each of them."""

from __future__ import annotations

import time
from collections.abc import Callable

from deliralike.training.history import Step

SECONDS = 0.5  # that a step may wait; a run that is killed loses no more of its records


class Later:
    """Steps that wait to be written.

    Args:
        write: Writes one step.
    """

    def __init__(self, write: Callable[[Step], None]) -> None:
        """Begin without a step."""
        self._write = write
        self._steps: list[Step] = []
        self._written = time.monotonic()

    def add(self, step: Step) -> None:
        """Take a step, and write all that wait if the last writing is some time ago."""
        self._steps.append(step)
        if time.monotonic() - self._written >= SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write all steps that wait."""
        steps, self._steps = self._steps, []
        for step in steps:
            self._write(step)
        self._written = time.monotonic()
