"""A run in several processes is that of one: losses, metrics, weights, checkpoints, on either
engine."""

import pytest

from deliralike.parallel import SingleProcess
from deliralike.training import Checkpoints
from tests.processes import training
from tests.processes.crews import call, together

pytestmark = together

FITTED = "tests.processes.training:fitted"


@pytest.mark.parametrize(
    ("engine", "backend", "count"),
    [("torch", "torch", 4), ("mpi", "chainer", 3)],
)
def test_a_run_is_that_of_one_process(engine, backend, count):
    """Batches of 7 and a last one of a single sample, augmentation, two batches an update,
    clipping, evaluation."""
    wanted = training.alone(backend)
    came = call(engine, count, FITTED, backend)
    assert [each["main"] for each in came] == [True, *[False] * (count - 1)]
    for each in came:
        assert each["samples"] == wanted["samples"] == [14, 14, 1] * training.EPOCHS
        assert training.largest_difference(wanted, each) < 1e-11


def test_a_checkpoint_is_that_of_one_process(tmp_path):
    """Written in the middle of an epoch by three processes and resumed by one, and by two after one
    has written it."""
    wanted = training.alone("torch")
    of_three, of_one = tmp_path / "three", tmp_path / "one"
    call("torch", 3, FITTED, "torch", str(of_three), 2)
    middle = str(of_three / "step-00000004")
    assert middle in map(str, Checkpoints.all(of_three))
    alone = training.alone("torch", resume=middle)
    training.alone("torch", folder=of_one, epochs=2)
    two = call(
        "mpi", 2, FITTED, "torch", None, training.EPOCHS, str(of_one / "step-00000004")
    )
    for each in (alone, *two):
        each = each | {"losses": each["losses"][-5:], "metrics": each["metrics"][-2:]}
        last = wanted | {
            "losses": wanted["losses"][-5:],
            "metrics": wanted["metrics"][-2:],
        }
        assert training.largest_difference(last, each) < 1e-11


def test_a_run_of_a_network_that_is_spread_over_processes_is_that_of_one_process():
    """Evaluation has more batches in one process than in the other."""
    wanted = training.spread_out(SingleProcess())
    came = call("torch", 2, "tests.processes.training:spread_out")
    assert max(training.largest_difference(wanted, each) for each in came) < 1e-12
