"""The hooks of an optimizer over a replicated network: gradients to the root, parameters back."""

from __future__ import annotations

from typing import Any

from deliralike.network.wrapper import WrapperNetwork
from deliralike.optim.optimizer import AbstractOptimizer


class AccumulateGradients:
    """Pre-update hook that adds the replicas' gradients to the root's, in the order of replicas.

    A parameter that took no part in any replica keeps None and is left alone by the update.
    """

    def __init__(self, network: WrapperNetwork) -> None:
        """Take the network whose gradients are accumulated."""
        self.network = network

    def __call__(
        self, optimizer: AbstractOptimizer, gradients: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the accumulated gradients of the optimizer's parameters."""
        network = self.network
        for of_replica in optimizer.replica_gradients():
            gradients = network.backend.add_gradients(
                gradients, of_replica, network.device_name
            )
        return gradients


class CopyParameters:
    """Post-update hook that copies updated parameters to every replica, after all other hooks."""

    runs_last = True

    def __init__(self, network: WrapperNetwork) -> None:
        """Take the network whose parameters are copied."""
        self.network = network

    def __call__(self, optimizer: AbstractOptimizer) -> None:
        """Copy the parameters that the update has changed."""
        self.network.copy_parameters(optimizer.updated)
