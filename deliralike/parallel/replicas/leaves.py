"""Replicas whose parameters keep the gradients of backward passes, as on PyTorch and Chainer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from deliralike.network.state import each_once
from deliralike.parallel.replicas.network import Replicas


class ReplicasWithLeaves(Replicas):
    """The parallelism of replicas of which each parameter has a gradient of its own."""

    @abstractmethod
    def replica_leaves(self, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return, for each further replica, the copies of the root's parameters by name.

        A copy that keeps no gradient is left out.
        """

    def parameters(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the root's parameters by neutral name: those named, or all.

        A tied one comes under its first name only.
        """
        slots = each_once(self.network.root.neutral_slots())
        parameters = {
            name: slot.native for name, slot in slots.items() if slot.is_parameter
        }
        if names is None:
            return parameters
        return {name: parameters[name] for name in names if name in parameters}

    def replica_gradients(
        self, names: Sequence[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield each replica's gradients (those named, or all), and clear them there.

        So a second hook that accumulates them adds nothing.
        """
        for leaves in self.replica_leaves(self.parameters(names)):
            gradients = {}
            for name, leaf in leaves.items():
                gradients[name] = leaf.grad
                leaf.grad = None
            yield gradients

    def holds_replica_gradients(self) -> bool:
        """See `Replicas`."""
        of_replicas = map(dict.values, self.replica_leaves(self.parameters()))
        return any(leaf.grad is not None for leaf in chain.from_iterable(of_replicas))

    def accumulate_gradients(self, names: Sequence[str] | None = None) -> None:
        """Add the replicas' gradients (those named, or all) to the root's, in their order."""
        parameters = self.parameters(names)
        for gradients in self.replica_gradients(names):
            for name, gradient in gradients.items():
                if gradient is not None:
                    parameter = parameters[name]
                    parameter.grad = self.network.backend.add(
                        parameter.grad, gradient, str(parameter.device)
                    )

    def clear_replica_gradients(self, parameters: Mapping[str, Any]) -> None:
        """Drop the gradients of the parameters' copies in further replicas."""
        for leaves in self.replica_leaves(parameters):
            for leaf in leaves.values():
                leaf.grad = None
