"""Mutants of a small package, of which it is known what its tests see."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.places import left_out, marked_statements
from tests.mutation.sampling import difference, mutated, positions, sample

ROOT = Path(__file__).parents[2]

PACKAGE = '''\
"""Says 1 + 1."""
import functools
import subprocess
import sys

STEP = 2


def double(x: int | None) -> int | None:
    if x is None:
        raise ValueError(f"nothing to double, {1 + 1}")
    return x * STEP


def count(n):
    while n > 0:
        n -= 1
    return n


def in_a_child():
    return subprocess.run([sys.executable, "-m", "small.child"], check=False).returncode


def prepared():
    return 3 + 4


def forgotten():
    return 5 + 6


@functools.lru_cache
def remembered():
    return 7 + 8
'''
CHILD = """\
import sys

if __name__ == "__main__":
    sys.exit(30 + 12)
"""
TESTS = """\
import functools

import pytest
import small


@pytest.mark.parametrize("x", [0, 2])
def test_double(x):
    assert small.double(x) == {0: 0, 2: 4}[x]


def test_sign():
    assert small.double(-1) < 0


def test_count():
    assert small.count(3) == 0


def test_in_a_child():
    assert small.in_a_child() == 42


@pytest.fixture(scope="module")
def made():
    return small.prepared()


def test_that_comes_first(made):
    assert made


def test_of_the_same(made):
    assert made == 7


@functools.cache
def expected():
    return small.remembered()


def test_that_fills_caches():
    assert expected()


def test_that_finds_them_filled():
    assert expected() == 15


def test_that_always_fails_elsewhere(request):
    small.forgotten()
    assert (request.config.rootpath / ".here").exists()
"""
#: Where the change is, what it is, and what becomes of it.
CASES = {
    "x * STEP": ("__init__.py", "ReplaceBinaryOperator_Mul_Add", 0, "killed", "failed"),
    "STEP = 2": ("__init__.py", "NumberReplacer", 0, "killed", "failed"),
    "n > 0": ("__init__.py", "ReplaceComparisonOperator_Gt_NotEq", 0, "survived", None),
    "n -= 1": ("__init__.py", "NumberReplacer", -1, "killed", "unfinished"),
    "30 + 12": ("child.py", "ReplaceBinaryOperator_Add_Sub", 0, "killed", "failed"),
    "3 + 4": ("__init__.py", "ReplaceBinaryOperator_Add_Sub", 0, "killed", "failed"),
    "7 + 8": ("__init__.py", "ReplaceBinaryOperator_Add_Sub", 0, "killed", "failed"),
    "5 + 6": (
        "__init__.py",
        "ReplaceBinaryOperator_Add_Sub",
        0,
        "reached by no test",
        None,
    ),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The folder of the small package, and its tests."""
    root = tmp_path_factory.mktemp("mutation")
    for name, text in {
        "small/__init__.py": PACKAGE,
        "small/child.py": CHILD,
        "tests/test_small.py": TESTS,
        ".here": "",
        "pytest.ini": "[pytest]\ntestpaths = tests\npythonpath = .\n",
    }.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def command(root, *arguments):
    files = ["--root", root, "--package", "small", "--folder", root / "made"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mutation",
            *map(str, files),
            *map(str, arguments),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def found(code, text, operator):
    """The numbers of the occurrences of an operator in the line with that text, and the line."""
    line = next(
        number for number, said in enumerate(code.splitlines(), 1) if text in said
    )
    places = positions(code)
    return line, sorted(
        n
        for place in places
        if place[0] == line
        for name, n in places[place]
        if name == operator
    )


@pytest.fixture(scope="module")
def results(project):
    mutants = {}
    for text, (file, operator, which, *_) in CASES.items():
        code = (project / "small" / file).read_text()
        line, occurrences = found(code, text, operator)
        mutants[text] = {
            "file": f"small/{file}",
            "line": line,
            "column": 0,
            "operator": operator,
            "occurrence": occurrences[which],
            "before": text,
            "after": "",
        }
    (project / "made").mkdir()
    (project / "made" / "mutants.jsonl").write_text(
        "".join(json.dumps(mutant) + "\n" for mutant in mutants.values())
    )
    command(project, "reach")
    options = ["--budget", 300, "--patience", 5]
    said = command(project, "run", *options)
    again = command(project, "run", *options)
    lines = (project / "made" / "results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return rows, said, again


@pytest.mark.parametrize("text", CASES)
def test_a_mutant_is_killed_by_what_sees_it(results, text):
    row = next(row for row in results[0] if row["before"] == text)
    assert (row["result"], row.get("how")) == CASES[text][3:], row


def test_what_is_kept_in_a_cache_counts_for_each_test_that_finds_it(results):
    assert [row["reached"] for row in results[0] if row["before"] == "7 + 8"] == [2]


def test_a_test_that_fails_without_a_change_kills_nothing(results):
    (row,) = [row for row in results[0] if row["before"] == "5 + 6"]
    assert "test" not in row and row["reached"] == 0


def test_what_was_run_is_not_run_again(results):
    _, said, again = results
    assert again == "" and said.count("small/") >= len(CASES) - 1


def test_the_report_counts_by_folder(project, results):
    said = command(project, "report")
    assert "| small/*.py | 8 | 6 | 1 | 1 |" in said, said
    assert "- small/__init__.py:30 `5 + 6`" in said


def test_a_sample_depends_on_its_seed_alone(project):
    drawn = sample(project, "small", 20, 0)
    assert drawn == sample(project, "small", 20, 0) != sample(project, "small", 20, 1)
    assert len({json.dumps(mutant) for mutant in drawn}) == len(drawn)
    assert {mutant["file"] for mutant in drawn} == {
        "small/__init__.py",
        "small/child.py",
    }


def test_each_of_a_sample_is_another_program(project):
    for mutant in sample(project, "small", 20, 0):
        code = (project / mutant["file"]).read_text()
        other = mutated(code, mutant["operator"], mutant["occurrence"])
        assert difference(code, other) == (mutant["before"], mutant["after"])
        assert code.splitlines()[mutant["line"] - 1].strip() in mutant["before"]


def test_an_exception_of_several_by_its_modules_name_is_no_mutant():
    code = "try:\n    a\nexcept (b.C, D):\n    d\n"
    assert mutated(code, "ExceptionReplacer", 0) == code
    assert "(b.C, CosmicRayTestingException)" in mutated(code, "ExceptionReplacer", 1)


def test_annotations_and_messages_are_left_out():
    lines_of = {place[0] for place in positions(PACKAGE)}
    numbered = dict(enumerate(PACKAGE.splitlines(), 1))
    said = [numbered[line] for line in sorted(lines_of)]
    assert not [line for line in said if "raise" in line or "def " in line], said
    assert [line for line in said if "is None" in line]
    assert left_out(ast.parse("x: int = 1")) == [((1, 2), (1, 6))]


def test_the_statements_that_are_marked():
    tree = ast.parse(
        "A = 1\n\n@f(\n  2)\ndef g(\n  a=3,\n):\n"
        "  if (\n    a):\n    return 4\n\nclass C:\n  B = 5\n"
    )
    of = {line: marked_statements(tree, line) for line in (1, 4, 6, 9, 10, 13)}
    assert {
        line: [found.lineno for found in statements] for line, statements in of.items()
    } == {
        1: [8],
        4: [8],
        6: [8],
        9: [8],
        10: [10],
        13: [8],
    }
