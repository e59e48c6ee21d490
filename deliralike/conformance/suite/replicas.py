"""Checks of replicated networks: one, two or three replicas with unequal shares equal one network."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import DataParallel, in_replicas, random
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import agree, dtype_of, made, native, true, values
from deliralike.conformance.suite.nets import Shared
from deliralike.optim.rules import rule

_X, _LABELS = values(7, 3), np.array([0, 3, 1, 1, -100, 2, -100])
_WEIGHTS = np.array([0.5, 2.0, 1.0, 1.5])
_COUNTS = (1, 2, 3)


def _replicated(backend: Backend, count: int, p: float = 0.3, **settings: Any) -> Any:
    """Return a network over that many replicas, on different devices as far as there are some."""
    present = backend.devices()
    places = [present[index] if index < len(present) else present[0] for index in range(count)]
    return DataParallel(made(backend, Shared, p=p), places, **settings)


def _loss(network: Any, x: Any, labels: Any, weights: Any) -> Any:
    return network.nn.cross_entropy(network(x), labels, weights)


def _share(network: Any, x: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    nn = network.nn
    kept = nn.cast(labels != -100, weights)
    counted = nn.sum(nn.select(weights, nn.where(labels != -100, labels, labels * 0), 0) * kept)
    return nn.cross_entropy(network(x), labels, weights, reduction="sum"), counted


_INSIDE = in_replicas(_share, "denominator", spec=("split", "split", "copy"))


@check("replicas", "L6", "replicas")
def outputs(backend: Backend) -> None:
    """Gathered in order, in evaluation, whatever the number of replicas."""
    wanted = backend.numpy(made(backend, Shared).eval()(native(backend, _X)))
    for count in _COUNTS:
        network = _replicated(backend, count).eval()
        agree(f"outputs of {count} replicas", backend.numpy(network(native(backend, _X))), wanted)


@check("replicas", "L6", "replicas")
def updates(backend: Backend) -> None:
    """The update equals that of the whole batch.

    It has class weights, ignored labels, synchronised statistics and portable masks.
    """

    def after(count: int, loss: Any) -> tuple[float, dict[str, np.ndarray]]:
        network = (
            _replicated(backend, count, buffers="sync")
            if count > 1
            else made(backend, Shared, p=0.3)
        )
        optimizer = backend.optimizer(rule("sgd", lr=0.1, momentum=0.9, weight_decay=0.1), network)
        with random.portable(seed=1):
            value = backend.number(optimizer.update(loss, _X, _LABELS, _WEIGHTS))
        return value, network.neutral_state()

    loss, wanted = after(1, _INSIDE)
    limit = 1e-10 if dtype_of(backend) == "float64" else 1e-4
    for count in _COUNTS[1:]:
        value, state = after(count, _INSIDE)
        agree(f"the loss over {count} replicas", np.array(value), np.array(loss), limit)
        for name, array in wanted.items():
            agree(f"{name} after an update over {count} replicas", state[name], array, limit)


@check("replicas", "L6", "replicas")
def storage_and_names(backend: Backend) -> None:
    """Replicas own their storage; the state is the root's, unprefixed; copies follow an update."""
    network = _replicated(backend, 2)
    true(
        "the state has the names of one network",
        list(network.neutral_state()) == list(made(backend, Shared).neutral_state()),
    )
    backend.optimizer(rule("sgd", lr=0.1), network).update(_INSIDE, _X, _LABELS, _WEIGHTS)
    root, other = (replica.neutral_state() for replica in network.replicas)
    for name in ("first.weight", "norm.bias"):
        agree(f"{name} of the second replica after an update", other[name], root[name], 0.0)
