"""Which tests may notice a change, in which order: by what coverage recorded, by suite, and by what
a test costs."""

import ast
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coverage.numbits import nums_to_numbits, register_sqlite_functions

from tests import measuring, suites
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
        cost: Seconds of the processor that it takes as a rule.
        seconds: The same on the clock.
    """

    __test__ = False  # to pytest

    name: str
    cost: float = UNKNOWN
    seconds: float = UNKNOWN

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


class Planner:
    """Makes the lists of tests.

    Args:
        root: The folder of the project.
        database: What coverage recorded.
        durations: What tests/measuring.py wrote.
        suite_of: The smallest suite that has the test, by its name.
    """

    def __init__(
        self, root: Path, database: Path, durations: Path | None, suite_of: dict[str, str]
    ) -> None:
        self.root, self.suite_of = root, suite_of
        rows = measuring.read(durations) if durations else []
        self.costs = {(row["test"], row["backend"]): row for row in rows}
        self.of_file: dict[str, list[str]] = defaultdict(list)
        for test in suite_of:
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
            } & self.suite_of.keys()
            near -= found.keys()
        ranked = sorted(
            (test for test in {*found, *near}), key=lambda test: self._rank(test, test in near)
        )
        return [self.test(name) for name in ranked], len(found)

    def test(self, name: str) -> Test:
        """A test with what it costs."""
        row = self.costs.get(measuring.named(name))
        return Test(name, measuring.case(row), row["seconds"] / row["cases"]) if row else Test(name)

    def _rank(self, test: str, near: bool) -> tuple[int, bool, float]:
        """First the smallest suite; there what is cheap and runs little else, since that is what
        watches this."""
        cost = max(self.test(test).cost, 0.01) * max(self.breadth[test], 1)
        return suites.SUITES.index(self.suite_of[test]), near, cost

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
            if test in self.suite_of:
                found[test] = found.get(test, False) or phase == "setup"
        return found

    def _of_folder(self, file: str) -> dict[str, bool]:
        """The tests of the folder that is named like that of the file."""
        folder = "/".join(["tests", *file.split("/")[1:2]]) + "/"
        return {test: False for test in self.suite_of if test.startswith(folder)}

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
