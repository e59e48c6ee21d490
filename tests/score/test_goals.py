"""A sample of the score: ports as they are, which nobody may accuse.."""

import pytest

from tests.score.pool import run_all
from tests.score.report import result
from tests.score.sources import pairs, tasks


@pytest.mark.parametrize("pair", pairs())
def test_right_ports_are_not_accused(pair):
    plain = [task for task in tasks(pair) if not task.is_mistake and not task.case.edits]
    assert plain
    found = [result(*each) for each in run_all(plain, workers=1)]
    accused = {one.task.name: one.said.headline for one in found if one.judged.accused}
    assert accused == {}
