"""Whatever happens to one process ends all of them, in bounded time, and they say what it was."""

import time

import pytest

from tests.processes.faults import STEP
from tests.processes.running import ENGINES, run

FAILS = "tests.processes.faults:one_fails"


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("engine", ENGINES)
def test_an_exception_in_one_process_ends_all_and_is_told(engine, rank):
    ended = run(engine, 2, FAILS, "raises", rank, check=False, timeout=90)
    assert ended.code != 0 and not ended.results
    told = f"process {rank} of 2 "
    assert told in ended.said and f"failed in epoch 1, step {STEP}: ValueError: the disk is full of cats" in ended.said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_that_is_killed_ends_all(engine):
    ended = run(engine, 2, FAILS, "is killed", check=False, timeout=90)
    assert ended.code != 0 and not ended.results
    assert "signal 9" in ended.said.lower()


def test_a_process_that_stops_is_given_up_after_the_timeout():
    begin = time.monotonic()
    ended = run("torch", 2, FAILS, "stops", check=False, patience=10)
    assert ended.code != 0 and not ended.results
    assert time.monotonic() - begin > 10
    assert "ProcessError: process 0 of 2 (torch.distributed): " in ended.said
    assert f"process 0 of 2 (torch.distributed) was in epoch 1, step {STEP}" in ended.said


@pytest.mark.parametrize("engine", ENGINES)
def test_processes_at_different_places_do_not_mix_their_numbers(engine):
    ended = run(engine, 2, "tests.processes.faults:other_steps", check=False, timeout=60)
    assert ended.code != 0 and not ended.results
    assert "is at lunch while process 1 is at the ends of the earth: every process must make the same" in ended.said


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_with_fewer_batches_is_told_from_one_with_more(engine):
    ended = run(engine, 2, "tests.processes.faults:fewer_batches", check=False, timeout=60)
    assert ended.code != 0 and 0 not in ended.results
    at_batch, at_end = "is at a batch, the samples of each share", "is at the end"
    assert (
        f"process 0 {at_batch} while process 1 {at_end}" in ended.said
        or f"process 1 {at_end} while process 0 {at_batch}" in ended.said
    )


def test_a_number_that_is_not_finite_stops_all_together_and_its_process_is_named():
    """Sample 11 is the last but two of the second batch, whose shares are of 4 and 3 samples: that of process 1."""
    came = run("torch", 2, "tests.processes.faults:one_has_nan").of_ranks()
    assert came[0] == came[1]
    assert came[0][1] == 1
    assert came[0][0].startswith("not finite in step 0 of epoch 0: in process 1: ")
