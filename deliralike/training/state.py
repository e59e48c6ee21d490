"""All that a run's future depends on, gathered for a checkpoint and restored from one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from deliralike.errors import ArgumentError, CheckpointError
from deliralike.nn import start
from deliralike.optimizer import AbstractOptimizer
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch
from deliralike.training.run import Run

State = dict[str, Any]

_OPTIMIZER = "optimizer."
_PARTS = ("network", "schedules", "average", "random", "callbacks", "run")


def gather(run: Run) -> State:
    """The state of a run between two steps, for `checkpoint.write`.

    Its parts: the network's neutral state, frozen parameters aside; each optimizer; what schedules, an average of the
    weights and callbacks have seen; where the random generators of the backend, of Python and of NumPy are; and the
    run's position, its records of epochs and what tells it from other runs.

    Raises:
        CheckpointError: A step is being made, so that the state is not one of the run.
    """
    if run.in_step or any(optimizer.window_is_open for optimizer in run.optimizers.values()):
        raise CheckpointError("the state of a run cannot be taken while an update is being made: take it in on_step, "
                              "on_epoch or on_end of a callback")  # fmt: skip
    average = run.trainer.average
    return {
        "network": run.network.neutral_state(),
        **{_OPTIMIZER + name: _optimizer_state(run, name) for name in run.optimizers},
        "schedules": {name: schedule.state() for name, schedule in run.trainer.schedules.items()},
        "average": None if average is None else average.state(),
        "random": _random_state(run),
        "callbacks": {name: callback.state() for name, callback in _callbacks(run).items()},
        "run": {
            "position": run.position(),
            "identity": identity(run),
            "backend": run.network.backend.name,
            "frozen": _frozen(run),
            "epochs": [asdict(epoch) for epoch in run.history.epochs],
        },
    }


def restore(run: Run, state: Mapping[str, Any]) -> None:
    """Let a run go on from a state, also one of another backend, device or number of replicas.

    On the same backend what follows is the same bit for bit. On another one the framework's own generators are seeded
    from the run's seed and the step, since theirs are different.

    Raises:
        CheckpointError: The state is that of another run, with other data, batches, seed, optimizers or types; or
            something in it does not fit. Nothing has changed.
    """
    _refuse_other_run(run, state)
    before = gather(run)
    try:
        _take_over(run, state)
    except Exception as error:
        _take_over(run, before)
        raise CheckpointError(f"the run was not resumed, and is left as it was: {error}") from error
    run.resumed = True


def identity(run: Run) -> dict[str, Any]:
    """What a run and the one that it is resumed from have in common; devices, and how many there are, are not in it."""
    loader = run.loader
    return {
        "dtype": run.network.dtype_name,
        "seed": run.trainer.seed,
        "rng": run.trainer.rng,
        "accumulate": {name: optimizer.accumulate for name, optimizer in run.optimizers.items()},
        "samples": _samples(loader),
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "order": type(loader.sampler).__name__,
        "order_seed": loader.seed,
        "average": run.trainer.average is not None,
        "schedules": {name: type(schedule).__name__ for name, schedule in run.trainer.schedules.items()},
    }


def _samples(loader: Any) -> int | None:
    try:
        return int(loader.samples)
    except ArgumentError:  # a stream
        return None


def _refuse_other_run(run: Run, state: Mapping[str, Any]) -> None:
    wanted = {*_PARTS, *(_OPTIMIZER + name for name in run.optimizers)}
    if missing := sorted(set(_PARTS) - state.keys()):
        raise CheckpointError(f"the checkpoint is not one of a run: it lacks {', '.join(missing)}")
    if state.keys() != wanted:
        raise CheckpointError(f"the checkpoint is one of another run: it has {_optimizer_names(state)}, and here "
                              f"{_optimizer_names(wanted)}")  # fmt: skip
    before, here = state["run"]["identity"], identity(run)
    differing = [f"{key} was {before.get(key)!r}, here it is {here[key]!r}" for key in here
                 if before.get(key) != here[key]]  # fmt: skip
    if differing:
        raise CheckpointError(f"the checkpoint is one of another run: {'; '.join(differing)}. Give the run what it "
                              f"had, or begin a new one from the weights, network.safetensors")  # fmt: skip


def _optimizer_names(parts: Iterable[str]) -> str:
    names = sorted(part.removeprefix(_OPTIMIZER) for part in parts if part.startswith(_OPTIMIZER))
    return f"the optimizers {', '.join(map(repr, names))}"


def _take_over(run: Run, state: Mapping[str, Any]) -> None:
    run.network.load_neutral_state(state["network"])
    slots = run.network.neutral_slots()
    for name in (name for name, slot in slots.items() if slot.is_parameter):
        if slots[name].trainable == (name in state["run"]["frozen"]):
            slots[name].trainable = name not in state["run"]["frozen"]
    for name in run.optimizers:
        _load_optimizer(run, name, state[_OPTIMIZER + name])
    for name, schedule in run.trainer.schedules.items():
        schedule.load_state(state["schedules"][name])
    if run.trainer.average is not None:
        run.trainer.average.load_state(state["average"])
    for name, callback in _callbacks(run).items():
        if name in state["callbacks"]:
            callback.load_state(state["callbacks"][name])
    for key, value in state["run"]["position"].items():
        setattr(run, key, value)
    run.history.epochs[:] = [_epoch(record) for record in state["run"]["epochs"]]
    _load_random_state(run, state["random"])  # last: what came before may have drawn


def _epoch(record: Mapping[str, Any]) -> Epoch:
    known = {field.name for field in fields(Epoch)}
    return Epoch(**{key: value for key, value in record.items() if key in known})


def _frozen(run: Run) -> list[str]:
    return [name for name, slot in run.network.neutral_slots().items() if slot.is_parameter and not slot.trainable]


def _callbacks(run: Run) -> dict[str, Callback]:
    """By class, and number among those of the class: ``"JsonLines.0"``."""
    found: dict[str, Callback] = {}
    for callback in run.trainer.callbacks:
        kind = type(callback).__name__
        found[f"{kind}.{sum(name.rpartition('.')[0] == kind for name in found)}"] = callback
    return found


# Optimizers ------------------------------------------------------------------------------------------------------


def _optimizer_state(run: Run, name: str) -> State:
    optimizer = run.optimizers[name]
    scale = optimizer.loss_scale
    return {
        "state": optimizer.neutral_state(),
        "lr": optimizer.lr,
        "base_lr": run.trainer.base_lr[name],
        "loss_scale": None if scale is None else scale.state(),
    }


def _load_optimizer(run: Run, name: str, state: Mapping[str, Any]) -> None:
    optimizer: AbstractOptimizer = run.optimizers[name]
    optimizer.load_neutral_state(state["state"])
    if optimizer.lr != state["lr"]:
        optimizer.lr = state["lr"]
    run.trainer.base_lr[name] = state["base_lr"]
    if optimizer.loss_scale is not None and state["loss_scale"] is not None:
        optimizer.loss_scale.load_state(state["loss_scale"])


# Chance ----------------------------------------------------------------------------------------------------------


def _random_state(run: Run) -> State:
    """That of the backend under its name, and those of Python and NumPy, which a user's transforms may draw from."""
    backend = run.network.backend
    version, words, gauss = random.getstate()
    return {
        "backends": {backend.name: backend.random_state(run.network)},
        "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
        "numpy": np.random.get_state(legacy=False),
    }


def _load_random_state(run: Run, state: Mapping[str, Any]) -> None:
    backend = run.network.backend
    of_backend = state["backends"].get(backend.name)
    if of_backend is None:
        backend.seed(int(start.key(run.trainer.seed, f"resumed/{run.step}")[1]) % 2**32)
    else:
        backend.load_random_state(run.network, of_backend)
    python = state["python"]
    random.setstate((python["version"], tuple(map(int, python["words"])), python["gauss"]))
    np.random.set_state(state["numpy"])
