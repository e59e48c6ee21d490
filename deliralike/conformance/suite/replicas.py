"""Checks of replicated networks: one, two or three replicas with unequal shares equal one network."""

from __future__ import annotations

from typing import Any

import numpy as np

from deliralike import DataParallel, in_replicas, random
from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    LIMITS,
    agree,
    agree_all,
    build_network,
    dtype_of,
    equal,
    output,
    values,
)
from deliralike.conformance.suite.nets import Shared
from deliralike.optim.rules import rule

_BATCH = (
    values(7, 3),
    np.array([0, 3, 1, 1, -100, 2, -100]),
    np.array([0.5, 2.0, 1.0, 1.5]),
)


def _replicated(backend: Backend, count: int, **settings: Any) -> Any:
    """Return a network over that many replicas, on different devices as far as there are some."""
    present = backend.devices()
    places = [present[min(index, len(present)) - 1] for index in range(1, count + 1)]
    return DataParallel(build_network(backend, Shared, p=0.3), places, **settings)


def _share(network: Any, x: Any, labels: Any, weights: Any) -> tuple[Any, Any]:
    nn = network.nn
    known_labels = nn.where(labels != -100, labels, labels * 0)
    counted = nn.sum(
        nn.select(weights, known_labels, 0) * nn.cast(labels != -100, weights)
    )
    return nn.cross_entropy(network(x), labels, weights, reduction="sum"), counted


_INSIDE = in_replicas(_share, "denominator", spec=("split", "split", "copy"))


@check("replicas", "L6", "replicas")
def outputs(backend: Backend) -> None:
    """Gathered in order, in evaluation, whatever the number of replicas."""
    wanted = output(backend, build_network(backend, Shared).eval(), _BATCH[0])
    for count in (1, 2, 3):
        network = _replicated(backend, count).eval()
        agree(
            f"outputs of {count} replicas", output(backend, network, _BATCH[0]), wanted
        )


@check("replicas", "L6", "replicas")
def updates(backend: Backend) -> None:
    """The update equals that of the whole batch.

    It has class weights, ignored labels, synchronised statistics and portable masks.
    """
    limit = LIMITS[dtype_of(backend)]

    def after(network: Any) -> dict[str, Any]:
        optimizer = backend.optimizer(
            rule("sgd", lr=0.1, momentum=0.9, weight_decay=0.1), network
        )
        with random.portable(seed=1):
            loss = backend.number(optimizer.update(_INSIDE, *_BATCH))
        return network.neutral_state() | {"the loss": loss}

    wanted = after(build_network(backend, Shared, p=0.3))
    for count in (2, 3):
        found = after(_replicated(backend, count, buffers="sync"))
        agree_all(f"after an update over {count} replicas", found, wanted, limit)


@check("replicas", "L6", "replicas")
def storage_and_names(backend: Backend) -> None:
    """Replicas own their storage; the state is the root's, unprefixed; copies follow an update."""
    network = _replicated(backend, 2)
    names = list(build_network(backend, Shared).neutral_state())
    equal("the names of the state", list(network.neutral_state()), names)
    backend.optimizer(rule("sgd", lr=0.1), network).update(_INSIDE, *_BATCH)
    root, other = (replica.neutral_state() for replica in network.replicas)
    for name in ("first.weight", "norm.bias"):
        agree(
            f"{name} of the second replica after an update",
            other[name],
            root[name],
            0.0,
        )
