"""A run ends at the first number that is not finite, and says where it was."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from deliralike import nest
from deliralike.errors import SettingError
from deliralike.optimizer import AbstractOptimizer
from deliralike.steps import TOTAL
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch, Step
from deliralike.training.run import Run


class StopOnNaN(Callback):
    """End the run when a loss, a gradient, a parameter or a buffer is NaN or infinite, and name the first bad tensor.

    "First" is meant in the order in which a step comes to them: the batch, the losses, the buffers that the forward
    pass sets, the gradients, the updated parameters; within each in creation order. Backward goes the other way, so the
    last bad gradient is where NaN came in, and is named as well. A parameter or buffer that is bad before a step is
    found before it.

    The run ends without an error; the reason is a `RuntimeWarning`, and stands in ``history.stopped``. The network is
    left as it is: the last checkpoint before is good. An update that a loss scale left out is no reason to stop.

    Args:
        every: Every how many steps gradients, parameters and buffers are looked at; losses are at each step, and when
            one is bad, so is the rest. Looking takes one pass over each array.

    Raises:
        SettingError: `every` is below one.
    """

    runs_last = True  # what another callback does to the network is found before the next step

    def __init__(self, every: int = 1) -> None:
        """Nothing is looked at yet."""
        if every < 1:
            raise SettingError(f"every={every!r} must be at least 1")
        self.every = every
        self._keeping: list[AbstractOptimizer] = []

    def on_start(self, run: Run) -> None:
        """Look at the network, and let the optimizers keep their gradients."""
        self._keeping = [each for each in run.optimizers.values() if not each.keep_gradients]
        for optimizer in self._keeping:
            optimizer.keep_gradients = True
        self._stop(run, "before the first step", _in_network(run))

    def on_step(self, run: Run, step: Step) -> None:
        """Look at the losses, and at the rest if it is time."""
        bad_loss = (
            "" if run.network.parallelism.updates_locally else next(_in_losses(step), "")
        )  # each process has its own loss
        if not bad_loss and step.step % self.every:
            return
        found = chain(_in_batches(run), _in_losses(step), _in_step(run)) if bad_loss else _in_step(run)
        self._stop(run, f"in step {step.step} of epoch {step.epoch}", found)

    def on_epoch(self, run: Run, epoch: Epoch) -> None:
        """Look at what evaluation and other callbacks have left."""
        self._stop(run, f"after epoch {epoch.epoch}", _in_network(run))

    def on_end(self, run: Run) -> None:
        """Let the optimizers do as before."""
        for optimizer in self._keeping:
            optimizer.keep_gradients, optimizer.latest_gradients = False, {}
        self._keeping = []

    def _stop(self, run: Run, when: str, found: Iterator[str]) -> None:
        what = _told(run.trainer.processes.exchange("what is not finite", list(found)))
        if not what or run.stopped:
            return
        reason = f"not finite {when}: {what}"
        run.stop(reason)
        warnings.warn(reason, RuntimeWarning, stacklevel=2)


def _told(found: Sequence[Sequence[str]]) -> str:
    """What the processes have found, those first whose batch or loss it came from; that of one process as it is."""
    ranks: dict[str, list[int]] = {}
    for rank, names in enumerate(found):
        ranks.setdefault("; then ".join(names), []).append(rank)
    ranks.pop("", None)
    if len(ranks) == 1 and len(next(iter(ranks.values()))) == len(found):
        return next(iter(ranks))
    longest_first = sorted(ranks, key=lambda text: -text.count("; then "))
    return "; ".join(f"in process {', '.join(map(str, ranks[text]))}: {text}" for text in longest_first)


def _in_batches(run: Run) -> Iterator[str]:
    """Arrays of the latest step's batches, with the position of the first bad element."""
    backend, several = run.network.backend, len(run.latest_batches) > 1
    for number, batch in enumerate(run.latest_batches):
        for path, leaf in nest.leaves_with_paths(batch, f"batches[{number}]" if several else "batch"):
            array = backend.numpy(leaf) if backend.is_array(leaf) else leaf
            if isinstance(array, np.ndarray) and array.dtype.kind == "f" and not np.isfinite(array).all():
                where = np.argwhere(~np.isfinite(array))[0].tolist()
                yield f"{path}{where if where else ''} is {array[tuple(where)]}"


def _in_losses(step: Step) -> Iterator[str]:
    for name, value in {TOTAL: step.loss, **step.losses}.items():
        if not math.isfinite(value):
            yield f"the loss {name!r} is {value}"


def _in_step(run: Run) -> Iterator[str]:
    """What an update leaves, in the order in which it is made."""
    yield from _in_slots(run, "buffer")
    for optimizer in run.optimizers.values():
        overflowed = optimizer.loss_scale is not None and not optimizer.updated
        given = {} if overflowed else {n: g for n, g in optimizer.latest_gradients.items() if g is not None}
        all_finite = run.network.backend.all_finite
        if given and not all_finite(list(given.values())):
            bad = [name for name, gradient in given.items() if not all_finite([gradient])]
            yield f"the gradient of {_range(bad, len(given))}"
    yield from _in_slots(run, "parameter")


def _in_network(run: Run) -> Iterator[str]:
    yield from _in_slots(run, "buffer")
    yield from _in_slots(run, "parameter")


def _in_slots(run: Run, kind: str) -> Iterator[str]:
    slots = {n: slot for n, slot in run.network.neutral_slots().items() if slot.is_parameter == (kind == "parameter")}
    all_finite = run.network.backend.all_finite
    if slots and not all_finite([slot.value for slot in slots.values()]):
        bad = [name for name, slot in slots.items() if not all_finite([slot.value])]
        yield f"the {kind} {_range(bad, len(slots))}"


def _range(bad: list[str], count: int) -> str:
    """The first name, and how far it goes."""
    return repr(bad[0]) if len(bad) == 1 else f"{bad[0]!r} ({len(bad)} of {count} are bad, the last is {bad[-1]!r})"
