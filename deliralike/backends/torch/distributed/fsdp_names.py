"""Translate arguments of PyTorch's first ``FullyShardedDataParallel`` to those of ``fully_shard``.

MMEngine's are translated too. Only this backend has this file, as the names are PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

from deliralike.errors import SettingError

_NAME_BLOCKS = (
    "say which blocks are gathered by themselves: "
    "blocks=['layers.*'], or smallest=1_000_000"
)
_BUILD_FIRST = (
    "build the network with its start values; all processes take those of the first"
)
_SECOND_ARGUMENT = "the processes are the second argument: deliralike.join('torch')"
_PREFETCHES = "leave it out: fully_shard gathers the coming block by itself"
_WHOLE_STATE = "leave it out: neutral_state() and checkpoints hold whole arrays"
# Arguments without a counterpart, and what to do.
_ADVICE = {
    "auto_wrap_policy": _NAME_BLOCKS,
    "fsdp_auto_wrap_policy": _NAME_BLOCKS,
    "process_group": _SECOND_ARGUMENT,
    "device_mesh": _SECOND_ARGUMENT,
    "device_id": "build the network on its device: zoo.build(..., device='cuda:0')",
    "ignored_modules": "name their parameters: ignored_params=set(module.parameters())",
    "param_init_fn": _BUILD_FIRST,
    "backward_prefetch": _PREFETCHES,
    "forward_prefetch": _PREFETCHES,
    "state_dict_type": _WHOLE_STATE,
    "state_dict_config": _WHOLE_STATE,
    "optim_state_dict_config": "leave it out: checkpoints hold whole arrays",
}
# Arguments with a single possible value.
_ALWAYS = {
    "sync_module_states": True,
    "use_orig_params": True,
    "limit_all_gathers": True,
}
_STRATEGIES = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}  # reshard_after_forward


def in_own_terms(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords, with those of the first FSDP replaced by those of `fully_shard`.

    Raises:
        SettingError: One of them has no counterpart; the message says what to do.
    """
    own: dict[str, Any] = {}
    for name, value in keywords.items():
        if name in _ADVICE:
            raise SettingError(
                f"FullyShardedDataParallel has no setting {name!r}: {_ADVICE[name]}"
            )
        if name in _ALWAYS:
            _check_always(name, value)
        elif name in _CONVERSIONS:
            own |= _CONVERSIONS[name](value)
        else:
            own[name] = value
    return own


def _check_always(name: str, value: Any) -> None:
    if value is not None and value is not _ALWAYS[name]:
        raise SettingError(
            f"{name}={value!r} is not possible here: it is {_ALWAYS[name]} in any case, leave it "
            "out"
        )


def _strategy(value: Any) -> dict[str, Any]:
    name = getattr(value, "name", value)
    if value is None:
        return {}
    if name not in _STRATEGIES:
        raise SettingError(
            f"sharding_strategy={name!r} is none of {', '.join(_STRATEGIES)}; for NO_SHARD there "
            "is deliralike.DistributedDataParallel, and nothing for hybrid ones"
        )
    return {"reshard_after_forward": _STRATEGIES[name]}


def _offload(value: Any) -> dict[str, Any]:
    offloads = getattr(value, "offload_params", value)
    return {"offload_policy": CPUOffloadPolicy()} if offloads else {}


def _precision(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        settings = dict(value)
    else:
        names = ("param_dtype", "reduce_dtype", "buffer_dtype", "cast_forward_inputs")
        settings = {name: getattr(value, name) for name in names}
    if settings.pop("buffer_dtype", None) is not None:
        raise SettingError(
            "mixed_precision: buffer_dtype is not possible here: buffers keep their own type"
        )
    return {"mp_policy": MixedPrecisionPolicy(**settings)}


def _ignored(parameters: Any) -> dict[str, Any]:
    return {} if parameters is None else {"ignored_params": set(parameters)}


_CONVERSIONS = {
    "sharding_strategy": _strategy,
    "cpu_offload": _offload,
    "mixed_precision": _precision,
    "ignored_states": _ignored,
    "ignored_parameters": _ignored,
}
