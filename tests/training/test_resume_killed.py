"""Runs that are killed at any moment end as if they had not been; see `tests.training.killed`."""

import re
import subprocess
import sys

import pytest

from tests import conftest


@pytest.mark.parametrize(("backend", "count"), [("chainer", 7), ("torch", 2)])
def test_a_run_that_is_killed_again_and_again_ends_bit_for_bit_as_without(
    tmp_path, backend, count
):
    if backend not in conftest.BACKENDS:
        return
    command = [sys.executable, "-m", "tests.training.killed", backend]
    command += [str(tmp_path), str(count)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    stops, torn, different = re.search(
        r"stops=(\d+) .* torn=(\d+) different=(.*)", run.stdout
    ).groups()
    assert int(stops) == count
    assert different == "[]"
    assert int(torn) > 0 or count < 5
