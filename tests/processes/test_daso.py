"""DASO in two nodes of two processes is the same run in NumPy; what goes wrong is told."""

import numpy as np
import pytest

from deliralike.backends.joining import ENGINES
from tests.processes import averaging
from tests.processes.averaging import BATCHES, EPOCHS
from tests.processes.running import run

BLOCK = (1, 0, 1)
CYCLES = {  # a constant loss is a plateau after three epochs; of the first cycle, W = B - 1 in the second pace
    (8, 4): [BLOCK] + [pace for pace in [(4, 1, 1), (2, 1, 1), (1, 1, 1), (8, 2, 2)] for _ in range(3)] + [BLOCK],
    (2, 1): [BLOCK] + [pace for pace in [(2, 1, 1), (1, 1, 1), (2, 2, 2), (1, 1, 1)] for _ in range(3)] + [BLOCK],
    (7, 1): [BLOCK] + [pace for pace in [(4, 1, 1), (2, 1, 1), (1, 1, 1), (7, 7, 7)] for _ in range(3)] + [BLOCK],
}


@pytest.mark.parametrize(
    ("engine", "how", "backend", "cycle"),
    [
        ("torch", "by_heats_names", "torch", (8, 4)),
        ("mpi", "by_heats_names", "chainer", (2, 1)),
        ("mpi", "by_updates", "torch", (7, 1)),
        ("torch", "by_updates", "chainer", (8, 4)),
        ("mpi", "by_updates", "jax", (8, 4)),
    ],
)
def test_a_run_is_that_of_numpy(engine, how, backend, cycle):
    """Warm-up, cycles and cool-down: the numbers of each process after each batch."""
    wanted = averaging.in_numpy(CYCLES[cycle])
    came = np.array(run(engine, 4, f"tests.processes.averaging:{how}", backend, *cycle).of_ranks())
    assert came.shape == (4, EPOCHS * BATCHES, 32)
    assert np.abs(came - wanted).max() < 1e-12
    at_ends = came[:, BATCHES - 1 :: BATCHES]
    assert (at_ends == at_ends[0]).all()
    assert (came[0] != came[2]).any(axis=1).sum() > EPOCHS  # in between nodes are apart


@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_that_was_broken_off_goes_on_with_the_same_numbers(engine):
    """In the second epoch, after five batches, with a sum under way."""
    came = run(engine, 4, "tests.processes.averaging:resumed", "torch", 3, BATCHES + 5).of_ranks()
    assert [each["same"] for each in came] == [True] * 4
    assert [each["under way"] for each in came] == [1] * 4
    assert all(each["last"] == came[0]["last"] for each in came)


def test_running_statistics_travel_and_counts_stay():
    came = run("torch", 4, "tests.processes.averaging:statistics").of_ranks()
    for epoch in range(1, 4):
        ends = [each[epoch * BATCHES - 1] for each in came]
        assert all(end == ends[0] for end in ends)
        assert ends[0]["norm.num_batches_tracked"] == epoch * BATCHES
    before = [each[-2]["norm.running_mean"] for each in came]
    assert before[0] != before[2]


def test_messages_of_half_precision():
    """The members that send are the first of each node: processes 0 and 2."""
    came = run("torch", 4, "tests.processes.averaging:on_the_wire").of_ranks()
    first, second = (np.array(came[rank][0]).astype(np.float16) for rank in (0, 2))
    wanted = (first + second).astype(np.float64) / 2
    assert all((np.array(each[1]) == wanted).all() for each in came)


@pytest.mark.parametrize(
    ("engine", "epoch", "batch", "told", "made"),
    [
        ("mpi", 0, 4, "what was sent after batch 4 of epoch 0: not finite in process 2", 4),
        ("torch", 1, 6, "what was sent after batch 8 of epoch 1: not finite in process 2", BATCHES + 9),
    ],
)
def test_what_is_not_finite_ends_all_together(engine, epoch, batch, told, made):
    """Process 3 spoils its node, whose turn to send is process 2's; the others hear of it with the merge."""
    came = run(engine, 4, "tests.processes.averaging:not_finite", epoch, batch).of_ranks()
    assert came == [[told, made]] * 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("told", "made", "why"),
    [
        ([5, 5, 5, 4], [5, 5, 5, 4], "epoch 0 has [5, 5, 5, 4] batches in the processes, in the order of ranks"),
        ([5] * 4, [5, 5, 5, 4], "epoch 0, batch 4: the epoch ends after 4 batches, and 5 were told"),
        ([5] * 4, [5, 5, 5, 6], "is at one batch more in epoch 0"),
    ],
)
def test_processes_with_other_numbers_of_batches_are_told(engine, told, made, why):
    ended = run(engine, 4, "tests.processes.averaging:uneven", told, made, check=False, timeout=60)
    assert ended.code != 0 and not ended.results
    assert why in ended.said


@pytest.mark.parametrize(("made", "why"), [
    ([BATCHES] * 3 + [BATCHES - 1], f"the epoch ends after {BATCHES - 1} batches, and {BATCHES} were told"),
    ([BATCHES] * 3 + [BATCHES + 1], "all batches of the epoch were made: call end_epoch(loss) before the next one"),
])  # fmt: skip
def test_updates_of_ours_with_other_numbers_of_batches_are_told(made, why):
    ended = run("mpi", 4, "tests.processes.averaging:uneven_updates", made, check=False, timeout=60)
    assert ended.code != 0 and not ended.results
    assert why in ended.said


def test_the_index_of_the_last_batch_does_as_well_as_their_number():
    """Warm-up epochs end in blocking averages after each batch, so nothing is lost until all batches are counted."""
    came = run("torch", 4, "tests.processes.averaging:uneven", [BATCHES - 1] * 4, [BATCHES] * 4).of_ranks()
    wanted = averaging.in_numpy([BLOCK, (4, 1, 1), (4, 1, 1)])
    assert max(np.abs(np.subtract(came[rank], wanted[rank][-1])).max() for rank in range(4)) < 1e-12
