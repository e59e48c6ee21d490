"""Updates that processes make by themselves, and averages of their parameters: as NumPy has them,
and PyTorch."""

import numpy as np
import pytest

from deliralike import zoo
from deliralike.backends import DistributedDataParallel
from deliralike.errors import SettingError
from deliralike.parallel import LocalSGD, SingleProcess
from deliralike.training import Checkpoints, checkpoint
from tests.processes import averaging
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together

pytestmark = together

TRAIN = "tests.processes.averaging:train"
OF_TWO = [[4, 3], [0, 5], [1, 6]]  # shares of three batches in turn
OF_FOUR = [[3, 0, 2, 2], [1, 4, 0, 1], [2, 2, 2, 3]]
NESTED = {"every": [[2, 2], [6, 4]], "warmup": 1}


# Decisions, without processes
# -----------------------------------------------------------------------------


def test_when_and_with_whom_to_average():
    plan = LocalSGD(every={4: 2, 16: 4}, warmup=3)
    after = {update: plan.group_after(update, 4) for update in range(1, 36)}
    assert {update for update, size in after.items() if size == 4} == {19, 35}
    assert {update for update, size in after.items() if size == 2} == {
        7,
        11,
        15,
        23,
        27,
        31,
    }
    assert [LocalSGD(every=3).group_after(update, 5) for update in range(1, 8)] == [
        0,
        0,
        5,
        0,
        0,
        5,
        0,
    ]


@pytest.mark.parametrize(
    ("settings", "count", "words"),
    [
        ({"every": 0}, 2, "every=0 must be a whole number of at least 1"),
        ({"every": {}}, 2, "and the last one all"),
        ({"warmup": -1}, 2, "warmup=-1"),
        ({"every": {4: 2, 8: 3}}, 3, "a multiple of the one before"),
        ({"every": {4: 2}}, 4, "and the last one all"),
        ({"every": {4: 4, 8: 2}}, 4, "a multiple of the one before"),
    ],
)
def test_plans_that_make_no_sense(settings, count, words):
    with pytest.raises(SettingError, match=words):
        LocalSGD(**settings).levels(count)


def test_one_process_needs_no_averages():
    network = zoo.build("mlp", backend="torch", in_features=3, out_features=2)
    assert (
        DistributedDataParallel(network, SingleProcess(), averaging=LocalSGD())
        is network
    )


# Against NumPy and PyTorch
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("engine", "backend", "plan", "shares", "loss", "in_backward"),
    [
        ("torch", "torch", {"every": 3, "warmup": 2}, OF_TWO, "denominator", {}),
        ("torch", "jax", {"every": 3, "warmup": 1}, OF_TWO, "denominator", None),
        ("torch", "torch", NESTED, OF_FOUR, "mean", None),
        ("mpi", "torch", {"every": 3, "warmup": 1}, OF_FOUR, "denominator", None),
    ],
)
def test_parameters_are_those_of_numpy(
    engine, backend, plan, shares, loss, in_backward
):
    """After each update in each process; shares that differ and are empty now and then, momentum in
    each process."""
    count, updates = len(shares[0]), 8
    wanted = averaging.by_numpy(plan, updates, shares, loss, count)
    came = call(engine, count, TRAIN, backend, plan, updates, shares, loss, in_backward)
    assert averaging.largest_difference(wanted, came) < 1e-12
    assert (
        averaging.largest_difference(wanted[-1:], [each[-1:] for each in came]) < 1e-12
    )
    apart = [np.array_equal(of_ranks[0], of_ranks[-1]) for of_ranks in wanted]
    assert apart[-1] and not all(apart)


def test_messages_are_sent_in_warm_up_and_averages_alone():
    """Of an update: the shares, the denominators, the loss, what gradients there are, and their
    sum."""
    came = call(
        "torch", 2, TRAIN, "torch", {"every": 3, "warmup": 2}, 8, OF_TWO, "mean"
    )
    sent = [step["sent"] for step in came[0][:-1]]
    together = [
        3,
        1,
    ]  # exchanges: the shares, the loss, what the gradients are; sums: of gradients
    average = [
        2,
        1,
    ]  # exchanges: what each counts for, what the parameters are; sums: of parameters
    assert sent == [
        together,
        together,
        [0, 0],
        [0, 0],
        average,
        [0, 0],
        [0, 0],
        average,
    ]


# Runs
# -----------------------------------------------------------------------------


def test_after_epochs_all_have_the_same_parameters_and_the_checkpoint_too(tmp_path):
    came = call("torch", 2, "tests.processes.averaging:fitted", "torch", str(tmp_path))
    assert (
        came[0]["state"] == came[1]["state"]
        and came[0]["metrics"] == came[1]["metrics"]
    )
    written = checkpoint.read(Checkpoints.latest(tmp_path))["network"]
    assert {name: value.tolist() for name, value in written.items()} == came[0]["state"]
    assert (
        came[0]["loss"] != came[1]["loss"]
    )  # other masks for the samples of another process


def test_buffers_are_averaged_with_parameters():
    """By the weights of the losses; whole numbers are those of the first process."""
    came = call("torch", 2, "tests.processes.averaging:normalised")
    shares = np.array([each["weight"] for each in came]) / sum(
        each["weight"] for each in came
    )
    assert came[0]["before"]["bn.running_mean"] != came[1]["before"]["bn.running_mean"]
    for name in ("bn.running_mean", "bn.running_var"):
        mean = sum(
            share * np.array(each["before"][name])
            for share, each in zip(shares, came, strict=True)
        )
        for each in came:
            np.testing.assert_allclose(each["after"][name], mean, rtol=1e-13)
    assert [each["after"]["bn.num_batches_tracked"] for each in came] == [1, 1]


@pytest.mark.parametrize("buffers", ["sync", "mean"])
def test_complex_numbers_are_averaged_too(buffers):
    """By the samples of processes, which have 4 and 3: parameters and buffers, or buffers alone."""
    wanted = averaging.turned(None)
    for came in call("torch", 2, "tests.processes.averaging:turned", buffers):
        assert largest_difference(wanted, came) < 1e-12
