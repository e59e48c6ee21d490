"""DASO in two nodes of two processes is the same run in NumPy; what goes wrong is told."""

from functools import cache

import numpy as np
import pytest
import torch

from tests.processes import daso_runs
from tests.processes.crews import call, together
from tests.processes.daso_runs import BATCHES, EPOCHS

pytestmark = together

BLOCK = (1, 0, 1)
# a constant loss is a plateau after three epochs; the second pace of the first cycle has W = B - 1
CYCLES = {
    (8, 4): [BLOCK]
    + [pace for pace in [(4, 1, 1), (2, 1, 1), (1, 1, 1), (8, 2, 2)] for _ in range(3)]
    + [BLOCK],
    (2, 1): [BLOCK]
    + [pace for pace in [(2, 1, 1), (1, 1, 1), (2, 2, 2), (1, 1, 1)] for _ in range(3)]
    + [BLOCK],
    (7, 1): [BLOCK]
    + [pace for pace in [(4, 1, 1), (2, 1, 1), (1, 1, 1), (7, 7, 7)] for _ in range(3)]
    + [BLOCK],
}
JOBS = {
    "torch": [("by_heats_names", "torch", (8, 4)), ("by_updates", "jax", (8, 4))],
    "mpi": [
        ("by_heats_names", "chainer", (2, 1)),
        ("by_updates", "torch", (7, 1)),
    ],
}


@pytest.mark.parametrize("engine", ["torch", "mpi"])
def test_runs_are_those_of_numpy(engine):
    """Warm-up, cycles and cool-down: the numbers of each process after each batch; each started
    with other weights."""
    came = call(engine, 4, "tests.processes.daso_runs:runs", JOBS[engine])
    for job, (_, _, cycle) in enumerate(JOBS[engine]):
        found = np.array([each[job] for each in came])
        assert found.shape == (4, EPOCHS * BATCHES, 32)
        assert np.abs(found - daso_runs.in_numpy(CYCLES[cycle])).max() < 1e-12
        at_ends = found[:, BATCHES - 1 :: BATCHES]
        assert (at_ends == at_ends[0]).all()
        assert (found[0] != found[2]).any(
            axis=1
        ).sum() > EPOCHS  # in between nodes are apart


@cache
def various():
    return call("mpi", 4, "tests.processes.daso_runs:various")


def test_a_run_that_was_broken_off_goes_on_with_the_same_numbers():
    """In the middle of a cycle, with a sum under way."""
    came = [each["resumed"] for each in various()]
    assert [each["same"] for each in came] == [True] * 4
    assert [each["under way"] for each in came] == [1] * 4
    assert all(each["last"] == came[0]["last"] for each in came)


def test_running_statistics_travel_and_counts_stay():
    came = [each["statistics"] for each in various()]
    for epoch in range(1, 4):
        ends = [each[epoch * BATCHES - 1] for each in came]
        assert all(end == ends[0] for end in ends)
        assert ends[0]["norm.num_batches_tracked"] == epoch * BATCHES
    before = [each[-2]["norm.running_mean"] for each in came]
    assert before[0] != before[2]


def test_complex_numbers_are_averaged_in_their_own_type():
    came = [each["turned"] for each in various()]
    assert all(each == came[0] for each in came)
    assert all(part for row in came[0]["matrix"] for part in row[1::2])


@pytest.mark.parametrize(
    ("wire", "dtype"), [("halves", torch.half), ("bfloat16", torch.bfloat16)]
)
def test_messages_of_another_type(wire, dtype):
    """The members that send are the first of each node: processes 0 and 2."""
    came = [each[wire] for each in various()]
    first, second = (
        torch.tensor(came[rank][0], dtype=torch.float64).to(dtype) for rank in (0, 2)
    )
    wanted = (first + second).double() / 2
    assert all(after == wanted.tolist() for _, after in came)


def test_what_is_not_finite_ends_all_together():
    """Process 3 spoils its node, whose turn to send is process 2's; the others hear of it with the
    merge."""
    at_once = ["what was sent after batch 4 of epoch 0: not finite in process 2", 4]
    later = [
        "what was sent after batch 4 of epoch 1: not finite in process 2",
        BATCHES + 5,
    ]
    assert [each["not finite"] for each in various()] == [[at_once, later]] * 4


def test_epochs_that_differ_in_length_are_told_at_their_beginning():
    wanted = (
        "epoch 0 has [5, 5, 5, 4] batches in the processes, in the order of ranks: "
        "all need the same number"
    )
    assert [each["other lengths"] for each in various()] == [wanted] * 4


def test_gradients_may_be_averaged_before_the_step():
    """For clipping; asked for twice, they are averaged once."""
    own, once, twice = np.moveaxis([each["clipped"] for each in various()], 1, 0)
    np.testing.assert_allclose(
        once, np.repeat([own[:2].mean(0), own[2:].mean(0)], 2, axis=0), rtol=1e-15
    )
    assert (once == twice).all() and (own[0] != own[1]).all()


def test_losses_may_be_scaled_by_numbers_that_differ():
    (wanted, *_), *_ = daso_runs.in_numpy([BLOCK])
    for each in various():
        np.testing.assert_allclose(each["scaled"], wanted, rtol=0, atol=1e-12)


def test_fewer_batches_than_were_told_are_refused():
    fewer = ["tests.processes.daso_runs:epochs", [5] * 4, [4] * 4]
    for (said,) in call("mpi", 4, "tests.processes.refusals:said", fewer):
        assert (
            "epoch 0, batch 4: the epoch ends after 4 batches, and 5 were told" in said
        )
