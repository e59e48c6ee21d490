"""Runs tests on a copy of the project, the cheapest first, until one fails."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.reach import Test

OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "-p", "mutation_selection"]
OPTIONS += ["--assert=plain", "-o", "addopts=--doctest-modules --import-mode=importlib"]
MEMORY = 10 << 30  # bytes of a process
START = 180.0  # seconds to start pytest and read the files of tests
TIMES = 10  # a test may take that many times what it takes as a rule
FIRST, STAGES = (
    5.0,
    6,
)  # seconds of the first tests; each stage is that many times larger
FILE = 0.3  # seconds to read a file of tests
LEFT = shutil.ignore_patterns(".*", "build", "_build", "_generated", "*.egg-info")


@dataclass
class Outcome:
    """What became of some tests.

    Attributes:
        test: The first that failed, or none.
        how: ``"failed"``, ``"import"`` or ``"unfinished"``: not in time, or the process died.
        ran: How many were begun.
        seconds: How long that took.
    """

    test: str = ""
    how: str = ""
    ran: int = 0
    seconds: float = 0.0


class Copy:
    """A copy of the project in which a file can be changed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder / "project"
        shutil.copytree(root, self.folder, ignore=LEFT, symlinks=True)
        plugin = Path(__file__).with_name("selection.py")
        shutil.copy(plugin, self.folder / "mutation_selection.py")
        self.changes = 0

    def change(self, name: str, code: str) -> None:
        """Write another source; compiled files are taken by the time of the source, so each has
        one of its own."""
        self.changes += 1
        (self.folder / name).write_text(code)
        os.utime(self.folder / name, (10**9 + self.changes,) * 2)

    def restore(self, name: str) -> None:
        """Take the change of a file back."""
        shutil.copy2(self.root / name, self.folder / name)

    def run(self, tests: Sequence[Test], patience: float) -> Outcome:
        """Run tests until one fails, in stages of growing cost.

        Args:
            patience: Seconds that a test may take, besides ten times what it takes as a rule.
        """
        total = Outcome()
        for stage in stages(tests):
            begin = time.monotonic()
            found = self._run_stage(stage, patience)
            total = Outcome(
                found.test,
                found.how,
                total.ran + found.ran,
                total.seconds + time.monotonic() - begin,
            )
            if found.how:
                break
        return total

    def _run_stage(self, stage: Sequence[Test], patience: float) -> Outcome:
        made = self.folder.parent / "run"
        shutil.rmtree(made, ignore_errors=True)
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        made.mkdir()
        limits = {test.name: patience + TIMES * test.cost for test in stage}
        (made / "tests.json").write_text(json.dumps(limits))
        (made / "noted.jsonl").touch()
        variables = {"PYTHONPATH": str(self.folder), "MUTATION_RUN": str(made)}
        variables |= {"TMPDIR": str(made), "PYTEST_DEBUG_TEMPROOT": str(made)}
        files = dict.fromkeys(test.file for test in stage)
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *OPTIONS, *files],
            cwd=self.folder,
            env={**os.environ, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_limit_memory,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(START + sum(limits.values()))
        with suppress(ProcessLookupError):  # what it started may still be there
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return _outcome(stage, (made / "noted.jsonl").read_text())


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))


def _outcome(stage: Sequence[Test], noted: str) -> Outcome:
    lines = [json.loads(line) for line in noted.splitlines()]
    begun = [name for word, name in lines if word == "begin"]
    for word, name in lines:
        if word in ("failed", "import"):
            return Outcome(name, word, len(begun))
    if begun and ["end", begun[-1]] not in lines:
        return Outcome(begun[-1], "unfinished", len(begun))
    if ["collected", ""] not in lines:  # a conftest.py cannot be imported
        return Outcome(stage[0].name, "import")
    return Outcome(ran=len(begun))


def stages(tests: Sequence[Test]) -> Iterator[list[Test]]:
    """Parts of growing cost, so that files are not read in vain; in each the tests of a file
    together."""
    stage, cost, most = [], 0.0, FIRST
    for test in tests:
        if stage and cost > most:
            yield _by_file(stage)
            stage, cost, most = [], 0.0, most * STAGES
        cost += test.cost + FILE * all(test.file != other.file for other in stage)
        stage.append(test)
    if stage:
        yield _by_file(stage)


def _by_file(tests: Sequence[Test]) -> list[Test]:
    order = list(dict.fromkeys(test.file for test in tests))
    return sorted(tests, key=lambda test: order.index(test.file))
