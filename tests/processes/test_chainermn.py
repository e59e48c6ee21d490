"""The engine ChainerMN, and programs written for it: the updates of one process."""

import numpy as np
import pytest

from deliralike import backends
from deliralike.backends.chainer.arrays import chainermn
from deliralike.errors import CapabilityError
from tests.processes import multi_node, steps, training
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together

pytestmark = together

TRAIN, PROGRAM = "tests.processes.steps:train", "tests.processes.multi_node:program"


@pytest.mark.parametrize(
    ("backend", "shares", "in_backward"),
    [
        ("chainer", [4, 3], None),
        ("chainer", [7, 0], {}),
    ],
)
def test_updates_over_mpi_are_those_of_one_process(backend, shares, in_backward):
    """Class weights, ignored labels, batch norm, dropout, clipping; gradients added here, or by
    ChainerMN."""
    wanted = steps.alone(backend, 7)
    came = call("chainermn", len(shares), TRAIN, backend, shares, in_backward)
    sums = [each.pop("sums", None) for each in came]
    assert sums == [None if in_backward is None else 0] * len(shares)
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


def test_over_mpi_a_parameter_that_one_process_uses_counts_as_zero_in_the_others():
    """Half of the samples are each process's: the gradient of each path is half of its own. The
    third one stays."""
    came = call("chainermn", 2, "tests.processes.steps:unused", "chainer", {})
    assert came[0] == came[1]
    assert came[0]["moved"] == [
        "first.bias",
        "first.weight",
        "second.bias",
        "second.weight",
    ]
    before = steps.TwoPaths.on("chainer", dtype="float64")().neutral_state()
    for name, sign in (("first", -1.0), ("second", 1.0)):
        np.testing.assert_allclose(
            came[0][name], before[f"{name}.weight"] * 0.5 - sign, rtol=1e-13
        )


@pytest.mark.parametrize("data", ["synchronized", "multi-node"])
def test_a_chainermn_program_over_mpi_trains_as_one_process(data):
    """Its optimizer, batch norm and iterators; batches of 7 and a last one of a single sample,
    momentum, clipping."""
    wanted = multi_node.alone()
    came = call("chainermn", 2, PROGRAM, data)
    assert len(came) == 2
    for each in came:
        assert (
            each["samples"] == wanted["samples"] == [7, 7, 7, 7, 1] * multi_node.EPOCHS
        )
        assert training.largest_difference(wanted, each) < 1e-12


@pytest.fixture(scope="module")
def of_two():
    return call("chainermn", 2, "tests.processes.multi_node:several")


def test_micro_batches_over_mpi_are_added_once(of_two):
    assert [each["micro_batches"] for each in of_two] == [[2, 2]] * 2


def test_the_first_batch_is_not_lost_over_mpi(of_two):
    """ChainerMN's first update moves nothing."""
    used = [f"/{layer}/{name}" for layer in ("conv", "last") for name in "Wb"] + [
        "/norm/beta",
        "/norm/gamma",
    ]
    assert [each["first_batch"] for each in of_two] == [[[], used]] * 2


def test_an_optimizer_of_all_processes_over_mpi_is_not_for_a_network_of_one(of_two):
    for rank, each in enumerate(of_two):
        words = (
            f"communicator has process {rank} of 2, and the network is process 0 of 1: "
            "give it Distributed"
        )
        assert words in each["refused"]


def test_means_of_gradients_over_mpi_are_right_in_any_order_of_memory(of_two):
    wanted = (np.arange(6).reshape(2, 3) + 0.5).tolist()
    assert [each["mean_of_gradients"] for each in of_two] == [[wanted, wanted]] * 2


def test_batch_norm_over_mpi_has_neutral_names_and_may_do_without_gamma(of_two):
    names = ["bias", "running_mean", "running_var", "num_batches_tracked"]
    assert [each["batch_norm"] for each in of_two] == [[names, 1]] * 2


def test_double_buffering_is_refused():
    native = object.__new__(chainermn.optimizers._DoubleBufferingOptimizer)
    with pytest.raises(
        CapabilityError, match="not those of one process: create_multi_node_optimizer"
    ):
        backends.get("chainer").wrap_optimizer(native, backends.wrap(multi_node.Net(0)))
