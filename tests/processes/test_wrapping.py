"""PyTorch's own wrappers in a distributed network, anomalies over processes, batches, and what
counts as a wrapper."""

import numpy as np
import pytest
import torch

from deliralike import (
    DataParallel,
    Network,
    backends,
    is_model_wrapper,
    register_model_wrapper,
    zoo,
)
from deliralike.errors import ArgumentError
from deliralike.network.anomalies import Anomalies
from deliralike.parallel import SingleProcess
from tests.arrays import same_named
from tests.parallel.networks import devices
from tests.processes import steps, training, wrapping
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together
from tests.processes.running import run

pytestmark = together

HERE = "tests.processes.wrapping"


# Several parts
# -----------------------------------------------------------------------------


NAMED = {
    "parts": ["generator", "discriminator"],
    "bucket_cap_mb": 1e-3,
    "gradient_as_bucket_view": True,
}
ONE_FOR_ALL = {"find_unused_parameters": True}


@pytest.mark.parametrize(
    ("count", "settings", "sums"),
    [
        (
            2,
            [
                (NAMED, 1),
                ({"parts": ["generator"]}, 1),
                (ONE_FOR_ALL, 1),
                ({"parts": True}, 2),
            ],
            [0, 4, 0, 4],
        ),
        (4, [({"parts": True}, 1), (ONE_FOR_ALL, 1)], [4, 4]),
    ],
)
@pytest.mark.filterwarnings("ignore:accumulate=2 with batch normalisation")
def test_a_network_of_several_parts_makes_the_updates_of_one_process(
    count, settings, sums
):
    """DCGAN with synchronised batch norm: a wrapper for each part; for one part; one for all; with
    micro-batches.

    Of four processes one has no sample in the last batch of each epoch, whose gradients are added
    after backward.
    """
    wanted = {
        accumulate: wrapping.adversaries_alone(accumulate) for _, accumulate in settings
    }
    runs = call("torch", count, f"{HERE}:several_adversaries", settings)
    for of_rank in runs:
        assert [each["sums"] for each in of_rank] == sums
        for (_, accumulate), came in zip(settings, of_rank, strict=True):
            assert training.largest_difference(wanted[accumulate], came) < 1e-12


def test_each_update_sends_the_gradients_of_its_own_part():
    for sizes, (of_discriminator, of_generator) in call("torch", 2, f"{HERE}:sent"):
        assert sizes == [of_discriminator, of_generator] * 3


def test_parts_that_are_frozen_and_thawed_are_followed():
    wanted = wrapping.thawed(SingleProcess())
    for came in call("torch", 2, f"{HERE}:thawed"):
        same_named(came, wanted)


def test_keywords_that_make_no_sense_are_errors():
    wanted = [
        (
            {"parts": ["generater"]},
            "in_backward: there is no part 'generater'. Did you mean 'generator'",
        ),
        (
            {"bucket_cap": 3},
            "in_backward has no setting 'bucket_cap'. Did you mean 'bucket_cap_mb'",
        ),
        (
            {"comm_hook": "bfloat"},
            "there is no comm_hook 'bfloat'. Did you mean 'bfloat16'",
        ),
        (
            {"delay_all_reduce_named_params": ["fc.weight"]},
            "in_backward has no setting 'delay_all_reduce_named_params'",
        ),
    ]
    cases = [[f"{HERE}:adversaries", keywords] for keywords, _ in wanted]
    for of_rank in call("torch", 2, "tests.processes.refusals:said", *cases):
        for (_, words), said in zip(wanted, of_rank, strict=True):
            assert words in said


def test_a_part_that_takes_no_part_in_a_loss_is_an_error():
    """Which would leave the gradients of others in their bucket for ever."""
    words = "the network: a parameter took no part in the loss, "
    words += "so that gradients that share a bucket"
    ended = run("torch", 2, f"{HERE}:adversaries", {}, check=False)
    assert ended.code != 0 and words in ended.said


# Keywords and hooks
# -----------------------------------------------------------------------------

KEYWORDS = [
    {"static_graph": True},
    {"bucket_cap_mb": 1e-4, "find_unused_parameters": True},
    {"bucket_cap_mb_list": [1, 2], "gradient_as_bucket_view": True},
    {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4},
    {"forward_sync_buffers": True},
    {"broadcast_buffers": True},
    {"broadcast_buffers": False, "init_sync": False},
    {"batched_grad_copy": True},
    {"skip_all_reduce_unused_params": True, "find_unused_parameters": True},
    {"device_ids": None, "output_device": None, "dim": 0, "check_reduction": False},
    {"device_mesh": None},
]


def test_every_keyword_of_pytorchs_wrapper_goes_through():
    wanted = steps.alone("torch", 7)
    for of_rank in call("torch", 3, f"{HERE}:keyworded", [2, 3, 2], KEYWORDS):
        for keywords, came in zip(KEYWORDS, of_rank, strict=True):
            assert largest_difference(wanted, came) < 1e-12, keywords


