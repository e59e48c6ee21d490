"""A sample of the score: right ports, which nobody may accuse, and a handful of mutants."""

import pytest

from tests.score.mutants import draw
from tests.score.report import result
from tests.score.running import run
from tests.score.sources import pairs, tasks


@pytest.mark.parametrize("pair", pairs())
def test_right_ports_are_not_accused(pair):
    """In this process. Those to JAX take ten times as long as those to Chainer: one of them."""
    ports = ("chainer", "jax") if pair == "mlp" else ("chainer",)
    plain = [task for task in tasks(pair) if not task.is_mistake and not task.case.edits]
    found = {task.case.port: run(task)[1].headline for task in plain if task.case.port in ports}
    assert len(found) == len(ports)
    assert all(headline.startswith("PROVED") for headline in found.values()), found


def test_mistakes_in_a_class_are_found_at_their_places():
    results = [result(each, *run(each)) for each in draw(16, seed=3, of="ours LeNet")]
    judged = [one for one in results if not one.is_left_out]
    wrong = {"not detected", "wrong place", "FALSE EXACT", "raised"}
    assert len(judged) > 4
    assert {one.task.name: one.said for one in judged if wrong & set(one.misses)} == {}
