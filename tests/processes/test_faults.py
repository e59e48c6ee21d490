"""Whatever happens to one process ends all of them, in bounded time, and they say what it was."""

import atexit
import re
import signal
import sys
from functools import cache

import numpy as np
import pytest

from deliralike.errors import ProcessError
from deliralike.parallel import SingleProcess
from deliralike.training import Checkpoints
from tests.processes import faults, training
from tests.processes.crews import call, together
from tests.processes.faults import STEP
from tests.processes.running import ENGINES, Run, run

FAULTS, PROGRAMS, REFUSALS = (
    "tests.processes.faults",
    "tests.processes.programs",
    "tests.processes.refusals:said",
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("too large"), True),
        (ProcessError("process 1 failed"), False),  # whose process has told it
        (KeyboardInterrupt(), False),
    ],
    ids=["an error", "another process's", "Ctrl-C"],
)
def test_an_error_that_nothing_catches_is_told_once(error, told, monkeypatch):
    shown, sent = [], []
    monkeypatch.setattr(sys, "excepthook", lambda *given: shown.append(given))
    group = SingleProcess()
    monkeypatch.setattr(group, "failed", sent.append)
    group.watch_the_end()
    try:
        sys.excepthook(type(error), error, None)
    finally:
        atexit.unregister(group.finished)
    assert [each for _, each, _ in shown] == [error]
    words = f"{group} failed: ValueError: too large; the last that it did with others: {group.at}"
    assert sent == getattr(error, "__notes__", []) == ([words] if told else [])


def test_an_exception_in_a_loss_while_that_of_others_is_under_way_is_told():
    ended = run("torch", 2, f"{FAULTS}:in_its_loss", "torch", {}, check=False)
    assert ended.code != 0 and not ended.results
    assert (
        "process 1 of 2 (" in ended.said
        and "failed in the update: ValueError: the disk is full" in ended.said
    )


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("torch", "process 1 has not come to a step of my own, and no answer"),
        ("mpi", "process 1 has not come to a step of my own, and no answer"),
        ("jax", "process 1 has not come in 3 seconds"),
    ],
)
def test_a_process_that_stops_is_given_up_after_the_timeout_and_named(engine, words):
    ended = run(engine, 2, f"{PROGRAMS}:one_stops", check=False)
    assert ended.code != 0 and not ended.results
    assert re.search(rf"ProcessError: process 0 of 2 \(.*\): {words}", ended.said)


def test_a_process_that_never_starts_is_given_up_by_the_others():
    """All engines at the same time, as this takes as long as the time limit."""
    wanted = {
        "torch": "process 0 of 2: within 5 s these have not come at all: 1",
        "mpi": "in _wait_for_mpi_to_start",
        "jax": "process 0 of 2 (JAX): within 5 s not all of the others have come",
    }
    started = {
        engine: Run(engine, 2, f"{PROGRAMS}:here", patience=5, late=600)
        for engine in wanted
    }
    ended = {engine: run.outcome(check=False) for engine, run in started.items()}
    for engine, words in wanted.items():
        assert words in ended[engine].said, f"{engine}: {ended[engine].said}"
        assert ended[engine].code != 0 and not ended[engine].results, engine


def test_a_full_disk_ends_all_and_the_checkpoint_before_it_is_good(tmp_path):
    ended = run("mpi", 2, f"{FAULTS}:full_disk", "chainer", str(tmp_path), check=False)
    assert ended.code != 0 and not ended.results
    assert (
        "process 0 of 2 (" in ended.said
        and "failed in epoch 1, step 4: CheckpointError: " in ended.said
    )
    assert (
        "was not written, and what was there is left as it was: No space left on device"
        in ended.said
    )
    half = tmp_path / f".step-{STEP:08d}.new" / "network.safetensors"
    before = tmp_path / f"step-{STEP - 1:08d}"
    assert half.exists() and Checkpoints.latest(tmp_path) == before
    assert the_rest_is_the_same(before)


def the_rest_is_the_same(checkpoint):
    """Whether a run that goes on from it ends like one that was never interrupted."""
    wanted, found = uninterrupted(), training.alone("chainer", resume=checkpoint)
    made = len(found["losses"])
    last = wanted | {"losses": wanted["losses"][-made:]}
    return (
        0 < made < len(wanted["losses"])
        and training.largest_difference(last, found) < 1e-11
    )


@cache
def uninterrupted():
    return training.alone("chainer")


