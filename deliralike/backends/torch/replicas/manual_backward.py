"""Bring the replicas' gradients together when a backward pass of the user's own loop ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deliralike import nest
from deliralike.backends.torch import unstable


def watch_outputs(outputs: Any, hook: Callable[[torch.Tensor], Any]) -> None:
    """Call a hook with each gradient that enters a network at its outputs."""
    for leaf in nest.leaves(outputs):
        if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
            leaf.register_hook(hook)


def accumulate_after_backward(parallelism: Any, outputs: Any) -> None:
    """Add the replicas' gradients to the module's at the end of each backward pass from outputs.

    Replicas' parameters are leaves, so that each replica keeps a gradient of its share.
    """
    latest = -1  # autograd's number of the pass whose end is awaited

    def begin(_: torch.Tensor) -> None:
        nonlocal latest
        task = unstable.current_backward_pass()
        if task != latest:
            latest = task
            unstable.call_after_backward(parallelism.accumulate_gradients)

    watch_outputs(outputs, begin)
