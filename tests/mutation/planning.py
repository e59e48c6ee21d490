"""Which tests may notice a change, in which order: by what coverage recorded, and by what a test
takes."""

import ast
import re
import sqlite3
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coverage.numbits import nums_to_numbits, register_sqlite_functions

from tests.mutation.places import lines

#: A line of so few tests may be reached once and what it made kept, so the other tests of these
#: files are asked, too.
FEW = 10
UNKNOWN = 1.0  # seconds of a test that was never measured
#: "FILE::TEST|run" is pytest-cov's name of what runs, "FILE::TEST (call)" pytest's own, which child
#: processes have. pytest-xdist adds "@GROUP" to the name of a test.
CONTEXT = re.compile(
    r"(?P<test>.+?)(@[^\]@|]*)?(\||\s\()(?P<phase>setup|run|call|teardown)\)?", re.DOTALL
)


@dataclass(frozen=True)
class Test:
    """A test to run.

    Attributes:
        cost: Seconds that it takes as a rule.
    """

    __test__ = False  # to pytest

    name: str
    cost: float = UNKNOWN

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Planner:
    """Makes the lists of tests.

    Args:
        root: The folder of the project.
        database: What coverage recorded.
        durations: What ``pytest --junitxml`` wrote.
        tests: The names of all tests.
    """

    def __init__(
        self, root: Path, database: Path, durations: Path | None, tests: Iterable[str]
    ) -> None:
        self.root, self.tests = root, set(tests)
        self.costs = _durations(durations) if durations else {}
        self.of_file: dict[str, list[str]] = defaultdict(list)
        for test in self.tests:
            self.of_file[test.partition("::")[0]].append(test)
        self.database = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        register_sqlite_functions(self.database)
        self.files = {name: number for number, name in self._query("select id, path from file")}
        self.contexts = dict(self._query("select id, context from context"))
        self.breadth: dict[str, int] = defaultdict(int)
        for context, count in self._query(
            "select context_id, count(*) from line_bits group by context_id"
        ):
            self.breadth[_test(self.contexts[context])[0]] += count

    def plan(self, mutant: Mapping[str, Any]) -> tuple[list[Test], int]:
        """The tests for a mutant in the order of running, and how many of them are known to reach
        it."""
        asked = lines(ast.parse((self.root / mutant["file"]).read_text()), mutant["line"])
        found = self._reaching(mutant["file"], asked.own)
        if not found and asked.on_import:
            found = self._reaching(mutant["file"], asked.module) or self._of_folder(mutant["file"])
        near = set()
        if len(found) < FEW or any(found.values()):
            near = {
                other for test in found for other in self.of_file[test.partition("::")[0]]
            } & self.tests
            near -= found.keys()
        ranked = sorted(
            (test for test in {*found, *near}), key=lambda test: self._rank(test, test in near)
        )
        return [self.test(name) for name in ranked], len(found)

    def test(self, name: str) -> Test:
        """A test with what it costs."""
        return Test(name, self.costs.get(_dotted(name), UNKNOWN))

    def _rank(self, test: str, near: bool) -> tuple[bool, float]:
        """First what is cheap and runs little else, since that is what watches this."""
        cost = max(self.test(test).cost, 0.01) * max(self.breadth[test], 1)
        return near, cost

    def _reaching(self, file: str, numbers: Iterable[int]) -> dict[str, bool]:
        """The tests that run one of these lines, and whether it was while something was set up,
        perhaps for others."""
        ids = [number for path, number in self.files.items() if f"/{path}".endswith(f"/{file}")]
        found: dict[str, bool] = {}
        question = (
            "select distinct context_id from line_bits where file_id in "
            f"({','.join('?' * len(ids))}) and numbits_any_intersection(numbits, ?)"
        )
        for (context,) in self._query(question, (*ids, nums_to_numbits(numbers))):
            test, phase = _test(self.contexts[context])
            if test in self.tests:
                found[test] = found.get(test, False) or phase == "setup"
        return found

    def _of_folder(self, file: str) -> dict[str, bool]:
        """The tests of the folder that is named like that of the file."""
        folder = "/".join(["tests", *file.split("/")[1:2]]) + "/"
        return {test: False for test in self.tests if test.startswith(folder)}

    def _query(self, question: str, values: tuple = ()) -> list[tuple]:
        with closing(self.database.execute(question, values)) as rows:
            return rows.fetchall()


def _test(context: str) -> tuple[str, str]:
    """The name of the test, and what of it was under way.

    Example:
        >>> _test("tests/test_a.py::test_b[x (y)] (setup)")
        ('tests/test_a.py::test_b[x (y)]', 'setup')
        >>> _test("tests/test_a.py::test_b[3]@slow|run")
        ('tests/test_a.py::test_b[3]', 'run')
    """
    match = CONTEXT.fullmatch(context)
    return (match["test"], match["phase"]) if match else (context, "")


def _durations(path: Path) -> dict[str, float]:
    """Seconds of each test by `_dotted` name."""
    return {
        f"{case.get('classname')}.{case.get('name').partition('@')[0]}": float(case.get("time"))
        for case in ElementTree.parse(path).iter("testcase")
    }


def _dotted(test: str) -> str:
    """The name of a test as JUnit's files have it.

    Example:
        >>> _dotted("tests/test_a.py::test_b[x/y]")
        'tests.test_a.test_b[x/y]'
    """
    file, _, rest = test.partition("::")
    return f"{file.removesuffix('.py').replace('/', '.')}.{rest.replace('::', '.')}"
