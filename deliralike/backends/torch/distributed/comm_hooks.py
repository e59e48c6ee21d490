"""Communication hooks of PyTorch's ``DistributedDataParallel``: how one bucket of gradients becomes
its mean.
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

SHORTER = {"bfloat16": torch.bfloat16, "float16": torch.float16}
NAMES = (*SHORTER, "powersgd")
_SETTINGS = [
    name
    for name in inspect.signature(power_sgd.PowerSGDState).parameters
    if name != "process_group"
]


def comm_hook(
    hook: str | Callable[..., Any], state: Any, group: Any
) -> tuple[Any, Callable[..., Any]]:
    """What ``register_comm_hook`` wants for a hook of that name, or for one of the user's.

    Args:
        hook: ``"bfloat16"`` or ``"float16"``: gradients of any type are sent in that one, and added
            in it. ``"powersgd"``: matrices of gradients are sent as products of two narrow ones. Or
            a function ``(state, bucket)`` that gives a future of the bucket's mean over processes.
        state: Of ``"powersgd"``, the settings of PyTorch's ``PowerSGDState`` by name. Of a
            function, anything; the group of processes when None.
        group: The processes.

    Raises:
        UnknownName: There is no hook of that name.
        SettingError: The hook has no state, or its settings make no sense.
        ArgumentError: It is neither a name nor a function, or PowerSGD has no such setting.
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
        return _power_sgd_state({} if state is None else state, group), _one_after_the_other
    if state is not None:
        raise SettingError(f"comm_hook={hook!r} has no comm_state: leave it out")
    return (SHORTER[hook], group), _in_shorter_type


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


# Without annotations: PyTorch wants its own types there, and compares them with what stands in the
# text.


def _in_shorter_type(state, bucket):
    """Send a bucket in another type; PyTorch's own hook refuses bfloat16 on the CPU, where gloo has
    it.
    """
    (dtype, group), gradients = state, bucket.buffer()
    sent = (gradients / dist.get_world_size(group)).to(
        dtype
    )  # first, as float16 overflows above 65504
    under_way = dist.all_reduce(sent, group=group, async_op=True).get_future()
    return under_way.then(lambda done: gradients.copy_(done.value()[0]))


def _one_after_the_other(state, bucket):
    """PyTorch's PowerSGD, done with one bucket before the next one comes.

    It sends three messages for a bucket, the later ones from gloo's own threads. With several
    buckets under way the messages of one process come in another order than those of another, which
    then wait for each other for ever.
    """
    done = power_sgd.powerSGD_hook(state, bucket)
    done.wait()
    return done
