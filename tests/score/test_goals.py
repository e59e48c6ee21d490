"""A sample of the score: a right port, which nobody may accuse, and a handful of mutants."""

from tests.score.mutants import Mutation, draw
from tests.score.report import result
from tests.score.running import run


def test_a_right_port_is_not_accused():
    port = Mutation("ours LeNet", "chainer")
    assert run(port)[1].headline.startswith("PROVED")


def test_mistakes_in_a_class_are_found_at_their_places():
    results = [result(each, *run(each)) for each in draw(16, seed=3, of="ours LeNet")]
    judged = [one for one in results if not one.is_left_out]
    wrong = {"not detected", "wrong place", "FALSE EXACT", "raised"}
    assert len(judged) > 4
    assert not [
        (one.task.name, *one.misses) for one in judged if wrong & set(one.misses)
    ]
    assert all(one.judged.detected for one in judged)
