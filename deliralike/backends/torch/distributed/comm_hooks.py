"""Communication hooks of ``DistributedDataParallel``, which average one bucket of gradients.

Only this backend has this file: Chainer and JAX have no such hooks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

from deliralike.errors import (
    ArgumentError,
    SettingError,
    UnknownName,
    refuse_unknown_settings,
    suggestion,
)

HALF_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
NAMES = (*HALF_TYPES, "powersgd")
_SETTINGS = [
    name
    for name in inspect.signature(power_sgd.PowerSGDState).parameters
    if name != "process_group"
]


def comm_hook(
    hook: str | Callable[..., Any], state: Any, group: Any
) -> tuple[Any, Callable[..., Any]]:
    """Return the arguments of ``register_comm_hook``: a state and a hook.

    Args:
        hook: ``"bfloat16"`` or ``"float16"``: gradients of any type are sent and added in that
            type. ``"powersgd"``: matrices of gradients are sent as products of two narrow ones. Or
            a function ``(state, bucket)`` that returns a future of the bucket's mean over
            processes.
        state: For ``"powersgd"``, the settings of PyTorch's ``PowerSGDState`` by name. For a
            function, its first argument; the group of processes when None.
        group: The group of processes.

    Raises:
        UnknownName: There is no hook of that name.
        SettingError: The hook takes no state, or its settings make no sense.
        ArgumentError: `hook` is neither a name nor a function, or PowerSGD has no such setting.
    """
    if callable(hook):
        return group if state is None else state, hook
    if not isinstance(hook, str):
        raise ArgumentError(
            f"comm_hook is a name or a function (state, bucket), not a {type(hook).__name__}"
        )
    if hook not in NAMES:
        raise UnknownName(f"there is no comm_hook {hook!r}. {suggestion(hook, NAMES)}")
    if hook == "powersgd":
        settings = {} if state is None else state
        return _power_sgd_state(settings, group), _power_sgd_in_sequence
    if state is not None:
        raise SettingError(f"comm_hook={hook!r} has no comm_state: leave it out")
    return (HALF_TYPES[hook], group), _in_half_type


def _power_sgd_state(settings: Any, group: Any) -> Any:
    if not isinstance(settings, Mapping):
        raise ArgumentError(
            f"comm_state of 'powersgd' is a dict of settings, not a {type(settings).__name__}: "
            f"{{'matrix_approximation_rank': 2}}"
        )
    refuse_unknown_settings("PowerSGDState", settings, _SETTINGS)
    try:
        return power_sgd.PowerSGDState(group, **settings)
    except ValueError as error:
        raise SettingError(f"comm_state of 'powersgd': {error}") from None


# The hooks have no annotations: PyTorch accepts its own classes only, and here they would be texts.


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


def _power_sgd_in_sequence(state, bucket):
    """Average a bucket by PyTorch's PowerSGD, and finish it before the next bucket.

    PowerSGD sends three messages for a bucket, the later ones from gloo's own threads. With several
    pending buckets the processes might send their messages in different orders, and would then wait
    for each other for ever.
    """
    future = power_sgd.powerSGD_hook(state, bucket)
    future.wait()
    return future
