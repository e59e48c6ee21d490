"""The usual comparison: ``allclose`` on outputs, gradients and loss curves in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.findings import is_number
from deliralike.conformance.levels.semantics import look
from deliralike.conformance.subject import Subject
from deliralike.errors import ProofFailed
from deliralike.optim.rules import rule

TOLERANCES = (1e-3, 1e-4)
STEPS = 20


def seen_by_allclose(
    reference: Subject, candidate: Subject, batch: tuple[Any, ...]
) -> tuple[str, ...]:
    """The comparisons that fail, such as ``"outputs 1e-03"``; a candidate that raises fails all.

    Args:
        reference, candidate: Subjects in float32, which are trained.
        batch: Inputs and target.
    """
    mine = _looked_at(reference, batch)
    try:
        theirs = _looked_at(candidate, batch)
    except Exception:
        return tuple(f"{what} {tolerance:.0e}" for what in mine for tolerance in TOLERANCES)
    return tuple(
        f"{what} {tolerance:.0e}"
        for what in mine
        for tolerance in TOLERANCES
        if not _all_close(mine[what], theirs[what], tolerance)
    )


def _looked_at(subject: Subject, batch: tuple[Any, ...]) -> dict[str, list[Any]]:
    network, backend = subject.network, subject.network.backend
    evaluated, trained = look(subject, batch, False), look(subject, batch, True)
    if error := evaluated.error or trained.error:
        raise ProofFailed(error)
    outputs = [leaf for leaf in nest.leaves(evaluated.output) if is_number(leaf)]
    gradients = trained.recording.parameters
    optimizer = next(iter(subject.optimizers.values()), None)
    stepping = (
        optimizer(network)
        if optimizer
        else backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)
    )
    losses = []
    with network.training_mode(True):
        for step in range(STEPS):
            with random.portable(0, step):
                losses.append(backend.number(stepping.update(subject.loss, *batch)))
    return {
        "outputs": outputs,
        "gradients": [gradients[name] for name in sorted(gradients)],
        "curves": losses,
    }


def _all_close(mine: list[Any], theirs: list[Any], tolerance: float) -> bool:
    if len(mine) != len(theirs):
        return False
    return all(_close(x, y, tolerance) for x, y in zip(mine, theirs, strict=True))


def _close(mine: Any, theirs: Any, tolerance: float) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    same = np.shape(mine) == np.shape(theirs)
    return same and bool(np.allclose(mine, theirs, rtol=tolerance, atol=tolerance, equal_nan=True))
