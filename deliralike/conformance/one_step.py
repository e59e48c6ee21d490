"""One training step of a plain or replicated network, as NumPy arrays by kind and name."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.by_name import only, without
from deliralike.conformance.kinds import Batch, Tensors
from deliralike.conformance.listening import handed
from deliralike.conformance.replica_changes import of_share
from deliralike.conformance.subject import Make, Subject
from deliralike.network.base import AbstractNetwork
from deliralike.optim.loss import value_of
from deliralike.optim.optimizer import AbstractOptimizer
from deliralike.optim.rules import rule

# By kind ("loss", "output", "gradient", "buffer", "update by sgd", "second update by sgd"), then by
# name.
Step = dict[str, dict[str, Any]]
# A step this long is the gradient, exactly: what is left of the parameter in the difference is lost
# below its rounding.
_LONG = 2.0**20


def take_step(subject: Subject, network: AbstractNetwork, batch: Batch) -> Step:
    """Return outputs, loss, gradients and buffers after one step in training mode.

    The network is left as it was.

    The gradient is what an optimizer moves the parameters by, so that of a replicated network has
    gone all its way: through the replicas' backward passes and through the hooks that accumulate
    it. A parameter that took no part has a gradient of zero.

    Args:
        network: The subject's, or that one replicated.
        batch: Arguments of the loss after the network; what it hands to the network gives the
            outputs.
    """
    with _left_as_it_was(network) as before:
        outputs = _outputs(subject, network, batch)
        network.load_neutral_state(before)
        return {"output": outputs, **_long_step(subject, network, batch)}


def kind_differences(kind: str, wanted: Step, came: Step, null: Container[str]) -> dict[str, float]:
    """How far each tensor of a kind is.

    Those with a null gradient, which an optimizer may scale to a full step, are left out.
    """
    mine, theirs = wanted[kind], came[kind]
    names = {**mine, **theirs}
    if kind not in ("loss", "output", "buffer"):
        names = without(names, null)
    return {name: relative_difference(mine.get(name), theirs.get(name)) for name in names}


def take_updates(
    subject: Subject,
    network: AbstractNetwork,
    batch: Batch,
) -> Step:
    """Return the first two updates of the parameters by each optimizer, on one batch.

    The network is left as it was.

    Two, since what a replica did not take over from the first shows in the second.
    """
    with _left_as_it_was(network) as before:
        moves: Step = {}
        for name, make in optimizers_of(subject).items():
            network.load_neutral_state(before)
            moves |= _two_updates(name, make(network), subject, batch)
        return moves


@contextmanager
def _left_as_it_was(network: AbstractNetwork) -> Iterator[Tensors]:
    """Training mode; the weights and buffers before and, again, after."""
    before = network.neutral_state()
    try:
        with network.training_mode(True):
            yield before
    finally:
        network.load_neutral_state(before)


def null_gradients(subject: Subject, batch: Batch, step: int = 0) -> tuple[str, ...]:
    """The parameters whose gradients in training mode are zero up to rounding.

    Optimizers make steps of noise of them. The subject's network stays as it is.
    """
    network = copy.deepcopy(subject.network)
    network.train()
    with random.portable(step=step):
        found = network.backend.gradients(subject.loss, network, *batch).parameters
    return compare(found, found).null


def optimizers_of(subject: Subject) -> Mapping[str, Make]:
    """The subject's optimizers; gradient descent where it has none."""
    return subject.optimizers or {
        "sgd": lambda network: network.backend.optimizer(rule("sgd", lr=0.1), network)
    }


def _outputs(subject: Subject, network: AbstractNetwork, batch: Batch) -> dict[str, Any]:
    call = handed(of_share(subject.loss), network, network.backend.prepare(batch, network))
    if call is None:
        return {}
    with random.portable():
        outputs = network.backend.to_numpy(network(*call[0], **call[1]))  # type: ignore[operator]
    return dict(nest.leaves_with_paths(outputs, "output"))


def _long_step(subject: Subject, network: AbstractNetwork, batch: Batch) -> Step:
    before, is_parameter = network.neutral_state(), parameters_of(network)
    optimizer = network.backend.optimizer(rule("sgd", lr=_LONG), network)
    with random.portable():
        result = optimizer.update(subject.loss, *batch)
    after = network.neutral_state()
    parameters = only(before, is_parameter).items()
    return {
        "loss": {"loss": network.backend.number(value_of(result))},
        "gradient": {name: (value - after[name]) / _LONG for name, value in parameters},
        "buffer": without(after, is_parameter),
    }


def parameters_of(network: AbstractNetwork) -> set[str]:
    """The neutral names of the parameters."""
    return {name for name, slot in network.neutral_slots().items() if slot.is_parameter}


def _two_updates(
    name: str,
    optimizer: AbstractOptimizer,
    subject: Subject,
    batch: Batch,
) -> Step:
    network, moves = optimizer.network, {}
    is_parameter = parameters_of(network)
    for step, what in enumerate((f"update by {name}", f"second update by {name}")):
        before = network.neutral_state()
        with random.portable(step=step):
            optimizer.update(subject.loss, *batch)
        after = network.neutral_state()
        parameters = only(before, is_parameter).items()
        moves[what] = {each: np.subtract(after[each], value) for each, value in parameters}
    return moves
