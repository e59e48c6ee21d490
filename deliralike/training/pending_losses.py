"""Losses that wait on the device until somebody looks at them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from deliralike.network.steps import TOTAL
from deliralike.training.history import Step
from deliralike.training.validation_losses import mean_by_weights

AT_MOST = 32  # steps: so far the host may be ahead of the device


class _Waiting(NamedTuple):
    """A step, with the losses of its batches and by how much each counts."""

    step: Step
    results: Sequence[Mapping[str, Any]]
    weights: Sequence[Any]


class PendingLosses:
    """The steps whose losses have not been read, from the first to the last.

    Whoever looks at the losses or the time of one waits for the device, and all of them are read.

    Args:
        numbers: Gives the values of native scalars on the host.
        on_read: Called with each step, in order, when its losses have been read.
    """

    def __init__(
        self,
        numbers: Callable[[Sequence[Any]], list[float]],
        on_read: Callable[[Step], None] | None = None,
    ) -> None:
        """Begin without a step."""
        self._numbers = numbers
        self._on_read = on_read
        self._waiting: list[_Waiting] = []

    def add(
        self,
        results: Sequence[Mapping[str, Any]],
        sizes: Sequence[int],
        weights: Sequence[Any] = (),
        **known: Any,
    ) -> Step:
        """Return the record of a step whose losses are still computed.

        Args:
            results: The losses of each batch by name, as native scalars.
            sizes: The number of samples of each batch.
            weights: By how much the losses of each of several batches count, as numbers or native
                scalars.
            known: The other fields of the record, and ``dispatch_seconds``: the time of the step
                without waiting for the device.
        """
        if len(self._waiting) >= AT_MOST:
            self.read(AT_MOST // 2)
        step = object.__new__(Step)
        vars(step).update(known, samples=sum(sizes), _read=self.read)
        self._waiting.append(
            _Waiting(step, results, weights if len(results) > 1 else ())
        )
        return step

    def read(self, count: int | None = None) -> None:
        """Wait for the first steps, all when `count` is None, and complete their records.

        They share the time of the waiting.
        """
        waiting = self._waiting[:count]
        if not waiting:
            return
        begin = time.perf_counter()
        scalars: list[Any] = []
        for each in waiting:
            for losses in each.results:
                scalars += losses.values()
            scalars += each.weights
        numbers = iter(self._numbers(scalars))
        waited = (time.perf_counter() - begin) / len(waiting)
        for each in waiting:
            _complete(each, numbers, waited)
        del self._waiting[: len(waiting)]
        if self._on_read is not None:
            for each in waiting:
                self._on_read(each.step)


def _complete(waiting: _Waiting, numbers: Iterator[float], waited: float) -> None:
    on_host = []
    for losses in waiting.results:
        on_host.append({name: next(numbers) for name in losses})
    losses = on_host[0]
    if len(on_host) > 1:
        weights = [next(numbers) for _ in waiting.weights]
        for name in losses:
            values = [each[name] for each in on_host]
            losses[name] = mean_by_weights(values, weights)
    record = vars(waiting.step)
    record["losses"] = losses
    record["loss"] = losses.get(TOTAL, sum(losses.values()))
    record["seconds"] = record.pop("dispatch_seconds") + waited
    del record["_read"]
