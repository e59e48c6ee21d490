"""Which trainable parameters a loss does not reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from deliralike.network import AbstractNetwork


@dataclass(frozen=True)
class Anomalies:
    """Trainable parameters with something wrong, by neutral name, in creation order.

    Attributes:
        unused: The loss does not depend on them.
        zero: It does, but their whole gradient is zero, as behind a ReLU that is never active.
        not_finite: Their gradient holds a NaN or an infinity.
    """

    unused: tuple[str, ...] = ()
    zero: tuple[str, ...] = ()
    not_finite: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.unused or self.zero or self.not_finite)

    def __str__(self) -> str:
        """One line for each kind that there is."""
        kinds = {
            "took no part in the loss": self.unused,
            "took part, but have a gradient of zero": self.zero,
            "have a gradient that is not finite": self.not_finite,
        }
        lines = [f"{kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
        return "\n".join(lines) or "every trainable parameter has a gradient"


def detect_anomalous_params(network: AbstractNetwork, loss_function: Callable[..., Any], *batch: Any) -> Anomalies:
    """The trainable parameters that ``loss_function(network, *batch)`` does not reach; the network stays as it is.

    Example:
        >>> from deliralike import zoo
        >>> net = zoo.build("mlp", backend="torch", in_features=3, out_features=2, hidden=(8,))
        >>> print(detect_anomalous_params(net, lambda network, x: network.nn.mean(network(x) * 0.0), np.ones((4, 3))))
        took part, but have a gradient of zero: layers.0.weight, layers.0.bias, layers.1.weight, layers.1.bias
    """
    with _kept(network):
        found = network.backend.gradients(loss_function, network, *network.backend.prepare(batch, network)).parameters
    return Anomalies(
        unused=tuple(name for name, gradient in found.items() if gradient is None),
        zero=tuple(name for name, gradient in found.items() if gradient is not None and not gradient.any()),
        not_finite=tuple(name for name, g in found.items() if g is not None and not np.isfinite(g).all()),
    )


@contextmanager
def _kept(network: AbstractNetwork) -> Iterator[None]:
    """Let the network have its buffers again, and its random layers go on where they were."""
    buffers = {name: slot.read() for name, slot in network.neutral_slots().items() if not slot.is_parameter}
    chance = network.backend.random_state(network)
    try:
        yield
    finally:
        network.backend.load_random_state(network, chance)
        if buffers:
            network.load_neutral_state(buffers, strict=False)
