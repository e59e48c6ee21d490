"""Average gradients over processes when a backward pass of the user's own loop ends."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from deliralike import nest
from deliralike.backends.torch import arrays, unstable
from deliralike.backends.torch.replicas.manual_backward import watch_outputs
from deliralike.parallel.replicas.network import ReplicatedNetwork


class ManualCall:
    """One call of a network outside of an optimizer's update, and its backward passes.

    Each process computes a mean over its samples. So in backward a gradient is multiplied by the
    process's weight where it enters the network, at the outputs, and divided by it where it leaves
    the network, at the arguments.

    Attributes:
        weight: The weight of this process's gradients in the mean; set when the shares are known.
        refusal: The error of a backward pass, where there can be none.
        syncs: Whether a backward pass takes means over processes; not in a `no_sync` block.
    """

    def __init__(self, network: ReplicatedNetwork) -> None:
        """Begin a call of the network."""
        self.network = network
        self.syncs = network._process_state.syncs
        self.weight = 1.0
        self.refusal: Exception | None = None

    def watch_arguments(self, arguments: Any) -> Any:
        """Return the arguments as views whose gradients are divided by the weight."""
        return nest.map_where(arrays.takes_gradient, self._watch_argument, arguments)

    def _watch_argument(self, tensor: torch.Tensor) -> torch.Tensor:
        view = tensor.view_as(tensor)
        view.register_hook(lambda gradient: gradient / self.weight)
        return view

    def watch_outputs(self, outputs: Any) -> None:
        """Watch the gradients that enter the network at its outputs."""
        watch_outputs(outputs, self._on_output_gradient)

    def _on_output_gradient(self, gradient: torch.Tensor) -> torch.Tensor:
        if self.refusal is not None:
            raise self.refusal
        if self.syncs:
            self.network.parallelism.begin_manual_backward(
                unstable.current_backward_pass()
            )
        return gradient if self.weight == 1.0 else gradient * self.weight


class ManualBackward:
    """One backward pass of autograd through a network.

    Attributes:
        task: Autograd's number of the pass.
    """

    def __init__(self, network: ReplicatedNetwork, task: int) -> None:
        """Record the present gradients, at the beginning of the pass."""
        self.network = network
        self.task = task
        parameters = network.root_parameters().items()
        self._versions = {
            name: _version(parameter.grad) for name, parameter in parameters
        }
        end = network.parallelism.end_manual_backward
        unstable.call_after_backward(partial(end, self))

    def new_gradients(self) -> dict[str, torch.Tensor | None]:
        """Return the gradients of trainable parameters, or nothing where none has changed.

        None has changed where only the gradients of inputs were asked for.
        """
        gradients = {}
        for name, parameter in self.network.root_parameters().items():
            if parameter.requires_grad:
                gradients[name] = parameter.grad
        for name, gradient in gradients.items():
            if _version(gradient) != self._versions.get(name):
                return gradients
        return {}

    def had_none(self, name: str) -> bool:
        """Return whether a parameter had no gradient before the pass."""
        return self._versions[name] == _version(None)


def put_gradients(network: ReplicatedNetwork, gradients: dict[str, Any]) -> None:
    """Give parameters these gradients, in their own types."""
    parameters = network.root_parameters()
    for name, gradient in gradients.items():
        parameter = parameters[name]
        parameter.grad = None if gradient is None else arrays.like(gradient, parameter)


def _version(gradient: torch.Tensor | None) -> tuple[int, int]:
    return (0, 0) if gradient is None else (id(gradient), unstable.version(gradient))
