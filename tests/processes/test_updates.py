"""Several processes with shares of any size make the updates of one process, on each engine."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from tests.parallel import native_norms
from tests.parallel.networks import Convolutional
from tests.processes import steps
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together
from tests.processes.running import ENGINES

pytestmark = together

REFUSALS = "tests.processes.refusals:said"
SHARES = [3, 0, 2, 2]


@pytest.mark.parametrize("backend", ["torch", "chainer"])
@pytest.mark.parametrize("engine", ENGINES)
def test_updates_are_those_of_one_process(engine, backend):
    """Class weights, ignored labels, batch norm, dropout, clipping; shares that differ, one of them
    empty."""
    wanted = steps.alone(backend, 7)
    came = call(engine, 4, "tests.processes.steps:train", backend, SHARES)
    assert len(came) == 4
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_parameter_that_one_process_uses_counts_as_zero_in_the_others(backend):
    """And one that nobody uses is left alone, by weight decay too."""
    came = call("mpi", 2, "tests.processes.steps:unused", backend)
    assert came[0] == came[1]
    used = ["first.bias", "first.weight", "second.bias", "second.weight"]
    assert came[0]["updated"] == came[0]["moved"] == used
    network = steps.TwoPaths.on(backend, dtype="float64")()
    before = network.neutral_state()
    for name, sign in (
        ("first", -1.0),
        ("second", 1.0),
    ):  # half of the samples each: two of four, whose sum is halved
        wanted = before[f"{name}.weight"] * 0.5 - sign * 0.5 * 2.0
        assert_allclose(came[0][name], wanted, rtol=1e-13)


@pytest.mark.parametrize(
    ("engine", "update", "by_validation"),
    [
        ("torch", "jit(gradients_of_DistributedJaxNetwork)", []),
        # Updated weights are committed to their device, which start values are not: to XLA's cache
        # the evaluation is another. The first process does the only batch of validation.
        ("jax", "jit(with_constraints)", [0]),
    ],
)
def test_epochs_compile_once_for_each_size_of_batch(engine, update, by_validation):
    """The third batch is smaller, and after it comes validation, whose first batch every process
    also evaluates before the first step."""
    outputs = "jit(outputs_of_Random)"
    for rank, by_step in enumerate(
        call(engine, 2, "tests.processes.steps:compilations_of_epochs")
    ):
        again = rank in by_validation
        assert len(by_step) == 9
        compiled = [step for step, programs in enumerate(by_step) if programs]
        assert compiled == ([0, 2, 3] if again else [0, 2])
        assert [programs.count(update) for programs in by_step[:4]] == [1, 0, 1, 0]
        assert [programs.count(outputs) for programs in by_step[:4]] == [
            1,
            0,
            0,
            int(again),
        ]
        assert not any("jit(tanh)" in programs for programs in by_step)


def test_a_frameworks_own_batch_norm_is_synchronised_over_processes_or_refused():
    """By default, in a portable network and in a subclass of the native base; by NumPy, over the
    whole batch."""
    for found in call("mpi", 2, "tests.processes.steps:norms_of_frameworks", [4, 3]):
        for backend in ("torch", "chainer"):
            wanted = native_norms.stepped_by_numpy(backend, steps.norm_rows(7))
            for kind in native_norms.KINDS:
                for name, value in wanted.items():
                    where = f"{backend}, {kind}: {name}"
                    assert_allclose(
                        found[backend][kind][name], value, rtol=1e-10, err_msg=where
                    )
        for kind in (
            native_norms.KINDS
        ):  # flax's layer asks nobody whether one share's statistics will do
            assert found["jax"][kind].startswith(
                "CapabilityError: standardise (flax.nnx.BatchNorm): "
            ), kind


def statistics_of(samples):
    """What batch norm adds to running statistics of 0 and 1, from windows that NumPy multiplies
    with the weights."""
    network = Convolutional.on("torch", seed=3, dtype="float64")()
    x = np.pad(steps.batch(7)[0][samples], [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[
        :, :, ::2, ::2
    ]
    outputs = np.einsum(
        "nchwij,ocij->onhw", windows, network.neutral_state()["conv.weight"]
    ).reshape(3, -1)
    return {
        "bn.running_mean": 0.1 * outputs.mean(1),
        "bn.running_var": 0.9 + 0.1 * outputs.var(1, ddof=1),
    }


@pytest.mark.parametrize(
    ("engine", "backend", "in_backward", "dtype"),
    [
        ("torch", "torch", {}, "float64"),
        ("torch", "torch", None, "float32"),
        ("mpi", "chainer", None, "float32"),
        ("torch", "jax", None, "float32"),
    ],
)
@pytest.mark.parametrize("policy", ["root", "mean"])
def test_buffers_by_policy_are_numpys_and_take_few_messages(
    engine, backend, in_backward, dtype, policy
):
    """Gradients aside: the sizes before forward, the labels that count before backward, the loss
    with what tells that buffers differ, and the buffers."""
    of_shares = [statistics_of(slice(0, 4)), statistics_of(slice(4, 7))]
    weights = [1, 0] if policy == "root" else [4 / 7, 3 / 7]
    came = call(
        engine, 2, "tests.processes.steps:messages", backend, policy, in_backward, dtype
    )
    for each in came:
        for name, value in each["state"].items():
            wanted = sum(
                weight * share[name]
                for weight, share in zip(weights, of_shares, strict=True)
            )
            assert_allclose(
                value, wanted, rtol=0, atol=1e-14 if dtype == "float64" else 1e-6
            )
        described = ["gradients, their types and shapes"] if in_backward is None else []
        first, second, *rest = [topic for topic in each["order"] if topic != "backward"]
        assert (first, second) == (
            "a batch, the samples of each share",
            "the loss's denominator",
        )
        assert rest == [
            "the loss",
            *(["buffers"] if policy == "mean" else []),
            *described,
        ]
        assert each["sent"].get("broadcast", 0) == (policy == "root")
        if backend == "torch":  # the loss is under way while backward goes on
            assert each["order"].index("the loss") < each["order"].index("backward")


def test_all_start_with_the_weights_of_the_root_and_no_random_state_changes():
    came = call("torch", 2, "tests.processes.steps:started")
    assert came[0][0] == came[1][0]
    own = Convolutional.on("torch", seed=0, dtype="float64")().neutral_state()
    assert all(np.array_equal(own[name], came[0][0][name]) for name in own)
    numbers = [
        float(torch.rand((), generator=torch.Generator().manual_seed(rank)))
        for rank in range(2)
    ]
    assert [each[1] for each in came] == numbers


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_mean_counts_by_the_labels_and_class_weights_of_each_share(backend):
    """The loss declares nothing, and a share has other labels that count than the next."""
    wanted = steps.alone_random(backend, 7, "weighted mean")
    came = call(
        "torch",
        2,
        "tests.processes.steps:train_random",
        backend,
        [4, 3],
        "weighted mean",
    )
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


@pytest.mark.parametrize("loss", ["denominator", "mean", "weighted mean"])
def test_updates_on_jax_are_those_of_one_process(loss):
    """Dropout, class weights and ignored labels, or a mean that declares nothing; no batch norm."""
    wanted = steps.alone_random("jax", 7, loss)
    came = call("torch", 4, "tests.processes.steps:train_random", "jax", SHARES, loss)
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


def test_batch_norm_of_all_processes_is_an_error_on_jax():
    for (said,) in call("mpi", 2, REFUSALS, ["tests.processes.steps:synchronised"]):
        assert "backend 'jax' exchanges nothing within a compiled program" in said


# Gradients that PyTorch adds during backward
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("shares", "sums"), [([4, 3], 0), ([3, 0, 2, 2], steps.STEPS)])
def test_gradients_that_are_added_during_backward_are_the_same(shares, sums):
    """Several buckets; where one process has no sample, they are added after backward."""
    wanted = steps.alone("torch", 7)
    keywords = {"bucket_cap_mb": 1e-4, "gradient_as_bucket_view": True}
    came = call(
        "torch", len(shares), "tests.processes.steps:train", "torch", shares, keywords
    )
    assert [each.pop("sums") for each in came] == [sums] * len(shares)
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


def test_steps_whose_shares_are_known_send_nothing_but_gradients():
    """The loss goes along with them. Only other results and requests take a message."""
    sizes = [4, 3]
    x, y = steps.rows_of_numbers(7)
    state = steps.Line.on("torch", seed=3, dtype="float64")().neutral_state()
    weight, bias, losses = state["fc.weight"], state["fc.bias"], []
    for _ in range(2):
        off = x @ weight.T + bias - y
        losses.append((off**2).mean())
        weight = weight - 0.1 * 2 * off.T @ x / off.size
        bias = bias - 0.1 * 2 * off.sum(0) / off.size
    for rank, found in enumerate(
        call("torch", 2, "tests.processes.steps:quiet", sizes)
    ):
        assert_allclose(found["losses"], losses, rtol=1e-14)
        assert found["names"] == [
            "fc.bias",
            "fc.weight",
        ]  # the network gets no parameter of ours
        assert found["sent"] == {}
        assert_array_equal(found["rows"], x[:, 0])
        assert (found["agreed"], found["agreed again"], found["nan"]) == (
            "to end",
            "",
            "nan",
        )
        other, few, none = found["errors"]
        assert other == (
            f"BatchError: process {rank} has {sizes[rank]} samples in a block of "
            f"share_sizes((3, 4)), wanted {sizes[1 - rank]}: every process must say what each of "
            "them has"
        )
        wanted = (
            "wanted the number of samples in each of 2 processes, at least one in all"
        )
        assert few == f"SettingError: share_sizes=(4,): {wanted}"
        assert none == f"SettingError: share_sizes=(0, 0): {wanted}"


@pytest.mark.parametrize(
    ("transform", "messages"),
    # The last batch has one sample. So process 1 has none: a message for the loss, and one for the
    # shapes of gradients, which are added after backward.
    [(False, [0, 2]), (True, [1, 3])],
)
def test_a_trainer_knows_the_shares_unless_a_transform_may_change_them(
    transform, messages
):
    came = call("torch", 2, "tests.processes.steps:quiet_training", transform)
    assert came == [messages] * 2


def test_unused_parameters_during_backward():
    keywords = {"find_unused_parameters": True}
    during = call("torch", 2, "tests.processes.steps:unused", "torch", keywords)
    after = call("torch", 2, "tests.processes.steps:unused", "torch")
    assert during == after


def test_micro_batches_are_sent_together_after_the_last_one_or_with_each():
    keywords = {"bucket_cap_mb": 1.0}
    assert (
        call("torch", 2, "tests.processes.steps:collectives", 3, keywords)
        == [[2, 2]] * 2
    )
    assert (
        call("torch", 2, "tests.processes.steps:collectives", 1, keywords)
        == [[0, 6]] * 2
    )


@pytest.mark.parametrize(
    ("engine", "backend", "words"),
    [
        (
            "mpi",
            "torch",
            "PyTorch adds gradients during backward over torch.distributed alone",
        ),
        (
            "torch",
            "chainer",
            "ChainerMN adds gradients over its own processes alone: deliralike.join('chainermn')",
        ),
    ],
)
def test_where_gradients_are_not_added_during_backward_the_error_says_so(
    engine, backend, words
):
    for (said,) in call(
        engine, 2, REFUSALS, ["tests.processes.steps:train", backend, [4, 3], {}]
    ):
        assert words in said


# Sums that go on in the background
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_sums_under_way_are_those_of_numpy(engine):
    """In each type, with several of them at once, which are waited for in any order."""
    came = call(engine, 3, "tests.processes.steps:pending", False)
    wanted = (np.arange(15).reshape(5, 3) * 3 + (0 + 1 + 2)).tolist()
    for each in came:
        assert each == {dtype: [[dtype, wanted], [dtype, 15]] * 2 for dtype in each}


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_of_equal_shape_that_are_sent_in_different_orders_are_not_mixed_up(
    engine,
):
    for (said,) in call(engine, 2, REFUSALS, ["tests.processes.steps:pending", True]):
        assert "layers.1: another process has sent something else at this point" in said
