"""A sample of the score: right ports, which nobody may accuse, and a handful of mutants."""

import pytest

from tests.score.case import Right
from tests.score.mutants import Mutation, draw
from tests.score.ports import Task
from tests.score.report import result
from tests.score.running import run

PORTS = (
    Task(
        "pair, texts first", Right("as it is", "jax")
    ),  # others to JAX take twice as long
    Task("pair, texts first", Right("as it is", "chainer")),
    Task("sentences, as pictures", Right("as it is", "chainer")),
    Mutation("ours LeNet", "chainer"),
)


@pytest.mark.parametrize("port", PORTS, ids=lambda port: port.name)
def test_right_ports_are_not_accused(port):
    assert run(port)[1].headline.startswith("PROVED")


def test_mistakes_in_a_class_are_found_at_their_places():
    results = [result(each, *run(each)) for each in draw(16, seed=3, of="ours LeNet")]
    judged = [one for one in results if not one.is_left_out]
    wrong = {"not detected", "wrong place", "FALSE EXACT", "raised"}
    assert len(judged) > 4
    assert not [
        (one.task.name, *one.misses, one.said)
        for one in judged
        if wrong & set(one.misses)
    ]
    assert all(one.judged.detected for one in judged)
