"""Compare one case as its author would: the networks as they are, and each side's own loss."""

from __future__ import annotations

import importlib
import random
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from deliralike import backends
from deliralike.conformance import Subject, compare
from tests.score.judging import RAISED, Said, said
from tests.score.sources import Task, edited, imported


def run(task: Task) -> Said:
    """What the proof says of a case; an error is something that it says."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mistaken networks divide by zero
        try:
            found = said(proof_of(task))
        except Exception as error:
            message = " ".join(str(error).split())
            found = Said(RAISED, f"{type(error).__name__}: {message}")
    seconds = time.perf_counter() - start
    return Said(**{**vars(found), "seconds": seconds})


def proof_of(task: Task) -> Any:
    """The whole proof of a case."""
    _seed()
    original = importlib.import_module(f"tests.score.pairs.{task.pair}.reference")
    with tempfile.TemporaryDirectory(prefix="deliralike-score-") as folder:
        port = imported(edited(task), f"{task.pair}_{task.case.port}", Path(folder))
        reference = original.network()
        candidate = port.network(reference)
        sides = side(reference, original), side(candidate, port)
        return compare(*sides, original.batch(), weights=port.WEIGHTS, **_options(task, original))


def side(native: Any, module: ModuleType) -> Any:
    """A native network, with the loss and optimizers that its module has."""
    parts: dict[str, Any] = {}
    if hasattr(module, "loss"):
        parts["loss"] = module.loss
    if hasattr(module, "OPTIMIZERS"):
        makers = module.OPTIMIZERS.items()
        parts["optimizers"] = {name: partial(_wrapped, make) for name, make in makers}
    if not parts:
        return native
    return Subject(backends.of(native).wrap(native), **parts)


def _wrapped(make: Any, network: Any) -> Any:
    """The native optimizer of a network, as the comparison wants it."""
    return network.backend.wrap_optimizer(make(network.native), network)


def _options(task: Task, original: ModuleType) -> dict[str, Any]:
    options = dict(getattr(original, "OPTIONS", {}))
    return options | dict(getattr(task.case, "options", ()))


def _seed() -> None:
    """Start values that a port draws are the same in every run."""
    random.seed(0)
    np.random.seed(0)
    importlib.import_module("torch").manual_seed(0)
