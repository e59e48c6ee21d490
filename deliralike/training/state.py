"""The state of a run, gathered for a checkpoint and restored from one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from deliralike.data.foreign import Batches, checksum
from deliralike.errors import CheckpointError, StateError
from deliralike.network.base import AbstractNetwork
from deliralike.network.freezing import parts_in_evaluation, set_parts_in_evaluation
from deliralike.nn import start
from deliralike.optim.optimizer import AbstractOptimizer, known_lr
from deliralike.training.callbacks.callback import Callback
from deliralike.training.history import Epoch
from deliralike.training.identity.fingerprints import (
    fingerprints_at_start,
    refuse_differences,
    samples_of,
)
from deliralike.training.json_nests import State
from deliralike.training.run import Run

_OPTIMIZER = "optimizer."
_PARTS = ("network", "unaveraged", "average", "random", "callbacks", "run")


def gather(run: Run) -> State:
    """Return the state of a run between two steps, for `checkpoint.write`.

    Its parts are the neutral state of the network as validation evaluates it; where the weights are
    averaged, the network's own ones; the state of each optimizer, of the average and of
    callbacks; the states of the random generators of the backend, of Python and of NumPy; and
    the run's position, its records of epochs and its fingerprints.

    Raises:
        CheckpointError: A step is being made, so that the state is not one of the run.
    """
    if run.in_step or any(
        optimizer.window_is_open for optimizer in run.optimizers.values()
    ):
        raise CheckpointError(
            "the state of a run cannot be taken while an update is being made: take it in on_step, "
            "on_epoch or on_end of a callback"
        )
    average = None if run.trainer.average is None else run.trainer.average.state()
    averaged = {} if average is None else average.pop("weights")
    own = run.network.neutral_state()
    callbacks = _callbacks(run).items()
    frozen = []
    for name, slot in run.network.neutral_slots().items():
        if slot.is_parameter and not slot.trainable:
            frozen.append(name)
    state: State = {"network": averaged or own, "unaveraged": own if averaged else {}}
    for name in run.optimizers:
        state[_OPTIMIZER + name] = _optimizer_state(run, name)
    state["average"] = average
    state["random"] = _random_state(run)
    state["callbacks"] = {name: callback.state() for name, callback in callbacks}
    state["run"] = {
        "position": run.position(),
        "fingerprints": fingerprints_at_start(run),
        "backend": run.network.backend.name,
        "frozen": frozen,
        "in_evaluation": parts_in_evaluation(run.network),
        "epochs": list(map(asdict, run.history.epochs)),
    }
    if isinstance(run.loader, Batches) and run.batch and run.latest_batches:
        state["run"]["latest_batch"] = checksum(run.latest_batches[-1])
    return state


def restore(run: Run, state: Mapping[str, Any], accept: Sequence[str] = ()) -> None:
    """Resume a run from a state, also one of another backend, device or number of replicas.

    On the same backend the run goes on the same bit for bit. On another one the framework's own
    generators are seeded from the run's seed and the step, since theirs are different.

    Args:
        accept: The names of the values that may differ from the run of the state; see
            `Trainer.fit`. An optimizer or an average of another kind begins anew, and
            a learning rate that differs is the new one.

    Raises:
        CheckpointError: The state is that of another run, with other data, losses, seed, optimizers
            or types, which are named; or something in it does not fit. Nothing has changed.
    """
    changed = _refuse_other_run(run, state, accept)
    before = gather(run)
    try:
        _take_over(run, state, changed)
    except Exception as error:
        _take_over(run, before, set())
        raise CheckpointError(
            f"the run was not resumed, and is left as it was: {error}"
        ) from error
    run.resumed = True


def _refuse_other_run(
    run: Run, state: Mapping[str, Any], accept: Sequence[str]
) -> set[str]:
    """Raise an error if a state is not one of this run; return the accepted differences."""
    missing = sorted(set(_PARTS) - state.keys())
    if missing:
        raise CheckpointError(
            f"the checkpoint is not one of a run: it lacks {', '.join(missing)}"
        )
    of_run = state["run"]
    wanted = {*_PARTS, *(_OPTIMIZER + name for name in run.optimizers)}
    if state.keys() != wanted and "optimizer" not in accept:
        raise CheckpointError(
            f"the checkpoint is one of another run: it has {_optimizer_names(state)}, and here "
            f"{_optimizer_names(wanted)}. Take the change on purpose with "
            f"accept=['optimizer'], or give the run what it had"
        )
    here = fingerprints_at_start(run)
    before = of_run["fingerprints"]
    same_backend = of_run["backend"] == run.network.backend.name
    changed = refuse_differences(before, here, same_backend, accept)
    batch = of_run["position"]["batch"]
    # Accepted other data or batches may end before the position.
    has_length = samples_of(run.loader) is not None
    if changed and has_length and batch > len(run.loader):
        raise CheckpointError(
            f"the checkpoint stands after batch {batch} of its epoch, and an epoch has "
            f"{len(run.loader)} here: go on from one that was written between two epochs"
        )
    return changed


def _optimizer_names(parts: Iterable[str]) -> str:
    names = []
    for part in sorted(parts):
        if part.startswith(_OPTIMIZER):
            names.append(repr(part.removeprefix(_OPTIMIZER)))
    return f"the optimizers {', '.join(names)}"


def _take_over(run: Run, state: Mapping[str, Any], changed: Collection[str]) -> None:
    """Load all parts of the state; the parts whose paths are in `changed` begin anew."""
    own = state["unaveraged"]
    run.network.load_neutral_state(own or state["network"])
    for name, slot in run.network.neutral_slots().items():
        is_trainable = name not in state["run"]["frozen"]
        if slot.is_parameter and slot.trainable != is_trainable:
            slot.trainable = is_trainable
    set_parts_in_evaluation(run.network, state["run"]["in_evaluation"])
    for name in run.optimizers:
        if _OPTIMIZER + name in state:
            _load_optimizer(run, name, state[_OPTIMIZER + name], changed)
    average = run.trainer.average
    if average is not None and state["average"] is None:
        average.reset()
    elif average is not None:
        average.load_state({"weights": state["network"]})
    for name, callback in _callbacks(run).items():
        if name in state["callbacks"]:
            callback.load_state(state["callbacks"][name])
    position = state["run"]["position"]
    run.epoch = position["epoch"]
    run.batch = position["batch"]
    run.step = position["step"]
    if isinstance(run.loader, Batches) and "latest_batch" in state["run"]:
        run.loader.expect(run.epoch, run.batch, state["run"]["latest_batch"])
    run.history.epochs[:] = [Epoch(**record) for record in state["run"]["epochs"]]
    _load_random_state(run, state["random"])  # last: what came before may have drawn


def _callbacks(run: Run) -> dict[str, Callback]:
    """Return the callbacks by class and number within the class: ``"JsonLines.0"``."""
    callbacks: dict[str, Callback] = {}
    counts: Counter[str] = Counter()
    for callback in run.trainer.callbacks:
        kind = type(callback).__name__
        callbacks[f"{kind}.{counts[kind]}"] = callback
        counts[kind] += 1
    return callbacks


# Optimizers ---------------------------------------------------------------------------------------


def _optimizer_state(run: Run, name: str) -> State:
    optimizer = run.optimizers[name]
    scale = optimizer.loss_scale
    return {
        "state": optimizer.neutral_state(),
        "lr": known_lr(optimizer),
        "base_lr": run.trainer.base_lr[name],
        "loss_scale": None if scale is None else scale.state(),
    }


def _load_optimizer(
    run: Run, name: str, state: Mapping[str, Any], changed: Collection[str]
) -> None:
    optimizer: AbstractOptimizer = run.optimizers[name]
    where = f"optimizer.{name}"
    own_state = state["state"]
    new_state = {"steps": own_state["steps"]}
    try:
        optimizer.load_neutral_state(new_state if where in changed else own_state)
    except StateError:
        # Numbers that were changed on purpose may want other arrays.
        if not any(path.startswith(f"{where}.") for path in changed):
            raise
        optimizer.load_neutral_state(new_state)
    if where not in changed and f"{where}.lr" not in changed:
        run.trainer.base_lr[name] = state["base_lr"]
        if known_lr(optimizer) != state["lr"]:
            optimizer.lr = state["lr"]
    if f"schedule.{name}" in changed and name not in run.trainer.schedules:
        base = run.trainer.base_lr[name]
        if base is not None:
            optimizer.lr = base
    if optimizer.loss_scale is not None and state["loss_scale"] is not None:
        optimizer.loss_scale.load_state(state["loss_scale"])


@contextmanager
def without_side_effects(trainer: Any) -> Iterator[None]:
    """Give back random generators, buffers and the attributes of all blocks as they are now.

    Not where parameters that waited for an input were started; and parameters only where arrays
    cannot change, so that keeping them costs nothing: a forward pass may set them.
    """
    network = trainer.network
    backend = network.backend
    run = Run(trainer, epochs=0)
    attributes = []
    for _, block in network.named_blocks():
        if hasattr(block, "__dict__"):
            attributes.append((block, dict(vars(block))))
    generators = _random_state(run)
    shapes = _shapes(network)
    zero = backend.array(np.zeros(1, np.float32))
    are_constant = backend.copied(zero) is zero
    values = {}
    for name, slot in network.neutral_slots().items() if shapes else ():
        if are_constant or not slot.is_parameter:
            values[name] = backend.copied(slot.value)
    try:
        yield
    finally:
        if _shapes(network) == shapes:
            _load_random_state(run, generators)
            slots = network.neutral_slots()
            for name, value in values.items():
                slots[name].value = value
            if values:
                network.parallelism.copy_state()
        for block, before in attributes:
            _set_attributes(vars(block), before)


def _set_attributes(now: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Set the public attributes of a block to those from before."""
    for name in now.keys() - before.keys():
        if not name.startswith("_"):
            del now[name]
    for name, value in before.items():
        if not name.startswith("_"):
            now[name] = value


