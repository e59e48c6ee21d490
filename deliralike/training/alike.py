"""What processes that train together must begin a run with: compared in one message before the first step."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from deliralike import data
from deliralike.clipping import ClipNorm, ClipValue
from deliralike.data import batching
from deliralike.errors import DeliralikeError, ProcessError
from deliralike.optimizer import AbstractOptimizer
from deliralike.training.run import Run

_ORDER = "the order of the samples, as a checksum"


def refuse_unlike(run: Run, validation: Any) -> None:
    """An error in every process when they begin with other settings or data; it names who has what.

    Raises:
        ProcessError: They do.
    """
    processes = run.trainer.processes
    if processes.count == 1:
        return
    everyone = processes.exchange("the settings of fit", settings(run, validation))
    names = dict.fromkeys(name for each in everyone for name in each)  # in the order of the first process
    values = {name: [each.get(name, "none") for each in everyone] for name in names}
    unlike = {name: column for name, column in values.items() if len(set(column)) > 1}
    if len(unlike) > 1:
        unlike.pop(_ORDER, None)  # follows from the others
    if unlike:
        told = "; ".join(f"{name}: {_who_has_what(column)}" for name, column in unlike.items())
        raise ProcessError(
            f"{processes}: processes that train together begin with the same settings and the same data, of which each "
            f"loads its own share, and these differ: {told}"
        )


def settings(run: Run, validation: Any) -> dict[str, str]:
    """What must be equal, by name and in words."""
    trainer, loader = run.trainer, run.loader
    found: dict[str, Any] = {
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
        "averaged weights": None if trainer.average is None else trainer.average.decay,
    }
    for name, optimizer in trainer.optimizers.items():
        found |= {f"optimizer {name!r}, {key}": value for key, value in _of_optimizer(optimizer).items()}
    for name, schedule in trainer.schedules.items():
        found[f"schedule of {name!r}"] = f"{type(schedule).__name__}, now {schedule.factor(run.step):g}"
    return {name: str(value) for name, value in found.items()}


def _of_optimizer(optimizer: AbstractOptimizer) -> dict[str, Any]:
    rules = type(optimizer).__name__ if optimizer.groups is None else optimizer.groups.rules
    clipping = [hook for hook in optimizer.pre_update_hooks if isinstance(hook, ClipNorm | ClipValue)]
    return {
        "update rule": rules,
        "lr": optimizer.lr,
        "accumulate": optimizer.accumulate,
        "clipping": clipping,
    }


def _who_has_what(column: list[str]) -> str:
    ranks: dict[str, list[str]] = {}
    for rank, value in enumerate(column):
        ranks.setdefault(value, []).append(str(rank))
    return ", ".join(f"{value} in process {' and '.join(numbers)}" for value, numbers in ranks.items())


def _samples_in(validation: Any) -> int | None:
    """How many samples there are to validate with, where the data know."""
    try:
        if isinstance(validation, data.Loader):
            return validation.samples
        return batching.size(validation) if isinstance(validation, tuple | Mapping) else len(validation)
    except (TypeError, DeliralikeError):  # there are none, or evaluation says what is wrong with them
        return None


def _named(parts: Any) -> Any:
    """The names of losses or metrics."""
    if isinstance(parts, Mapping):
        return sorted(parts)
    return None if parts is None else getattr(parts, "__qualname__", type(parts).__name__)
