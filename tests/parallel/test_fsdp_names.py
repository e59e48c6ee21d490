"""The arguments that users of PyTorch's first FSDP and of MMEngine's give: taken in fully_shard's
terms, or refused."""

import pytest
import torch
from torch.distributed.fsdp import (
    CPUOffload,
    CPUOffloadPolicy,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
)

from deliralike.backends.torch.distributed.fsdp_names import in_own_terms

HALF = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@pytest.mark.parametrize(
    ("given", "own"),
    [
        (
            {"sharding_strategy": ShardingStrategy.FULL_SHARD},
            {"reshard_after_forward": True},
        ),
        ({"sharding_strategy": "SHARD_GRAD_OP"}, {"reshard_after_forward": False}),
        ({"sharding_strategy": None, "mixed_precision": None, "cpu_offload": None}, {}),
        ({"cpu_offload": True}, {"offload_policy": CPUOffloadPolicy()}),
        (
            {"cpu_offload": CPUOffload(offload_params=True)},
            {"offload_policy": CPUOffloadPolicy()},
        ),
        ({"cpu_offload": CPUOffload(offload_params=False)}, {}),
        (
            {
                "use_orig_params": True,
                "sync_module_states": True,
                "limit_all_gathers": True,
            },
            {},
        ),
        ({"reshard_after_forward": False}, {"reshard_after_forward": False}),
    ],
)
def test_what_has_a_counterpart(given, own):
    assert in_own_terms(given) == own


def test_mixed_precision():
    wanted = MixedPrecisionPolicy(
        torch.bfloat16, torch.float32, cast_forward_inputs=HALF.cast_forward_inputs
    )
    assert in_own_terms({"mixed_precision": HALF}) == {"mp_policy": wanted}
    by_name = in_own_terms({"mixed_precision": {"param_dtype": torch.bfloat16}})[
        "mp_policy"
    ]
    assert by_name.param_dtype == torch.bfloat16


def test_parameters_that_are_ignored():
    layer = torch.nn.Linear(3, 2)
    assert in_own_terms({"ignored_parameters": [layer.bias]}) == {
        "ignored_params": {layer.bias}
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"auto_wrap_policy": print},
            r"no setting 'auto_wrap_policy': say which blocks .* blocks=\['layers",
        ),
        (
            {"fsdp_auto_wrap_policy": dict(type="x")},
            "no setting 'fsdp_auto_wrap_policy': say which blocks",
        ),
        ({"backward_prefetch": "BACKWARD_PRE"}, "gathers the coming block by itself"),
        ({"param_init_fn": print}, "build the network with its start values"),
        (
            {"process_group": None},
            r"the processes are the second argument: deliralike.join\('torch'\)",
        ),
        ({"ignored_modules": []}, r"ignored_params=set\(module.parameters\(\)\)"),
        (
            {"use_orig_params": False},
            "use_orig_params=False is not possible here: it is True in any case",
        ),
        (
            {"sharding_strategy": "NO_SHARD"},
            "'NO_SHARD' is none of FULL_SHARD, SHARD_GRAD_OP; for NO_SHARD there is",
        ),
        (
            {"mixed_precision": MixedPrecision(buffer_dtype=torch.float16)},
            "buffers keep their own type",
        ),
    ],
)
def test_what_has_none_says_what_to_do(given, message):
    with pytest.raises(ValueError, match=message):
        in_own_terms(given)
