"""The two hooks of an optimizer over a replicated network.

Gradients go to the root before the update, and parameters go back after it.
"""

from __future__ import annotations

from typing import Any

from deliralike.network.enclosing import EnclosingNetwork
from deliralike.optim.optimizer import AbstractOptimizer


class AccumulateGradients:
    """Pre-update hook: adds the replicas' gradients to the root's, in the order of replicas.

    A parameter that took no part in any replica keeps None and is left alone by the update.
    """

    def __init__(self, network: EnclosingNetwork) -> None:
        """Accumulate for this network."""
        self.network = network

    def __call__(self, optimizer: AbstractOptimizer, gradients: dict[str, Any]) -> dict[str, Any]:
        """The accumulated gradients of the optimizer's parameters."""
        add = self.network.backend.add
        total = dict(gradients)
        for of_replica in optimizer.replica_gradients():
            for name, gradient in ((name, of_replica.get(name)) for name in total):
                if gradient is not None:
                    total[name] = add(total[name], gradient, self.network.device_name)
        return total


class CopyParameters:
    """CopyParameters is a post-update hook that copies updated parameters to every replica.

    They come from the root, after other hooks.
    """

    runs_last = True

    def __init__(self, network: EnclosingNetwork) -> None:
        """Copy for this network."""
        self.network = network

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Copy what the last update changed."""
        self.network.copy_parameters(optimizer.updated)
