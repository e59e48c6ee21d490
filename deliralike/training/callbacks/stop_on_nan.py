"""The end of a run at the first number that is not finite, with the name of its tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import whole_number
from deliralike.network.steps import TOTAL
from deliralike.optim.accumulation import present
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.terminal import warn
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class StopOnNaN(Callback):
    """End the run when a loss, a gradient, a parameter or a buffer is NaN or infinite.

    The first bad tensor is named, in the order of a step: the batch, the losses, the buffers that
    the forward pass sets, the gradients, the updated parameters; within each in creation order.
    Backward goes the other way, so NaN came in at the last bad gradient, which is named as well. A
    parameter or buffer that is bad before a step is found before it.

    The run ends without an error; the reason is a `RuntimeWarning`, and stands in
    ``history.stopped``. The network does not change: the last checkpoint before is good. An update
    that a loss scale left out is no reason to stop.

    Args:
        every: The number of steps between two checks of gradients, parameters and buffers. Losses
            are checked at each step, and all else too if a loss is bad. A check takes one pass over
            each array.

    Raises:
        SettingError: `every` is below one.
    """

    watches_nan = True
    runs_last = (
        True  # what another callback does to the network is found before the next step
    )

    def __init__(self, every: int = 1) -> None:
        """Check the setting."""
        self.every = whole_number("every", every, 1)
        self._keeping: list[AbstractOptimizer] = []  # gradients for this callback alone

    def on_start(self, run: Run) -> None:
        """Check the network, and make the optimizers keep their gradients."""
        optimizers = run.optimizers.values()
        self._keeping = [each for each in optimizers if not each.keep_gradients]
        for optimizer in self._keeping:
            optimizer.keep_gradients = True
        self._stop(run, "before the first step", _in_network(run))

    def on_step(self, run: Run, step: Step) -> None:
        """Look at the losses, and at the rest if it is time."""
        bad_loss = ""
        # Where processes update by themselves, each has its own loss.
        if not run.network.parallelism.updates_locally:
            bad_loss = next(_in_losses(step), "")
        if not bad_loss and step.step % self.every:
            return
        bad_tensors = _in_step(run)
        if bad_loss:
            bad_tensors = chain(_in_batches(run), _in_losses(step), bad_tensors)
        self._stop(run, f"in step {step.step} of epoch {step.epoch}", bad_tensors)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Check the network after evaluation and other callbacks."""
        self._stop(run, f"after epoch {epoch.epoch}", _in_network(run))

    def on_end(self, run: Run) -> None:
        """Make the optimizers drop their gradients again."""
        for optimizer in self._keeping:
            optimizer.keep_gradients = False
            optimizer.latest_gradients = {}
        self._keeping = []

    def _stop(self, run: Run, when: str, bad_tensors: Iterator[str]) -> None:
        of_all = run.trainer.processes.all_gather_object(
            "what is not finite", list(bad_tensors)
        )
        description = _joined(of_all)
        if not description or run.stopped:
            return
        reason = f"not finite {when}: {description}"
        run.stop(reason)
        warn(reason, RuntimeWarning)


def _joined(of_all: Sequence[Sequence[str]]) -> str:
    """Return the bad tensors of all processes in one text; equal ones of all without ranks.

    The longest texts come first: those of the processes whose batch or loss was bad.
    """
    texts = ["; then ".join(names) for names in of_all]
    if len(set(texts)) == 1:
        return texts[0]
    parts = [f"in process {rank}: {text}" for rank, text in enumerate(texts) if text]
    parts.sort(key=lambda part: part.count("; then "), reverse=True)
    return "; ".join(parts)


def _in_batches(run: Run) -> Iterator[str]:
    """Yield the bad arrays of the latest step's batches, with their first bad element."""
    backend = run.network.backend
    is_single = len(run.latest_batches) <= 1
    for number, batch in enumerate(run.latest_batches):
        name = "batch" if is_single else f"batches[{number}]"
        for path, leaf in nest.leaves_with_paths(batch, name):
            array = backend.numpy(leaf) if backend.is_array(leaf) else leaf
            if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
                continue
            bad_places = np.argwhere(~np.isfinite(array))
            if len(bad_places):
                place = bad_places[0].tolist()
                index = str(place) if place else ""
                yield f"{path}{index} is {array[tuple(place)]}"


def _in_losses(step: Step) -> Iterator[str]:
    for name, value in {TOTAL: step.loss, **step.losses}.items():
        if not math.isfinite(value):
            yield f"the loss {name!r} is {value}"


def _in_step(run: Run) -> Iterator[str]:
    """Yield the bad tensors of an update, in the order in which it is made."""
    yield from _in_slots(run, "buffer")
    for optimizer in run.optimizers.values():
        if optimizer.loss_scale is not None and not optimizer.updated:
            continue  # an update that was left out
        gradients = present(optimizer.latest_gradients)
        bad = _not_finite(run, gradients)
        if bad:
            yield f"the gradient of {_range(bad, len(gradients))}"
    yield from _in_slots(run, "parameter")


def _in_network(run: Run) -> Iterator[str]:
    yield from _in_slots(run, "buffer")
    yield from _in_slots(run, "parameter")


def _in_slots(run: Run, kind: str) -> Iterator[str]:
    wants_parameters = kind == "parameter"
    values = {}
    for name, slot in run.network.neutral_slots().items():
        if slot.is_parameter == wants_parameters:
            values[name] = slot.value
    bad = _not_finite(run, values)
    if bad:
        yield f"the {kind} {_range(bad, len(values))}"


def _not_finite(run: Run, arrays: Mapping[str, Any]) -> list[str]:
    """Return the names of the arrays that are not finite; all are checked at once before."""
    all_finite = run.network.backend.all_finite
    if not arrays or all_finite(list(arrays.values())):
        return []
    return [name for name, array in arrays.items() if not all_finite([array])]


def _range(bad: list[str], count: int) -> str:
    """Return the first name, and the extent of the bad ones."""
    if len(bad) == 1:
        return repr(bad[0])
    return f"{bad[0]!r} ({len(bad)} of {count} are bad, the last is {bad[-1]!r})"
