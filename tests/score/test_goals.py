"""A sample of the score: ports as they are, which nobody may accuse."""

import pytest

from tests.score.running import run
from tests.score.sources import pairs, tasks


@pytest.mark.parametrize("pair", pairs())
def test_right_ports_are_not_accused(pair):
    """In this process. Those to JAX take ten times as long as those to Chainer: one of them."""
    ports = ("chainer", "jax") if pair == "mlp" else ("chainer",)
    plain = [task for task in tasks(pair) if not task.is_mistake and not task.case.edits]
    found = {task.case.port: run(task).headline for task in plain if task.case.port in ports}
    assert len(found) == len(ports)
    assert all(headline.startswith("PROVED") for headline in found.values()), found
