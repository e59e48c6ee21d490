"""The arguments of PyTorch's first ``FullyShardedDataParallel``, and of MMEngine's, in terms of
``fully_shard``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

from deliralike.errors import SettingError

# Arguments without a counterpart, and what to do.
_ADVICE = {
    "auto_wrap_policy": "say which blocks are gathered by themselves: blocks=['layers.*'], or smallest=1_000_000",
    "fsdp_auto_wrap_policy": "say which blocks are gathered by themselves: blocks=['layers.*'], or smallest=1_000_000",
    "process_group": "the processes are the second argument: deliralike.join('torch')",
    "device_mesh": "the processes are the second argument: deliralike.join('torch')",
    "device_id": "build the network on its device: zoo.build(..., device='cuda:0')",
    "ignored_modules": "name their parameters: ignored_params=set(module.parameters())",
    "param_init_fn": "build the network with its start values; all processes take those of the first",
    "backward_prefetch": "leave it out: fully_shard gathers the coming block by itself",
    "forward_prefetch": "leave it out: fully_shard gathers the coming block by itself",
    "state_dict_type": "leave it out: neutral_state() and checkpoints hold whole arrays",
    "state_dict_config": "leave it out: neutral_state() and checkpoints hold whole arrays",
    "optim_state_dict_config": "leave it out: checkpoints hold whole arrays",
}
# Arguments that say what is so in any case, with their only value.
_ALWAYS = {"sync_module_states": True, "use_orig_params": True, "limit_all_gathers": True}
_STRATEGIES = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}  # reshard_after_forward


def in_own_terms(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords in which those of the first FSDP are replaced by what `fully_shard` has for them.

    Raises:
        SettingError: There is nothing for one of them; the message says what to do.
    """
    own: dict[str, Any] = {}
    for name, value in keywords.items():
        if name in _ADVICE:
            raise SettingError(f"FullyShardedDataParallel has no setting {name!r}: {_ADVICE[name]}")
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
    names = ("param_dtype", "reduce_dtype", "buffer_dtype", "cast_forward_inputs")
    given = (
        dict(value)
        if isinstance(value, Mapping)
        else {name: getattr(value, name) for name in names}
    )
    if given.pop("buffer_dtype", None) is not None:
        raise SettingError(
            "mixed_precision: buffer_dtype is not possible here: buffers keep their own type"
        )
    return {"mp_policy": MixedPrecisionPolicy(**given)}


def _ignored(parameters: Any) -> dict[str, Any]:
    return {} if parameters is None else {"ignored_params": set(parameters)}


_CONVERSIONS = {
    "sharding_strategy": _strategy,
    "cpu_offload": _offload,
    "mixed_precision": _precision,
    "ignored_states": _ignored,
    "ignored_parameters": _ignored,
}
