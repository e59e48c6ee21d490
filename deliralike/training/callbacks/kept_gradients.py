"""The gradients that optimizers keep for a callback, from the start of a run to its end."""

from __future__ import annotations

from collections.abc import Iterable

from deliralike.optim.optimizer import AbstractOptimizer


class KeptGradients:
    """Makes optimizers keep their gradients, those that do not do so anyway."""

    def __init__(self) -> None:
        """Begin without an optimizer."""
        self._optimizers: list[AbstractOptimizer] = []

    def begin(self, optimizers: Iterable[AbstractOptimizer]) -> None:
        """Make the optimizers keep their gradients."""
        self._optimizers = [each for each in optimizers if not each.keep_gradients]
        for optimizer in self._optimizers:
            optimizer.keep_gradients = True

    def end(self) -> None:
        """Make them drop their gradients again."""
        for optimizer in self._optimizers:
            optimizer.keep_gradients = False
            optimizer.latest_gradients = {}
        self._optimizers = []
