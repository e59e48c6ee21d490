"""Communication hooks of ``DistributedDataParallel``, which average one bucket of gradients.

Only this backend has this file: Chainer and JAX have no such hooks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from deliralike.errors import ArgumentError, SettingError, UnknownName, suggestion

HALF_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def comm_hook(
    hook: str | Callable[..., Any], state: Any, group: Any
) -> tuple[Any, Callable[..., Any]]:
    """Return the arguments of ``register_comm_hook``: a state and a hook.

    Args:
        hook: ``"bfloat16"`` or ``"float16"``: gradients of any type are sent and added in that
            type. Or a function ``(state, bucket)`` that returns a future of the bucket's mean over
            processes.
        state: The first argument of a function; the group of processes when None.
        group: The group of processes.

    Raises:
        UnknownName: There is no hook of that name.
        SettingError: The hook takes no state.
        ArgumentError: `hook` is neither a name nor a function.
    """
    if callable(hook):
        return group if state is None else state, hook
    if not isinstance(hook, str):
        raise ArgumentError(
            f"comm_hook is a name or a function (state, bucket), not a {type(hook).__name__}"
        )
    if hook not in HALF_TYPES:
        raise UnknownName(
            f"there is no comm_hook {hook!r}. {suggestion(hook, HALF_TYPES)}"
        )
    if state is not None:
        raise SettingError(f"comm_hook={hook!r} has no comm_state: leave it out")
    return (HALF_TYPES[hook], group), _in_half_type


# The hook has no annotations: PyTorch accepts its own classes only, and here they would be texts.


def _in_half_type(state, bucket):
    """Average a bucket in another type.

    PyTorch's own hook refuses bfloat16 on the CPU, where gloo has it.
    """
    dtype, group = state
    gradients = bucket.buffer()
    # divided before it is summed, as float16 overflows above 65504
    message = (gradients / dist.get_world_size(group)).to(dtype)
    future = dist.all_reduce(message, group=group, async_op=True).get_future()
    return future.then(lambda sums: gradients.copy_(sums.value()[0]))
