"""All that a run's future depends on, gathered for a checkpoint and restored from one."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from deliralike.errors import CheckpointError
from deliralike.nn import start
from deliralike.optimizer import AbstractOptimizer
from deliralike.training.callbacks.callback import Callback
from deliralike.training.describing import parents
from deliralike.training.fields import COUNT, NEST, NESTS, NUMBER, TEXT, TEXTS, TEXTS_BY_NAME, refuse_wrong_fields
from deliralike.training.fingerprints import (
    kept,
    of_the_same_kinds,
    refuse_differences,
    refuse_unknown_names,
    samples_of,
    warn_of_unchecked,
)
from deliralike.training.history import Epoch
from deliralike.training.run import Run

State = dict[str, Any]

_OPTIMIZER = "optimizer."
_PARTS = ("network", "schedules", "average", "random", "callbacks", "run")
_NO_AVERAGE = {"updates": 0, "averaged": 0, "weights": {}}

# The fields of what is set by name.
_POSITION = {"epoch": COUNT, "batch": COUNT, "step": COUNT}
_RUN = {"position": NEST, "identity": NEST, "backend": TEXT, "frozen": TEXTS, "epochs": NESTS}
_OF_OPTIMIZER = {"state": NEST, "lr": NUMBER, "base_lr": NUMBER, "loss_scale": NEST.or_none()}
_EPOCH = {"epoch": COUNT, "steps": COUNT, "held_out": NEST, "evaluation_seconds": NUMBER}


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
            "fingerprints": kept(run),
            "backend": run.network.backend.name,
            "frozen": _frozen(run),
            "epochs": [asdict(epoch) for epoch in run.history.epochs],
        },
    }


def restore(run: Run, state: Mapping[str, Any], accept: Sequence[str] = ()) -> None:
    """Let a run go on from a state, also one of another backend, device or number of replicas.

    On the same backend what follows is the same bit for bit. On another one the framework's own generators are seeded
    from the run's seed and the step, since theirs are different.

    Args:
        accept: What may differ from the run of the state; see `Trainer.fit`. An optimizer, a schedule or an average of
            another kind begins anew, and a learning rate that differs is the new one.

    Raises:
        CheckpointError: The state is that of another run, with other data, losses, seed, optimizers or types, which
            are named; or something in it does not fit. Nothing has changed.
        SettingError: `accept` names nothing that there is.
    """
    changed = _refuse_other_run(run, state, accept)
    before = gather(run)
    try:
        _take_over(run, state, changed)
    except Exception as error:
        _take_over(run, before, set())
        raise CheckpointError(f"the run was not resumed, and is left as it was: {error}") from error
    run.resumed = True


def identity(run: Run) -> dict[str, Any]:
    """What older versions compared; see `deliralike.training.fingerprints`."""
    loader = run.loader
    return {
        "dtype": run.network.dtype_name,
        "seed": run.trainer.seed,
        "rng": run.trainer.rng,
        "accumulate": {name: optimizer.accumulate for name, optimizer in run.optimizers.items()},
        "samples": samples_of(loader),
        "batch_size": loader.batch_size,
        "drop_last": loader.drop_last,
        "order": type(loader.sampler).__name__,
        "order_seed": loader.seed,
        "average": run.trainer.average is not None,
        "schedules": {name: type(schedule).__name__ for name, schedule in run.trainer.schedules.items()},
    }


def _refuse_other_run(run: Run, state: Mapping[str, Any], accept: Sequence[str]) -> set[str]:
    """An error when a state is not one of this run; what differs and is accepted."""
    if missing := sorted(set(_PARTS) - state.keys()):
        raise CheckpointError(f"the checkpoint is not one of a run: it lacks {', '.join(missing)}")
    refuse_wrong_fields("state['run']", state["run"], _RUN, {"fingerprints": TEXTS_BY_NAME})
    refuse_wrong_fields("state['run']['position']", state["run"]["position"], _POSITION)
    wanted = {*_PARTS, *(_OPTIMIZER + name for name in run.optimizers)}
    if state.keys() != wanted and "optimizer" not in accept:
        raise CheckpointError(
            f"the checkpoint is one of another run: it has {_optimizer_names(state)}, and here "
            f"{_optimizer_names(wanted)}. Take the change on purpose with "
            f"accept=['optimizer'], or give the run what it had"
        )
    here, before = kept(run), state["run"].get("fingerprints")
    names = {*here, *(before or ())}
    if before is None:
        warn_of_unchecked(state["run"]["identity"], here)
        before, here = _texts(state["run"]["identity"]), _texts(identity(run))
        for where, (came, ours) in _other_rules(run, state).items():
            before[where], here[where] = came, ours
    else:
        warn_of_unchecked(before, here)
        here = of_the_same_kinds(here, before)
    refuse_unknown_names(accept, {*names, *here, *before})
    changed = refuse_differences(before, here, state["run"]["backend"] == run.network.backend.name, accept)
    if changed:
        _refuse_position(run, state["run"]["position"]["batch"])
    return changed


def _refuse_position(run: Run, batch: int) -> None:
    """An error when other data or batches, which were accepted, end before the position of a checkpoint."""
    if samples_of(run.loader) is not None and batch > len(run.loader):
        raise CheckpointError(
            f"the checkpoint stands after batch {batch} of its epoch, and an epoch has {len(run.loader)} here: go on "
            f"from one that was written between two epochs"
        )


def _texts(identity: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in identity.items()}


def _other_rules(run: Run, state: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Which optimizers of an older checkpoint followed other rules, by the names of their arrays: before, and here."""
    found = {}
    for name, optimizer in run.optimizers.items():
        came = _slots_in(state.get(_OPTIMIZER + name, {}).get("state", {}))
        if optimizer.groups is not None and not came <= _slots_of(optimizer):
            found[f"optimizer.{name}"] = _rule_with(came), _rule_with(_slots_of(optimizer))
    return found


