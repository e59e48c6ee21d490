"""Compare one case as its author would: the networks as they are, and each side's own loss."""

from __future__ import annotations

import importlib
import random
import tempfile
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from deliralike import backends
from deliralike.conformance import Subject, compare, distance_loss
from tests.score import mutants
from tests.score.case import Mistake, Right
from tests.score.classes import LOSS, NETWORK, OPTIMIZER, Subclass
from tests.score.judging import BROKEN, EQUAL, RAISED, Said, said
from tests.score.mutants import Mutation
from tests.score.ports import PACKAGE, Task, edited
from tests.score.ports.references import REFERENCES
from tests.score.rules import Change

NAME = "mine"  # of the optimizer that is compared


Case = Mistake | Right


def run(task: Task | Mutation) -> tuple[Case, Said]:
    """A case with all that is to be known of it, and what the proof says of it."""
    start = time.perf_counter()
    run_one = _run_mutation if isinstance(task, Mutation) else _run_port
    with (
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory(prefix="deliralike-score-") as name,
    ):
        warnings.simplefilter("ignore")  # mistaken networks divide by zero
        case, found = run_one(task, Path(name))
    return case, replace(found, seconds=time.perf_counter() - start)


def heard(*arguments: Any, **options: Any) -> Said:
    """What `compare` says; an error is something that it says."""
    try:
        return said(compare(*arguments, **options))
    except Exception as error:
        message = " ".join(str(error).split())
        return Said(RAISED, f"{type(error).__name__}: {message}")


def _run_port(task: Task, folder: Path) -> tuple[Case, Said]:
    _seed()
    module = mutants.as_module(PACKAGE + task.case.port, edited(task), folder)
    name, make, *order = module.PORTS[task.port]
    wanted = REFERENCES[name]
    reference = mutants.varied(wanted.build())
    is_copied = not isinstance(make, type)
    candidate = make(reference) if is_copied else make(*module.ARGUMENTS)
    losses = wanted.loss, partial(wanted.loss, order=order[0]) if order else wanted.loss
    sides = [
        Subject(backends.of(network).wrap(network), loss)
        for network, loss in zip((reference, candidate), losses)
    ]
    return task.case, heard(
        *sides, wanted.batch, weights="judge" if is_copied else "load"
    )


def _seed() -> None:
    """Start values that a port draws are the same in every run."""
    random.seed(0)
    np.random.seed(0)
    importlib.import_module("torch").manual_seed(0)


# Mutations
# -----------------------------------------------------------------------------


def _run_mutation(task: Mutation, folder: Path) -> tuple[Case, Said]:
    _seed()
    kind = mutants.find(task.name_of_class)
    original = importlib.import_module(kind.module)
    if not task.is_mistake:
        return task.case, _compared_class(kind, original, original, task.port)
    text = mutants.source(kind.module)
    change = mutants.changes_of(kind.module)[task.index]
    try:
        module = mutants.as_module(kind.module, change.apply(text), folder)
        effect = _EFFECTS[kind.part](kind, original, module)
    except Exception as error:
        return task.case, Said(BROKEN, f"{type(error).__name__}: {error}")
    if effect is None:
        return task.case, Said(EQUAL)
    where = _places(kind, change, text, original)
    case = replace(task.case, places=where, cause=change.cause, effect=effect)
    if kind.part == NETWORK:
        return case, _compared_class(kind, original, module, task.port)
    return case, _compared_training(kind, original, module)


def _on(kind: Subclass, module: ModuleType, port: str) -> Any:
    built = kind.build(module)
    return built(port) if kind.is_ours else built


def _reference(kind: Subclass, original: ModuleType) -> Any:
    _seed()
    made = (
        _on(kind, original, "torch")
        if kind.part == NETWORK
        else mutants.small_network()
    )
    return mutants.varied(made)


def _effect_of_class(
    kind: Subclass, original: ModuleType, module: ModuleType
) -> bool | None:
    """Whether outputs in evaluation change; None where nothing does."""
    reference = _reference(kind, original)
    candidate = mutants.with_weights(_on(kind, module, "torch"), reference)
    batch = kind.batch()
    found = {}
    for mode in ("eval", "train"):
        pair = [mutants.observed(each, batch, mode) for each in (reference, candidate)]
        outputs = [
            {k: v for k, v in each.items() if k.startswith("output")} for each in pair
        ]
        found[mode] = mutants.differ(*pair)
        found.setdefault("effect", mutants.differ(*outputs))
    return found["effect"] if found["eval"] or found["train"] else None


def _effect_of_training(
    kind: Subclass, original: ModuleType, module: ModuleType
) -> bool | None:
    observe = mutants.observed_loss if kind.part == LOSS else mutants.observed_updates
    network, batch = _reference(kind, original), kind.batch()
    pair = [observe(kind.build(each), network, batch) for each in (original, module)]
    return False if mutants.differ(*pair) else None


_EFFECTS = {
    NETWORK: _effect_of_class,
    LOSS: _effect_of_training,
    OPTIMIZER: _effect_of_training,
}


def _places(
    kind: Subclass, change: Change, text: str, original: ModuleType
) -> tuple[str, ...]:
    if kind.part == NETWORK:
        return mutants.places(change, text, kind.module, _reference(kind, original))
    return (f"optimizer {NAME}",) if kind.part == OPTIMIZER else ("loss",)


def _compared_class(
    kind: Subclass, original: ModuleType, module: ModuleType, port: str
) -> Said:
    reference = _reference(kind, original)
    candidate = _on(kind, module, port)
    if port == "torch":
        candidate = mutants.with_weights(candidate, reference)
    options = {"loss": distance_loss, "weights": "judge" if port == "torch" else "load"}
    return heard(reference, candidate, kind.batch(), **options)


def _wrapped(make: Any, network: Any) -> Any:
    """The native optimizer of a network, as the comparison wants it."""
    return network.backend.wrap_optimizer(make(network.native), network)


def _compared_training(
    kind: Subclass, original: ModuleType, module: ModuleType
) -> Said:
    sides = []
    for each in (original, module):
        network, made = _reference(kind, original), kind.build(each)
        parts: dict[str, Any] = {"optimizers": {NAME: partial(_wrapped, made)}}
        if kind.part == LOSS:
            parts = {"loss": lambda network, x, y, made=made: made(network(x), y)}
        sides.append(Subject(backends.of(network).wrap(network), **parts))
    return heard(*sides, kind.batch())
