"""Processes on JAX's own runtime compute one program together: what one process computes."""

import json

import pytest

from tests.processes import jax_runtime, steps
from tests.processes.comparing import largest_difference
from tests.processes.crews import call, together
from tests.processes.running import run

pytestmark = together

TOGETHER = "tests.processes.jax_runtime:together"


@pytest.fixture(scope="module")
def wanted():
    """Everything in one process."""
    return json.loads(json.dumps(jax_runtime.alone()))


def of_all(came):
    """What each process found; what one process computes for all of them is one."""
    return [each | {"judged": came[0]["judged"]} for each in came]


def test_processes_that_compute_together_are_one_process(wanted):
    """Batch norm, dropout, class weights, clipping, micro-batches, evaluation, states; shares that
    differ."""
    sizes = [4, 3]
    came = call("jax", 2, TOGETHER, sizes)
    for each in of_all(came):
        assert largest_difference(wanted, each) < 1e-12


def test_a_process_without_a_sample_takes_part():
    shares = [7, 0]
    wanted = steps.alone("jax", 7)
    came = call("jax", len(shares), "tests.processes.jax_runtime:a_share", shares)
    assert max(largest_difference(wanted, each) for each in came) < 1e-12


def test_layers_of_flax_are_synchronised_with_one_stream_and_what_does_not_fit_is_an_error():
    """The processes' own networks differ in weights and in streams: they take over those of the
    first one."""
    wanted = jax_runtime.flaxen(0, steps.batch(7))
    came = call("jax", 2, "tests.processes.jax_runtime:natives_and_errors", [3, 4])
    for updates, errors in came:
        assert largest_difference(wanted, updates) < 1e-12
        for error, words in zip(
            errors,
            (
                "ProcessError: a batch, samples aside, is [('float64', (2, 5, 14)), ",
                "CapabilityError: gradients of a network in processes that compute together are "
                "an optimizer's",
                "CapabilityError: processes that compute together on JAX call a network in "
                "training mode within an update alone",
            ),
            strict=True,
        ):
            assert error.startswith(words)


def test_sums_and_long_messages_of_groups_keep_their_type():
    """Three processes, and two of them as a group; a message that is longer than the coordinator's
    store takes."""
    came = run("jax", 3, "tests.processes.programs:messages").of_ranks()
    for rank, (sums, lengths, of_group) in enumerate(came):
        assert sums == [
            [dtype, [3, 6, 9]]
            for dtype in ("float64", "float32", "float16", "int64", "int8")
        ]
        assert lengths == [20_000, 20_001, 20_002]
        assert of_group == ([None, None] if rank == 1 else [["here", 0, 2], [2.0, 4.0]])


# Faults
# -----------------------------------------------------------------------------


def test_a_process_that_is_killed_ends_all_and_is_told():
    ended = run(
        "jax", 2, "tests.processes.programs:killed_at_first", check=False, patience=1000
    )
    assert ended.code != 0
    assert "process 1 of 2 ended by signal 9" in ended.said
