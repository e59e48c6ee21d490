"""Comparison of the settings with which the processes of a group begin a run.

The settings are compared in one message before the first step.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from deliralike import data
from deliralike.data import batching
from deliralike.errors import DeliralikeError, ProcessError
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.optim.optimizer import AbstractOptimizer, known_lr
from deliralike.training.run import Run

_ORDER = "the order of the samples, as a checksum"


def refuse_unlike(run: Run, validation: Any) -> None:
    """Raise an error in every process if the processes begin with different settings or data.

    Raises:
        ProcessError: The settings differ; the message names each value with its processes.
    """
    processes = run.trainer.processes
    if processes.count == 1:
        return
    everyone = processes.all_gather_object("the settings of fit", settings(run, validation))
    unlike = _unlike(everyone)
    if len(unlike) > 1:
        unlike.pop(_ORDER, None)  # follows from the others
    if unlike:
        listed = "; ".join(f"{name}: {_by_process(column)}" for name, column in unlike.items())
        raise ProcessError(
            f"{processes}: processes that train together begin with the same settings and the "
            f"same data, of which each loads its own share, and these differ: {listed}"
        )


def _unlike(everyone: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """Return the values of all processes for each setting that is not the same in all."""
    names: dict[str, None] = {}  # in the order of the first process
    for own in everyone:
        names.update(dict.fromkeys(own))
    unlike = {}
    for name in names:
        column = [own.get(name, "none") for own in everyone]
        if len(set(column)) > 1:
            unlike[name] = column
    return unlike


def settings(run: Run, validation: Any) -> dict[str, str]:
    """Return the settings that must be equal, by name and in words."""
    trainer = run.trainer
    loader = run.loader
    values: dict[str, Any] = {
        "the trainer's seed": trainer.seed,
        "rng": trainer.rng,
        "epochs": run.epochs,
        "the position": run.place(),
        "samples": loader.samples,
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "the loader's seed": loader.seed,
        "the sampler": type(loader.sampler).__name__,
        _ORDER: zlib.crc32(loader.order(run.epoch).tobytes()),
        "samples of the validation": _samples_in(validation),
        "losses": _named(trainer.losses),
        "metrics": _named(trainer.metrics),
        "precision": trainer.precision,
        "averaged weights": None,
    }
    if trainer.average is not None:
        values["averaged weights"] = trainer.average.decay
    for name, optimizer in trainer.optimizers.items():
        for key, value in _of_optimizer(optimizer).items():
            values[f"optimizer {name!r}, {key}"] = value
    for name, schedule in trainer.schedules.items():
        factor = schedule.factor(run.step)
        values[f"schedule of {name!r}"] = f"{type(schedule).__name__}, now {factor:g}"
    return {name: str(value) for name, value in values.items()}


def _of_optimizer(optimizer: AbstractOptimizer) -> dict[str, Any]:
    rules = type(optimizer).__name__ if optimizer.groups is None else optimizer.groups.rules
    hooks = optimizer.pre_update_hooks
    clipping = [hook for hook in hooks if isinstance(hook, ClipNorm | ClipValue)]
    return {
        "update rule": rules,
        "lr": known_lr(optimizer),
        "accumulate": optimizer.accumulate,
        "clipping": clipping,
    }


def _by_process(column: list[str]) -> str:
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(column):
        ranks.setdefault(value, []).append(str(rank))
    parts = []
    for value, numbers in ranks.items():
        parts.append(f"{value} in process {' and '.join(numbers)}")
    return ", ".join(parts)


def _samples_in(validation: Any) -> int | None:
    """Return the number of validation samples, where the data have a length."""
    try:
        if isinstance(validation, data.Loader):
            return validation.samples
        if isinstance(validation, tuple | Mapping):
            return batching.size(validation)
        return len(validation)
    except (TypeError, DeliralikeError):
        # There are none, or they are wrong, which evaluation reports.
        return None


def _named(parts: Any) -> Any:
    """Return the names of losses or metrics."""
    if parts is None:
        return None
    if isinstance(parts, Mapping):
        return sorted(parts)
    return getattr(parts, "__qualname__", type(parts).__name__)
