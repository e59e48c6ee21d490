"""Detection of trainable parameters that a loss does not reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deliralike.network.anomalies import Anomalies
from deliralike.network.core import NetworkCore


def detect_anomalous_params(
    network: NetworkCore, loss_function: Callable[..., Any], *batch: Any
) -> Anomalies:
    """Return the trainable parameters that ``loss_function(network, *batch)`` does not reach.

    The network stays as it is.

    Where a network trains in several processes, every process makes the call with its own share of
    the batch, and all get the same result, which names the processes. PyTorch's own wrappers are
    left out: they would wait for parameters that one process does not use.

    Example:
        >>> import numpy as np
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2, hidden=())
        >>> def loss(network, x):
        ...     return network.nn.mean(network(x) * 0.0)
        >>> print(detect_anomalous_params(net, loss, np.ones((4, 3))))
        took part, but have a gradient of zero: layers.0.weight, layers.0.bias
    """
    with unchanged_state(network):
        return network.parallelism.find_anomalies(loss_function, *batch)


@contextmanager
def unchanged_state(network: NetworkCore) -> Iterator[None]:
    """Restore the buffers and the random state of a network at the end of a ``with`` block."""
    slots = network.neutral_slots()
    buffers = {
        name: slot.read() for name, slot in slots.items() if not slot.is_parameter
    }
    random_state = network.backend.random_state(network)
    try:
        yield
    finally:
        network.backend.load_random_state(network, random_state)
        if buffers:
            network.load_neutral_state(buffers, strict=False)
