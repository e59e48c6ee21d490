"""Damaged files of every format are read or refused in our own words; so are those that were made to do harm."""

import importlib.util
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import BACKENDS

if set(BACKENDS) < {"torch", "chainer", "jax"} or importlib.util.find_spec("h5py") is None:
    pytest.skip("reads the files of every framework", allow_module_level=True)

from tests.fuzz.children import KNOWN
from tests.fuzz.formats import FORMATS
from tests.fuzz.hostile import HOSTILE
from tests.fuzz.planted import PLANTED

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("fuzz")


@cache
def found(*arguments):
    """What the command finds in all formats, by format."""
    command = [sys.executable, "-m", "tests.fuzz", "--json", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("format", FORMATS)
def test_damaged_files_are_read_as_the_framework_reads_them_or_refused(format):
    assert [problem for problem in found("--count", "300")[format] if problem != KNOWN] == []


@pytest.mark.parametrize("format", sorted({format for format, _ in HOSTILE}))
def test_files_that_were_made_to_do_harm_are_refused(format):
    assert found("--crafted")["hostile"][format] == []


@pytest.mark.parametrize("fault", PLANTED)
def test_the_fuzzer_finds_a_fault_of_every_kind(fault):
    (problem,) = found("--crafted")["planted"][fault] or [""]
    assert problem.startswith(PLANTED[fault][1])
    assert bool(problem) == bool(PLANTED[fault][1])