def rounded(values, dtype):
    """To a shorter type, by NumPy; bfloat16 is float32 without its last 16 bits, to the nearest,
    ties to even."""
    if dtype == "float16":
        return np.asarray(values, np.float16)
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (
        ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000)
        .astype(np.uint32)
        .view(np.float32)
    )


SMALL = {"bucket_cap_mb": 2e-3}


def test_gradients_are_sent_as_the_hooks_say():
    """In shorter types: NumPy rounds and adds."""
    hooks = [{"comm_hook": name, **SMALL} for name in ("bfloat16", "float16")]
    ranks = call("torch", 2, f"{HERE}:hooked", hooks)
    _, bfloat16, float16 = ranks[0]
    assert [each[0] for each in ranks[0]] == [each[0] for each in ranks[1]]
    for dtype, (found, _) in (("bfloat16", bfloat16), ("float16", float16)):
        for name, value in found[0].items():
            # shares of four and three samples; the wrapper's mean halves what is first doubled for
            # it
            own = [
                rounded(np.multiply(rank[1][1][name], share / 7), dtype)
                for rank, share in zip(ranks, (4, 3))
            ]
            np.testing.assert_array_equal(
                value, rounded(own[0] + own[1], dtype), err_msg=name
            )


# Anomalies
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "backend", "in_backward"),
    [
        ("torch", "torch", {}),
        ("mpi", "chainer", None),
        ("torch", "jax", None),
    ],
)
def test_anomalies_are_told_with_the_processes_that_have_them(
    engine, backend, in_backward
):
    """Three processes, of which one has no sample; the network stays as it is."""
    ranks = call(engine, 3, f"{HERE}:anomalies", backend, in_backward)
    assert ranks[0] == ranks[1] == ranks[2]
    found = ranks[0]
    assert found["unused"] == ["never.weight", "never.bias"]
    assert found["zero"] == ["dead.weight"]
    assert found["not_finite"] == ["broken.weight"]
    second, first = (set(names) - {*found["unused"]} for names in found["unused_in"])
    assert second == {"second.weight", "second.bias"}
    assert first == {"first.weight", "first.bias"}
    assert (
        "process 1: have a gradient that is not finite: broken.weight" in found["text"]
    )
    assert (
        found["any"]
        and found["same"]
        and found["processes"] == [0, 1]
        and not found["left"]
    )


def test_anomalies_of_shares_are_those_of_the_batch():
    shares = {
        0: Anomalies(("a", "b"), ("c", "d")),
        2: Anomalies(("b", "c"), ("d",), ("e",)),
    }
    found = Anomalies.of_shares(shares)
    assert (found.unused, found.zero, found.not_finite) == (("b",), ("c", "d"), ("e",))
    assert "process 2: took no part in the loss: b, c\n" in str(found)
    assert not Anomalies.of_shares({0: Anomalies(), 1: Anomalies()})


# Steps and wrappers
# -----------------------------------------------------------------------------


def test_pytorchs_own_wrappers_are_wrappers():
    assert (
        call("torch", 2, f"{HERE}:wrappers_of_torch")
        == [[*[True] * 4, False, False]] * 2
    )


class Pair(Network):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second


def test_replicated_networks_and_those_that_hold_nothing_else_are_wrappers(backend):
    def layer():
        return zoo.build("mlp", backend=backend.name, in_features=3, out_features=2)

    def wrapped():
        return DataParallel(layer(), devices(backend, 2))

    assert [is_model_wrapper(each) for each in (layer(), wrapped())] == [False, True]
    pairs = [(layer(), layer()), (wrapped(), layer()), (wrapped(), wrapped())]
    assert [is_model_wrapper(Pair.on(backend.name)(*pair)) for pair in pairs] == [
        False,
        False,
        True,
    ]
    half = Pair.on(backend.name)(wrapped(), layer())
    half.set_trainable("second.*", False)
    assert is_model_wrapper(half)


def test_a_class_of_the_users_is_a_wrapper_once_it_is_registered():
    class Logged(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = torch.nn.Linear(3, 2)

    class Remote:
        """No network of any backend."""

    inside = backends.wrap(torch.nn.Sequential(Logged(), torch.nn.ReLU()))
    each = Logged(), inside, Remote()
    assert [is_model_wrapper(one) for one in each] == [False] * 3
    assert (
        register_model_wrapper(Logged) is Logged
        and register_model_wrapper(Remote) is Remote
    )
    assert [is_model_wrapper(one) for one in each] == [True] * 3
    assert not is_model_wrapper(3)
    with pytest.raises(
        ArgumentError, match="register_model_wrapper wants a class, not 'Logged'"
    ):
        register_model_wrapper("Logged")
