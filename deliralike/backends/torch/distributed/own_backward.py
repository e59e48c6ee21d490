"""Backward passes of a loop of the user's own, whose gradients are averaged over processes when
backward ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from deliralike import nest
from deliralike.backends.torch import arrays

if TYPE_CHECKING:
    from deliralike.backends.torch.distributed.network import DistributedTorchNetwork


class OwnCall:
    """One call of a network outside of an optimizer's update, and the backward passes that come to
    it.

    Each process computes a mean over its samples, so on the way back a gradient is multiplied by
    the process's weight where it enters the network, and divided by it where it leaves the network
    for what came before.

    Attributes:
        weight: What the gradients of this process count in their mean; set when the shares are
            known.
        refusal: Why there can be no backward pass.
        syncs: Whether a backward pass takes means over processes; not in a `no_sync` block.
    """

    def __init__(self, network: DistributedTorchNetwork) -> None:
        """Of this network."""
        self.network, self.syncs = network, network._process_state.syncs
        self.weight = 1.0
        self.refusal: Exception | None = None

    def entered(self, arguments: Any) -> Any:
        """The arguments, with a look at the gradients that leave the network by them."""
        return nest.map(self._entered, arguments)

    def _entered(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.requires_grad:
            return leaf
        inside = leaf.view_as(leaf)
        inside.register_hook(lambda gradient: gradient / self.weight)
        return inside

    def left(self, outputs: Any) -> None:
        """Watch the gradients that enter the network by its outputs."""
        for leaf in nest.leaves(outputs):
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                leaf.register_hook(self._come)

    def _come(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.refusal is not None:
            raise self.refusal
        if self.syncs:
            self.network.parallelism.own_backward(torch._C._current_graph_task_id())
        return gradient if self.weight == 1.0 else gradient * self.weight


class OwnBackward:
    """One backward pass through a network, as autograd goes on with it.

    Attributes:
        task: Autograd's number of the pass.
    """

    def __init__(self, network: DistributedTorchNetwork, task: int) -> None:
        """At the beginning of the pass."""
        self.network, self.task = network, task
        self._held = {
            name: _version(parameter) for name, parameter in network.own_parameters().items()
        }
        torch.autograd.Variable._execution_engine.queue_callback(self._ended)

    def new_gradients(self) -> dict[str, torch.Tensor | None]:
        """The gradients of trainable parameters; empty where none has changed, as those of inputs
        were asked for.
        """
        parameters = {
            name: p for name, p in self.network.own_parameters().items() if p.requires_grad
        }
        if all(
            _version(parameter) == self._held.get(name) for name, parameter in parameters.items()
        ):
            return {}
        return {name: parameter.grad for name, parameter in parameters.items()}

    def had_none(self, name: str) -> bool:
        """Whether a parameter had no gradient before the pass."""
        return self._held[name] == _version(None)

    def _ended(self) -> None:
        self.network.parallelism.own_backward_ended(self)


def put_gradients(network: DistributedTorchNetwork, gradients: dict[str, Any]) -> None:
    """Give parameters these gradients, in their own types."""
    parameters = network.own_parameters()
    for name, gradient in gradients.items():
        parameters[name].grad = (
            None if gradient is None else arrays.like(gradient, parameters[name])
        )


def _version(parameter: torch.Tensor | None) -> tuple[int, int]:
    gradient = None if parameter is None else parameter.grad
    return (0, 0) if gradient is None else (id(gradient), gradient._version)
