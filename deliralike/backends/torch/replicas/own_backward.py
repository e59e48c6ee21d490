"""Bring the replicas' gradients together when a backward pass of the user's own loop ends."""

from __future__ import annotations

from typing import Any

import torch

from deliralike import nest
from deliralike.backends.torch import unstable


class OwnBackward:
    """The backward passes through one call of a replicated network, outside of an update.

    Replicas' parameters are leaves, so that each replica keeps a gradient of its share. At the end
    of a pass these are added to the module's.
    """

    def __init__(self, network: Any) -> None:
        """Begin a call of the network."""
        self.network = network
        self.task = -1  # autograd's number of the pass whose end is awaited

    def watch(self, outputs: Any) -> None:
        """Watch the gradients that enter the network at its outputs."""
        for leaf in nest.leaves(outputs):
            if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                leaf.register_hook(self._on_output_gradient)

    def _on_output_gradient(self, gradient: torch.Tensor) -> None:
        task = unstable.current_backward_pass()
        if task != self.task:
            self.task = task
            parallelism: Any = self.network.parallelism
            unstable.call_after_backward(parallelism.accumulate_gradients)
