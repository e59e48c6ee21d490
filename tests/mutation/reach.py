"""Which tests reach a mutant, and what each test costs: one run of a marked copy of the project.

In the copy a call before each mutant's statement writes the mutant's number beside the test that
pytest names in the environment, so child processes are heard too.
"""

import ast
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.mutation.places import marked_statements

#: A place that so few tests reach may be reached once and what it made kept, so the other tests of
#: these files are asked, too.
FEW = 10
RECORDS = "MUTATION_REACH"  # names the folder in which the marked copy writes
MARK = """
import builtins, os
def _reached(number, _seen=set()):
    key = number, os.environ.get("PYTEST_CURRENT_TEST", "")
    if key not in _seen and "{records}" in os.environ:
        _seen.add(key)
        with open(os.path.join(os.environ["{records}"], "reached"), "a") as file:
            file.write("\\t".join(map(str, key)).replace("\\n", " ") + "\\n")
builtins.__reached__ = _reached
"""


def mark(root: Path, package: str, mutants: Sequence[Mapping[str, Any]]) -> None:
    """Put the calls into the sources of a copy, and the plugin that writes what tests cost."""
    shutil.copy(Path(__file__).with_name("costs.py"), root / "mutation_costs.py")
    by_file: dict[str, list[int]] = defaultdict(list, {f"{package}/__init__.py": []})
    for number, mutant in enumerate(mutants):
        by_file[mutant["file"]].append(number)
    for file, numbers in by_file.items():
        tree = ast.parse((root / file).read_text())
        calls: dict[ast.stmt, list[ast.stmt]] = defaultdict(list)
        for number in numbers:
            for statement in marked_statements(tree, mutants[number]["line"]):
                calls[statement] += ast.parse(f"__reached__({number})").body
        _insert(tree, calls)
        if file == f"{package}/__init__.py":
            begin = sum(_comes_first(statement) for statement in tree.body)
            tree.body[begin:begin] = ast.parse(MARK.format(records=RECORDS)).body
        (root / file).write_text(ast.unparse(ast.fix_missing_locations(tree)))


def _insert(tree: ast.AST, calls: Mapping[ast.stmt, list[ast.stmt]]) -> None:
    for node in list(ast.walk(tree)):
        for field, value in ast.iter_fields(node):
            if isinstance(value, list) and any(one in calls for one in value):
                setattr(
                    node,
                    field,
                    [s for one in value for s in (*calls.get(one, ()), one)],
                )


def _comes_first(statement: ast.stmt) -> bool:
    """Whether it is a docstring or an import from the future."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


@dataclass(frozen=True)
class Test:
    """A test to run.

    Attributes:
        cost: Seconds that it takes as a rule.
    """

    __test__ = False  # to pytest

    name: str
    cost: float

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Planner:
    """Makes the lists of tests.

    Args:
        records: The folder in which the marked copy wrote.
    """

    def __init__(self, records: Path) -> None:
        self.costs: Counter[str] = Counter()
        for line in (records / "costs").read_text().splitlines():
            test, seconds = json.loads(line)
            self.costs[_without_group(test)] += seconds
        self.tests = set(self.costs)
        self.of_file: dict[str, set[str]] = defaultdict(set)
        for test in self.tests:
            self.of_file[test.partition("::")[0]].add(test)
        self.reaching: dict[int, dict[str, bool]] = defaultdict(dict)
        self.breadth: Counter[str] = Counter()
        for line in set((records / "reached").read_text().splitlines()):
            number, _, context = line.partition("\t")
            name, _, phase = context.rpartition(" ")
            if (test := _without_group(name)) in self.tests:
                found = self.reaching[int(number)]
                found[test] = found.get(test, False) or phase == "(setup)"
                self.breadth[test] += 1

    def plan(self, number: int, file: str) -> tuple[list[Test], int]:
        """The tests for a mutant in the order of running, and how many of them are known to reach
        it."""
        reaching = self.reaching[number] or self._of_folder(file)
        found = {test: early for test, early in reaching.items() if test in self.tests}
        near: set[str] = set()
        if len(found) < FEW or any(found.values()):
            near = {
                other
                for test in found
                for other in self.of_file[test.partition("::")[0]]
            }
            near = (near & self.tests) - found.keys()
        ranked = sorted(
            {*found, *near}, key=lambda test: self._rank(test, test in near)
        )
        return [Test(name, self.costs[name]) for name in ranked], len(found)

    def leave_out(self, test: str) -> None:
        """Plan without a test from now on."""
        self.tests.discard(test)

    def _rank(self, test: str, near: bool) -> tuple[bool, float]:
        """First what is cheap and runs little else, since that is what watches this."""
        return near, max(self.costs[test], 0.01) * max(self.breadth[test], 1)

    def _of_folder(self, file: str) -> dict[str, bool]:
        """The tests of the folder that is named like that of a file without functions."""
        folder = "/".join(["tests", *file.split("/")[1:2]]) + "/"
        return {test: False for test in self.tests if test.startswith(folder)}


def _without_group(test: str) -> str:
    """The name of a test, to which pytest-xdist adds "@GROUP".

    Example:
        >>> _without_group("tests/test_a.py::test_b[3]@slow")
        'tests/test_a.py::test_b[3]'
    """
    name, at, group = test.rpartition("@")
    return name if at and "]" not in group and "/" not in group else test
