"""The suites of tests/suites.py, on tests of their own: what each runs, and that it says what it
left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("size", [3, 5])
def test_cheap(backend, size):
    pass


def test_dear():
    sum(range(3_000_000))


@pytest.mark.long
@pytest.mark.parametrize("case", range(4))
def test_long(case):
    pass


@pytest.mark.parametrize("case", range(3))
def test_several(case):
    pass


@pytest.mark.every_case
@pytest.mark.parametrize("case", range(3))
def test_whole(case):
    pass


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_compiles(backend):
    pass


@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")
"""
COSTS = """test,backend,cases,seconds,processor,children,xla,tracing,imports,building,memory
test_them.py::test_cheap,jax,2,0.2,0.2,0,0,0,0,0,100
test_them.py::test_cheap,torch,2,0.2,0.2,0,0,0,0,0,100
test_them.py::test_compiles,jax,1,3,3,0,2,0,0,0,100
test_them.py::test_compiles,torch,1,0.1,0.1,0,0,0,0,0,100
test_them.py::test_dear,none,1,60,30,61,0,0,0,0,100
test_them.py::test_several,none,3,0.36,0.36,0,0,0,0,0,100
test_them.py::test_whole,none,3,30,30,0,0,0,0,0,100
test_them.py::test_long,none,4,0.1,0.1,0,0,0,0,0,100
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "test_them.py").write_text(TESTS)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest]\nmarkers = ["long: x", "gpu: x", "every_case: x"]\n'
    )
    return tmp_path


def run(project, *arguments):
    """What such a run prints."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.measuring",
        "-p",
        "tests.suites",
        "-v",
        *arguments,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def passed(said):
    lines = [line for line in said.splitlines() if "PASSED" in line]
    return sorted(
        word.partition("::")[2] for line in lines for word in line.split() if "::" in word
    )


CHEAP = ["test_cheap[3-jax]", "test_cheap[3-torch]", "test_cheap[5-jax]", "test_cheap[5-torch]"]


def test_everything_is_run_when_no_suite_is_named(project):
    said = run(project)
    assert len(passed(said)) == 17
    assert "the suite left out nothing" in said
    assert "tests that need a GPU: 1 skipped, as this machine has none" in said


@pytest.mark.parametrize("workers", [pytest.param([], marks=pytest.mark.long), ["-n", "2"]])
def test_the_short_suite_leaves_out_what_is_marked(project, workers):
    said = run(project, "--suite", "short", *workers)
    whole = [f"test_{name}[{case}]" for name in ("several", "whole") for case in range(3)]
    assert passed(said) == [
        *CHEAP,
        "test_compiles[jax]",
        "test_compiles[torch]",
        "test_dear",
        *whole,
    ]
    assert "left out 4 tests (test_them.py 4)" in said
    assert "'make test-all' runs them too" in said


def test_the_short_suite_runs_as_many_cases_of_a_dear_test_as_fit(project):
    (project / "tests/measured.csv").write_text(COSTS)
    said = run(project, "--suite", "short")
    whole = [f"test_whole[{case}]" for case in range(3)]
    assert passed(said) == [
        *CHEAP,
        "test_compiles[torch]",
        "test_dear",
        "test_several[0]",
        "test_several[1]",
        *whole,
    ]
    assert "left out 6 tests (test_them.py 6)" in said


def test_the_quick_suite_takes_one_case_of_what_was_cheap(project):
    (project / "tests/measured.csv").write_text(COSTS)
    (project / "test_new.py").write_text("def test_never_measured():\n    pass\n")
    (project / "test_dropped.py").write_text("raise ImportError('of no use to the quick suite')\n")
    with (project / "tests/measured.csv").open("a") as file:
        file.write("test_dropped.py::test_dear,none,1,60,99,0,0,0,0,0,100\n")
    said = run(project, "--suite", "quick")
    cheapest = ["test_cheap[3-jax]", "test_cheap[3-torch]", "test_compiles[torch]"]
    assert passed(said) == [*cheapest, "test_never_measured", "test_several[0]", "test_whole[0]"]
    assert "left out 12 tests (test_them.py 12)" in said
    assert "'make test' runs more of them, 'make test-all' all" in said


@pytest.mark.long
def test_a_run_is_measured_and_read_by_the_quick_suite(project):
    """The file that a run writes has the cases, the time that a test takes, and serves the quick
    suite."""
    run(project, "--measured", "tests/measured.csv", "-n", "2")
    text = (project / "tests/measured.csv").read_text()
    rows = {tuple(line.split(",")[:3]): line.split(",") for line in text.splitlines()[1:]}
    assert {key[1:] for key in rows if key[0].endswith("test_cheap")} == {
        ("jax", "2"),
        ("torch", "2"),
    }
    dear = rows["test_them.py::test_dear", "none", "1"]
    assert 0.01 < float(dear[4]) < 10
    assert "test_dear" in passed(run(project, "--suite", "quick"))


def test_what_the_quick_suite_costs_itself_decides_what_it_takes_the_next_time(project):
    """What is made once for many tests is dear where one of them runs alone."""
    costs = project / "tests/measured.csv"
    costs.write_text(COSTS)
    run(project, "--suite", "quick", "--measured", str(costs))
    header, *lines = costs.read_text().splitlines()
    assert header.endswith(",memory,quick")
    assert len(lines) == len(COSTS.splitlines()) - 1
    before = [line.split(",")[:2] for line in COSTS.splitlines()[1:]]
    assert sorted(line.split(",")[:2] for line in lines) == sorted(before)
    first, *others = lines
    dear = [line.rpartition(",")[0] + ",99" for line in others]
    costs.write_text("\n".join([header, first, *dear]))
    assert passed(run(project, "--suite", "quick")) == ["test_cheap[3-jax]"]