def _shapes(network: AbstractNetwork) -> dict[str, Any]:
    """Return the shape of each parameter and buffer; nothing while one waits for an input."""
    try:
        slots = network.neutral_slots().items()
        return {name: slot.shape for name, slot in slots}
    except Exception:  # noqa: BLE001  # frameworks differ in what they raise
        return {}


# Random numbers -----------------------------------------------------------------------------------


def _random_state(run: Run) -> State:
    """Return the states of the backend's generators and of Python's and NumPy's global ones.

    A user's transforms may draw from the global generators.
    """
    backend = run.network.backend
    version, words, gauss = random.getstate()
    return {
        "backends": {backend.name: backend.random_state(run.network)},
        "python": {
            "version": version,
            "words": np.array(words, np.uint32),
            "gauss": gauss,
        },
        "numpy": np.random.get_state(legacy=False),
    }


def _load_random_state(run: Run, state: Mapping[str, Any]) -> None:
    backend = run.network.backend
    of_backend = state["backends"].get(backend.name)
    if of_backend is None:
        _, word = start.key(run.trainer.seed, f"resumed/{run.step}")
        backend.seed(int(word) % 2**32)
    else:
        backend.load_random_state(run.network, of_backend)
    python = state["python"]
    words = tuple(map(int, python["words"]))
    random.setstate((python["version"], words, python["gauss"]))
    np.random.set_state(state["numpy"])
