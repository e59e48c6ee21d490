"""Every name of PyTorch that is not public: no other file of the package uses one.

Each function says what is lost with a version of PyTorch that lacks the name. The tables of a
module (``_parameters``, ``_buffers``, ``_modules``) are used where modules are walked: they have
been the same since 2017, and whole libraries rest on them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

# Autograd
# --------------------------------------------------------------------------------------------------


def current_backward_pass() -> int:
    """Return autograd's number of the backward pass under way.

    Without it a replicated or distributed network cannot be trained by ``loss.backward()``.
    """
    return torch._C._current_graph_task_id()


def call_after_backward(function: Callable[[], Any]) -> None:
    """Call a function once the backward pass under way has ended.

    Without it a replicated or distributed network cannot be trained by ``loss.backward()``.
    """
    torch.autograd.Variable._execution_engine.queue_callback(function)


def version(tensor: torch.Tensor) -> int:
    """Return how often a tensor has been written in place.

    Without it gradients and copies that were written in place are not noticed.
    """
    return tensor._version


def has_gradient_hooks(tensor: torch.Tensor) -> bool:
    """Return whether there are hooks that would see, or change, a gradient of a tensor.

    Without it they see the gradients of one replica.
    """
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def saved_tensors_hooks() -> Any:
    """Return this thread's hooks on tensors that are saved for backward; None for none.

    Without it replicas in threads do not save activations elsewhere, as ``save_on_cpu`` asks.
    """
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


# Transformations
# --------------------------------------------------------------------------------------------------


def is_within_transformation() -> bool:
    """Return whether the caller runs within ``torch.func``'s transformations, such as ``vmap``.

    Without it calls of native functions cannot be followed.
    """
    return torch._C._functorch.maybe_current_level() is not None


def is_fake(x: Any) -> bool:
    """Return whether a tensor has a shape and no values, as while a program is exported.

    Without it exporting fails where values are looked at.
    """
    return isinstance(x, torch._subclasses.FakeTensor)


def is_compiled_module(module: torch.nn.Module) -> bool:
    """Return whether a module comes from ``torch.compile``.

    Without it such a module cannot be replicated.
    """
    return isinstance(module, torch._dynamo.eval_frame.OptimizedModule)


def compile_again(module: Any) -> None:
    """Let the copy of a module from ``torch.compile`` call its own inner module."""
    module._initialize()


# Layers
# --------------------------------------------------------------------------------------------------


def recurrent_functions() -> tuple[Any, tuple[str, ...]]:
    """Return where recurrent layers look up the functions that they call, and their names.

    Without it the dropout between the layers of an LSTM cannot be compared.
    """
    return torch._VF, ("lstm", "gru", "rnn_tanh", "rnn_relu")


# Many tensors at once
# --------------------------------------------------------------------------------------------------


def multiplied(values: Sequence[torch.Tensor], factor: float) -> list[torch.Tensor]:
    """Return each tensor times a number; without it, one call for each tensor."""
    return list(torch._foreach_mul(list(values), factor))


def add(
    totals: Sequence[torch.Tensor], values: Sequence[torch.Tensor], factor: float
) -> None:
    """Add each tensor, times a number, to its total, in place."""
    torch._foreach_add_(list(totals), list(values), alpha=factor)


def move_towards(
    values: Sequence[torch.Tensor], ends: Sequence[torch.Tensor], weight: float
) -> None:
    """Move each tensor towards its end by a fraction of the way, in place."""
    torch._foreach_lerp_(list(values), list(ends), weight)


def copy(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """Write the values of each source into its target."""
    torch._foreach_copy_(list(targets), list(sources))


# Modules
# --------------------------------------------------------------------------------------------------


def is_convolution(layer: torch.nn.Module) -> bool:
    """Return whether a layer is a convolution of PyTorch's, transposed or not.

    Without it their start values are not known.
    """
    return isinstance(layer, torch.nn.modules.conv._ConvNd)


def unsaved_buffers(module: torch.nn.Module) -> set[str]:
    """Return the names of a module's buffers that are not in its state.

    Without it they would be saved.
    """
    return module._non_persistent_buffers_set


# Processes
# --------------------------------------------------------------------------------------------------


def default_store() -> Any:
    """Return the store of the processes' default group.

    Without it a process that waits cannot be told which other one has failed.
    """
    return dist.distributed_c10d._get_default_store()


def forget_groups(mesh: Any) -> None:
    """Take the groups out of a mesh, which PyTorch's caches keep.

    Without it the groups outlive the processes' end, and PyTorch warns.
    """
    mesh._pg_registry.clear()


def release_default_group() -> None:
    """Take the default group out of default arguments of PyTorch's; None stands for it there.

    Functions take the group that exists when their module is imported. Without it the threads of
    that group outlive ``destroy_process_group``, and one that still drops a tensor aborts the
    process while the interpreter ends.
    """
    functional = sys.modules.get("torch.distributed.nn.functional")
    if functional is None:
        return
    for function in vars(functional).values():
        defaults = getattr(function, "__defaults__", None) or ()
        if dist.group.WORLD in defaults:
            function.__defaults__ = tuple(
                None if value is dist.group.WORLD else value for value in defaults
            )


def sharding_groups(unit: Any) -> Iterator[Any]:
    """Yield the groups of parameters of a module from ``fully_shard``.

    Without it the groups of processes outlive their end, and PyTorch warns.
    """
    yield from unit._get_fsdp_state()._fsdp_param_groups


def sharding_collectives() -> tuple[Any, Any]:
    """Return the classes by which ``fully_shard`` gathers parameters and reduces gradients.

    Without them a process cannot say which block another one does not run, and both wait forever.
    """
    from torch.distributed.fsdp._fully_shard import (  # noqa: PLC0415 - takes a second
        _fsdp_collectives,
    )

    return _fsdp_collectives.DefaultAllGather, _fsdp_collectives.DefaultReduceScatter
