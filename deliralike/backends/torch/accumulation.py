"""Gradients that a backward pass adds to those of earlier batches, in their storage.

JAX has no such file: its gradients are results of a program.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch

from deliralike.nest.arrays import Arrays
from deliralike.optim.accumulation import Gradients

Leaves = Mapping[str, torch.Tensor]


class GradientSums:
    """Sums of gradients that a backward pass adds to.

    They are the gradients of the parameters while backward runs, and only then: nothing else that
    computes or clears gradients reaches them, be it another optimizer or a user's loss function.

    Attributes:
        has_begun: Whether a backward pass has begun, so that the sums are not what they were.
    """

    def __init__(
        self,
        backend: Arrays,
        sums: list[Gradients],
        parameters: Leaves,
        parallelism: Any,
    ) -> None:
        """Refer to sums that are to be added to; nothing happens yet.

        Args:
            backend: The backend of the gradients.
            sums: One dict for each replica, the root's first; those that are missing are appended.
            parameters: The root's parameters by name.
            parallelism: The parallelism of the network.
        """
        self.has_begun = False
        self._backend = backend
        self._sums = sums
        self._parameters = parameters
        self._parallelism = parallelism
        self._given: set[int] = set()  # the identities of sums that were made gradients
        self._lock = (
            threading.Lock()
        )  # each replica runs backward in a thread of its own

    def begin(self) -> None:
        """Make the sums the parameters' gradients; called before each backward pass."""
        with self._lock:
            if self.has_begun:
                return
            self.has_begun = True
            for sums, leaves in zip(self._sums, self._leaves(), strict=False):
                self._give(sums, leaves)

    def take(self) -> None:
        """Take the parameters' gradients as the new sums, after all backward passes."""
        leaves_of_replicas = self._leaves()
        while len(self._sums) < len(leaves_of_replicas):
            self._sums.append({})
        for sums, leaves in zip(self._sums, leaves_of_replicas, strict=True):
            for name, leaf in leaves.items():
                gradient, leaf.grad = leaf.grad, None
                if leaf.requires_grad:
                    sums[name] = self._joined(sums.get(name), gradient)

    def _leaves(self) -> list[Leaves]:
        return [self._parameters, *self._parallelism.replica_leaves(self._parameters)]

    def _give(self, sums: Gradients, leaves: Leaves) -> None:
        for name, leaf in leaves.items():
            total = sums.get(name)
            if total is None or not leaf.requires_grad:
                continue
            leaf.grad = self._joined(
                total, leaf.grad
            )  # a loss function may have run backward
            self._given.add(id(leaf.grad))
            sums[name] = None

    def _joined(self, total: Any, gradient: Any) -> Any:
        if total is not None and gradient is not None:
            return self._backend.add(total, gradient, str(total.device))
        if (
            gradient is not None
            and gradient.is_cuda
            and id(gradient) not in self._given
        ):
            return (
                gradient.clone()
            )  # a CUDA graph writes over its gradients at the next step
        return gradient if total is None else total
