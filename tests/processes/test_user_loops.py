"""Training loops without an optimizer of this package are those of one process, or an error at the
first step."""

import pytest

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


def test_a_step_by_chainers_own_optimizer_is_an_error():
    for of_rank in call("torch", 2, "tests.processes.user_loops:refused_on_chainer"):
        assert len(of_rank) == 3
        for said in of_rank:
            assert said.startswith(
                "a backward pass of your own, whose gradients are those"
            )


@pytest.mark.parametrize("engine", ["torch", "jax"])
def test_a_step_by_flaxs_own_optimizer_is_an_error(engine):
    for of_rank in call(engine, 2, "tests.processes.user_loops:refused_on_jax"):
        assert len(of_rank) == 2
        for said in of_rank:
            assert (
                said
                and "those of one process: make the update by an optimizer over the network"
                in said
            )


def test_evaluation_in_a_compiled_program_of_ones_own_is_none():
    assert max(call("torch", 2, "tests.processes.user_loops:evaluated_on_jax")) < 1e-6
