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

    Of a network in several processes every one of them makes the call, with its share; all get the
    same answer, which names the processes. PyTorch's own wrappers, which would wait for parameters
    that one process does not use, take no part in it.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2, hidden=())
        >>> def loss(network, x):
        ...     return network.nn.mean(network(x) * 0.0)
        >>> print(detect_anomalous_params(net, loss, np.ones((4, 3))))
        took part, but have a gradient of zero: layers.0.weight, layers.0.bias
    """
    with kept(network):
        return network.parallelism.find_anomalies(loss_function, *batch)


@contextmanager
def kept(network: NetworkCore) -> Iterator[None]:
    """Let the network have its buffers again, and its random layers go on where they were."""
    buffers = {
        name: slot.read() for name, slot in network.neutral_slots().items() if not slot.is_parameter
    }
    chance = network.backend.random_state(network)
    try:
        yield
    finally:
        network.backend.load_random_state(network, chance)
        if buffers:
            network.load_neutral_state(buffers, strict=False)
