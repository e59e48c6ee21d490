"""Networks that are spread over processes make the updates of one process, and each holds its part."""

import pytest

from tests.processes import sharding, steps
from tests.processes.running import run

ALL = {"smallest": 1}  # every layer by itself


@pytest.mark.parametrize(("shares", "keywords"), [
    ([4, 3], ALL), ([3, 0, 2, 2], ALL | {"reshard_after_forward": False}), ([5, 2], {}),
])  # fmt: skip
def test_updates_are_those_of_one_process(shares, keywords):
    """Class weights, ignored labels, batch norm, dropout, clipping, decay by groups; shares that differ, one empty."""
    wanted = sharding.alone(7)
    came = run("torch", len(shares), "tests.processes.sharding:train", shares, keywords).of_ranks()
    assert max(steps.largest_difference(wanted, each) for each in came) < 1e-12
