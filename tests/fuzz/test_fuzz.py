"""Damaged files of every format are read or refused in our own words; so are those that were made
to do harm."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import BACKENDS

if set(BACKENDS) < {"torch", "chainer", "jax"}:
    pytest.skip("reads the files of every framework", allow_module_level=True)

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("fuzz")


RUN = ("--count", "20", "--crafted")


@cache
def found():
    """What one run of the command finds: the frameworks take long to load, and one process reads
    all formats."""
    command = [sys.executable, "-m", "tests.fuzz", "--json", *RUN]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=3600
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_damaged_files_are_read_as_the_framework_reads_them_or_refused():
    from tests.fuzz.formats import FORMATS

    damaged = found()["damaged"]
    assert damaged.keys() == FORMATS.keys()
    assert {name: problems for name, problems in damaged.items() if problems} == {}


def test_files_that_were_made_to_do_harm_are_refused():
    from tests.fuzz.hostile import HOSTILE

    hostile = found()["hostile"]
    assert hostile.keys() == {format for format, _ in HOSTILE}
    assert {name: problems for name, problems in hostile.items() if problems} == {}
