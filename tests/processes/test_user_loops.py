"""Training loops without an optimizer of this package are those of one process, or an error at the
first step."""

import pytest

from deliralike.parallel import SingleProcess
from tests.processes import user_loops
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together

pytestmark = together


def test_loops_with_pytorchs_own_optimizers_are_those_of_one_process():
    """Shares of 4 and 3 samples, synchronised batch norm, several passes a step, networks in a row,
    a penalty."""
    wrappers = ["after", "in backward", "sharded"]
    for found in call("torch", 2, "tests.processes.user_loops:on_torch", wrappers):
        for wrapper in wrappers:
            wanted = user_loops.alone(wrapper)
            differences = {
                name: largest_difference(wanted[name], each, 1.0)
                for name, each in found[wrapper].items()
            }
            assert max(differences.values()) < 1e-13, (wrapper, differences)


def test_a_loop_that_would_leave_other_weights_in_each_process_is_an_error_at_the_first_step():
    first, second = call("torch", 2, "tests.processes.user_loops:refused_on_torch")
    for said in (first[0], second[0]):
        assert said.startswith(
            "a backward pass of your own, where parameters are averaged every few updates"
        )
        assert (
            "network.backend.wrap_optimizer(optimizer, network).update(loss_function, *batch)"
            in said
        )
    assert first[1].startswith(
        "a backward pass of your own, and process 1 has no samples in it"
    )
    assert second[1] is None


def test_loops_with_chainers_own_optimizers_are_those_of_one_process():
    """Shares of 4 and 3 samples, hooks, a classifier around the network, several passes a step,
    networks in a row."""
    wanted = user_loops.on_chainer(SingleProcess())
    for found in call("torch", 2, "tests.processes.user_loops:on_chainer"):
        differences = {
            name: largest_difference(wanted[name], found[name], 1.0) for name in wanted
        }
        assert max(differences.values()) < 1e-13, differences


def test_a_loop_of_chainers_that_would_go_wrong_is_an_error_at_the_first_step():
    for said in call("torch", 2, "tests.processes.user_loops:refused_on_chainer"):
        assert said[0].startswith(
            "a backward pass of your own, where parameters are averaged every few updates"
        )
        assert said[1].startswith("gradients of gradients, over several processes")
        assert said[2].startswith(
            "an update of SGD by itself would follow the gradients of this process alone"
        )


@pytest.mark.parametrize(("engine", "spread"), [("torch", False), ("jax", True)])
def test_a_step_by_flaxs_own_optimizer_is_an_error(engine, spread):
    for of_rank in call(engine, 2, "tests.processes.user_loops:refused_on_jax", spread):
        assert len(of_rank) == (4 if spread else 2)
        for said in of_rank:
            assert (
                said
                and "those of one process: make the update by an optimizer over the network"
                in said
            )


def test_evaluation_in_a_compiled_program_of_ones_own_is_none():
    assert max(call("torch", 2, "tests.processes.user_loops:evaluated_on_jax")) < 1e-6