def test_a_signal_to_one_process_ends_all_after_the_same_step_with_a_checkpoint(
    tmp_path,
):
    """It comes when the messages of step 4 have been sent: so all know after the next one."""
    ended = run(
        "mpi", 2, f"{FAULTS}:asked_to_end", "chainer", str(tmp_path), "SIGINT", 1
    )
    assert ended.of_ranks() == [["Ctrl-C", signal.SIGINT, STEP + 1]] * 2
    assert (
        "process 1 of 2 (" in ended.said
        and f"SIGINT in epoch 1, step {STEP}; all end after a step" in ended.said
    )
    latest = Checkpoints.latest(tmp_path)
    assert latest == tmp_path / f"step-{STEP + 1:08d}"
    assert the_rest_is_the_same(latest)


def test_a_run_goes_on_by_itself_after_a_process_was_killed(tmp_path):
    ended = run("mpi", 2, f"{FAULTS}:killed_once", "chainer", str(tmp_path), restarts=1)
    assert "on signal 9" in " ".join(ended.said.split())  # as mpirun tells
    assert re.search(rf"process 0 of 2 \(.*\).* in epoch 0, step {STEP}", ended.said)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "killed").touch()
    wanted, _ = faults.killed_once(SingleProcess(), "chainer", str(tmp_path / "alone"))
    assert (tmp_path / "killed").exists()
    for losses, count in ended.of_ranks():
        assert count == [1, 1]
        np.testing.assert_allclose(losses, wanted, rtol=1e-12)


def test_torchrun_starts_all_again_after_a_process_was_killed():
    """Of two restarts the first one will do."""
    ended = run("torch", 2, f"{PROGRAMS}:killed_at_first", restarts=2)
    assert ended.of_ranks() == [[1, 2]] * 2
    assert (
        "exitcode: -9" in ended.said
    )  # as torchrun tells at once; more follows if it waits


@together
@pytest.mark.parametrize("engine", ENGINES)
def test_processes_at_different_places_do_not_mix_their_numbers(engine):
    said = call(engine, 2, REFUSALS, [f"{PROGRAMS}:other_steps"])
    places = [
        "lunch while process 1 is at the ends of the earth",
        "the ends of the earth while process 0 is at lunch",
    ]
    for rank, place in enumerate(places):
        assert said[rank] == [
            f"ProcessError: process {rank} is at {place}: every process must make the same steps "
            f"with the same layers"
        ]


def test_a_process_at_its_end_is_told_from_one_that_goes_on():
    ended = run("mpi", 2, f"{PROGRAMS}:one_batch_less", check=False)
    assert ended.code != 0 and 0 not in ended.results
    at_step, at_end = "is at a step of my own", "is at the end"
    assert (
        f"process 0 {at_step} while process 1 {at_end}" in ended.said
        or f"process 1 {at_end} while process 0 {at_step}" in ended.said
    )


@together
@pytest.mark.parametrize(
    ("engine", "backend"),
    [
        ("torch", "torch"),
        ("mpi", "chainer"),
        ("jax", "jax"),
    ],
)
def test_a_number_that_is_not_finite_stops_all_together_and_its_process_is_named(
    engine, backend
):
    """Sample 11 is the last but two of the second batch, whose shares are of 4 and 3 samples: that
    of process 1."""
    came = call(engine, 2, f"{FAULTS}:one_has_nan", backend)
    assert came[0] == came[1]
    assert came[0][1] == 1
    assert came[0][0].startswith("not finite in step 0 of epoch 0: in process 1: ")


@pytest.mark.parametrize("engine", ["torch", "mpi", "jax"])
def test_a_process_that_has_finished_is_told_as_such_at_once(engine):
    """By the end of its program, without a word; their own time limit is far longer than the
    test's."""
    ended = run(
        engine, 2, f"{PROGRAMS}:ends_early", check=False, patience=1000, timeout=600
    )
    assert ended.code != 0 and not ended.results
    assert re.search(
        r"process 0 of . \(.*\) is at a step of my own, and process 1 has finished: every",
        ended.said,
    )


@pytest.mark.parametrize(
    ("engine", "launcher", "words"),
    [
        (
            "torch",
            "torch",
            "1 of 2 (torch.distributed) failed: KeyError: 'the colour of the",
        ),
        ("mpi", "mpi", "KeyError: 'the colour of the bikeshed'"),
        (
            "jax",
            "jax",
            "process 1 of 2 (JAX) failed: KeyError: 'the colour of the bikeshed'",
        ),
    ],
)
def test_an_error_in_a_loop_of_ones_own_is_told_to_the_others_by_one_that_started_late(
    engine, launcher, words
):
    program = f"{PROGRAMS}:fails_in_its_own_loop"
    ended = run(
        engine, 2, program, check=False, patience=1000, late=3, launcher=launcher
    )
    assert ended.code != 0 and not ended.results
    assert words in ended.said


def test_communicators_by_heats_names_follow_the_time_limit():
    assert (
        run("mpi", 2, f"{PROGRAMS}:heats_time_limits").of_ranks() == [[17.0, 17.0]] * 2
    )
