"""Several steps in one call of the device: which runs allow it, and which batches go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from deliralike import nest
from deliralike.errors import SettingError, whole_number
from deliralike.network.enclosing import has_own
from deliralike.training.run import Trainer


def refuse_several_steps(trainer: Trainer, count: Any) -> None:
    """Refuse ``steps_per_call`` where something happens between two steps.

    Raises:
        SettingError: The count is no whole number above zero, or each step has to be made alone.
        CapabilityError: The backend makes no several steps at once.
    """
    if whole_number("steps_per_call", count, 1) == 1:
        return
    trainer.network.backend.require("several steps")
    optimizers = list(trainer.optimizers.values())
    reasons = {
        "the network's own train_step": has_own(trainer.network, "train_step"),
        "several optimizers": len(optimizers) > 1,
        "replicas": trainer.network.parallelism.is_replicated,
        "several processes": trainer.processes.count > 1,
        "averaged weights": trainer.average is not None,
        "accumulated gradients": any(each.accumulate > 1 for each in optimizers),
        "a loss scale": any(each.loss_scale is not None for each in optimizers),
    }
    present = [reason for reason, holds in reasons.items() if holds]
    if present:
        raise SettingError(
            f"steps_per_call={count} makes {count} steps in one program, and with "
            f"{', '.join(present)} each step is made alone: leave it out"
        )


def groups(batches: Iterable[Any], count: int) -> Iterator[list[Any]]:
    """Yield `count` batches at a time if they have the same shapes; others one by one."""
    waiting: list[Any] = []
    for batch in batches:
        if waiting and _shapes(batch) != _shapes(waiting[0]):
            yield from ([each] for each in waiting)
            waiting = []
        waiting.append(batch)
        if len(waiting) == count:
            yield waiting
            waiting = []
    yield from ([each] for each in waiting)


def _shapes(batch: Any) -> tuple[Any, list[Any]]:
    leaves, structure = nest.flatten(batch)
    shapes = []
    for leaf in leaves:
        shape = getattr(leaf, "shape", None)
        shapes.append(leaf if shape is None else (tuple(shape), leaf.dtype))
    return structure, shapes