def _rule_with(slots: Iterable[str]) -> str:
    return f"a rule with {', '.join(sorted(slots)) or 'no state'}"


def _optimizer_names(parts: Iterable[str]) -> str:
    names = sorted(part.removeprefix(_OPTIMIZER) for part in parts if part.startswith(_OPTIMIZER))
    return f"the optimizers {', '.join(map(repr, names))}"


def _take_over(run: Run, state: Mapping[str, Any], changed: Collection[str]) -> None:
    """Set everything; what is of another kind on purpose, as `changed` tells by its path, begins anew."""
    run.network.load_neutral_state(state["network"])
    slots = run.network.neutral_slots()
    for name in (name for name, slot in slots.items() if slot.is_parameter):
        if slots[name].trainable == (name in state["run"]["frozen"]):
            slots[name].trainable = name not in state["run"]["frozen"]
    for name in run.optimizers:
        if _OPTIMIZER + name in state:
            _load_optimizer(run, name, state[_OPTIMIZER + name], changed)
    for name, schedule in run.trainer.schedules.items():
        if f"schedule.{name}" not in changed:
            schedule.load_state(state["schedules"][name])
    if run.trainer.average is not None:
        run.trainer.average.load_state(state["average"] or _NO_AVERAGE)
    for name, callback in _callbacks(run).items():
        if name in state["callbacks"]:
            callback.load_state(state["callbacks"][name])
    position = state["run"]["position"]
    run.epoch, run.batch, run.step = position["epoch"], position["batch"], position["step"]
    run.history.epochs[:] = [_epoch(record) for record in state["run"]["epochs"]]
    _load_random_state(run, state["random"])  # last: what came before may have drawn


def _epoch(record: Mapping[str, Any]) -> Epoch:
    refuse_wrong_fields("a record of an epoch", record, _EPOCH)
    return Epoch(**record)


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


def _load_optimizer(run: Run, name: str, state: Mapping[str, Any], changed: Collection[str]) -> None:
    refuse_wrong_fields(f"state['{_OPTIMIZER}{name}']", state, _OF_OPTIMIZER)
    optimizer: AbstractOptimizer = run.optimizers[name]
    where = f"optimizer.{name}"
    differs = any(where in parents(path) for path in changed)
    anew = where in changed or (differs and _slots_in(state["state"]) != _slots_of(optimizer))
    optimizer.load_neutral_state({"steps": state["state"]["steps"]} if anew else state["state"])
    if where not in changed and f"{where}.lr" not in changed:
        run.trainer.base_lr[name] = state["base_lr"]
        if optimizer.lr != state["lr"]:
            optimizer.lr = state["lr"]
    if f"schedule.{name}" in changed and name not in run.trainer.schedules:
        optimizer.lr = run.trainer.base_lr[name]
    if optimizer.loss_scale is not None and state["loss_scale"] is not None:
        optimizer.loss_scale.load_state(state["loss_scale"])


def _slots_in(state: Mapping[str, Any]) -> set[str]:
    """The names of the arrays that an optimizer's state has for its parameters."""
    return {name.rpartition("/")[2] for name in state} - {"steps", "step"}


def _slots_of(optimizer: AbstractOptimizer) -> set[str]:
    """Those that its rules have; empty for an optimizer of the framework's own."""
    rules = () if optimizer.groups is None else optimizer.groups.rules
    return {slot for rule in rules for slot in rule.slots}


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
