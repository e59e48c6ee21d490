"""A sample of the score: right ports, which nobody may accuse, and a handful of mutants."""

import pytest

from tests.score.case import Right
from tests.score.mutants import Mutation, draw
from tests.score.report import result
from tests.score.running import run
from tests.score.sources import Task

PORTS = (
    Task("mlp", Right("as it is", "chainer")),
    Task("mlp", Right("as it is", "jax")),  # other ports to JAX take ten times as long
    Task("lstm", Right("as it is", "chainer")),
    Mutation("ours LeNet", "chainer"),
)


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_right_ports_are_not_accused(port):
    assert run(port)[1].headline.startswith("PROVED")


def test_mistakes_in_a_class_are_found_at_their_places():
    """But for an activation that several calls share: a call left out is no reshaped output."""
    results = [result(each, *run(each)) for each in draw(16, seed=3, of="ours LeNet")]
    judged = [one for one in results if not one.is_left_out]
    wrong = {"not detected", "wrong place", "FALSE EXACT", "raised"}
    assert len(judged) > 4
    assert {one.task.rule for one in judged if wrong & set(one.misses)} <= {"activation lost"}
    assert all(one.judged.detected for one in judged)
