"""Runs tests in forked processes, each on a copy of the project; what is imported beforehand is
imported once.

A fork says on a pipe what it is at, and is killed when that takes too long.
"""

import gc
import json
import os
import resource
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.mutation.reach import Test

OPTIONS = [
    "-q",
    "-p",
    "no:cacheprovider",
    "--assert=plain",
    "-o",
    "addopts=--doctest-modules --import-mode=importlib",
]
MEMORY = 10 << 30  # bytes of a process
START = 180.0  # seconds to start pytest and read the files of tests
TIMES = 10  # a test may take that many times what it takes as a rule
STAGES, FILE = (
    4,
    0.3,
)  # each stage of the tests is that many times the one before; seconds to read a file of tests
LEFT = shutil.ignore_patterns(".*", "build", "_build", "_generated", "*.egg-info")


@dataclass
class Job:
    """Tests to run on one copy, and what came of it.

    Attributes:
        tests: In this order, but those of one file together.
        budget: Seconds of the processor after which no further test is begun.
        patience: Seconds that a test may take, besides ten times what it takes as a rule.
        stop: Whether the first failure ends it.
        change: Of a file, its other source.
        forget: The first parts of the names of modules that the fork imports anew.
        failed: Tests that failed, with how: failed, did not end in time, or the process died.
        ran: How many tests were begun.
        cost: Seconds of the processor.
    """

    about: Any
    tests: Sequence[Test]
    budget: float
    patience: float
    stop: bool = True
    change: Mapping[str, str] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)
    ran: int = 0
    cost: float = 0.0


class Copy:
    """A copy of the project in which a file can be changed."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.temporary = (
            root,
            folder / "project",
            folder / "temporary",
        )
        shutil.copytree(root, self.folder, ignore=LEFT, symlinks=True)
        self.changes = 0

    def change(self, changes: Mapping[str, str]) -> None:
        """Write other sources; compiled files are taken by the time of the source, so each has one
        of its own."""
        for name, code in changes.items():
            self.changes += 1
            (self.folder / name).write_text(code)
            os.utime(self.folder / name, (10**9 + self.changes,) * 2)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()

    def restore(self, changes: Iterable[str]) -> None:
        for name in changes:
            shutil.copy2(self.root / name, self.folder / name)
        shutil.rmtree(self.folder / ".hypothesis", ignore_errors=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


class Fork:
    """A process that does a job on a copy."""

    def __init__(self, job: Job, copy: Copy) -> None:
        self.job, self.copy, self.said = job, copy, b""
        self.seconds = {test.name: test.cost for test in job.tests}
        self.at, self.deadline, self.ended = (
            job.tests[0].name,
            time.monotonic() + START,
            False,
        )
        copy.change(job.change)
        self.reading, writing = os.pipe()
        self.process = _fork(lambda: _work(job, copy, writing))
        os.close(writing)

    def fileno(self) -> int:
        return self.reading

    def hear(self) -> None:
        """Read what the fork says."""
        text = os.read(self.reading, 1 << 16)
        *whole, self.said = (self.said + text).split(b"\n")
        self.ended = not text
        for line in whole:
            word, name = json.loads(line)
            if word == "begin":
                self.at, self.job.ran = name, self.job.ran + 1
                self.deadline = (
                    time.monotonic() + self.job.patience + TIMES * self.seconds[name]
                )
            elif word == "read":
                self.deadline = time.monotonic() + START
            elif word == "end":
                self.at, self.ended = "", True
            else:
                self.job.failed.setdefault(name, word)

    def over(self) -> bool:
        """Whether it has ended, or has to."""
        return self.ended or time.monotonic() > self.deadline

    def close(self) -> None:
        """End it with all its children; a test that it was at has failed."""
        if self.at and not (self.job.failed and self.job.stop):
            self.job.failed[self.at] = "died" if self.ended else "time"
        family = psutil.Process(self.process).children(recursive=True)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        os.killpg(self.process, signal.SIGKILL)
        usage = os.wait4(self.process, 0)[2]
        self.job.cost += usage.ru_utime + usage.ru_stime
        os.close(self.reading)
        self.copy.restore(self.job.change)


def finished(jobs: Iterable[Job], copies: Sequence[Copy]) -> Iterator[Job]:
    """Do the jobs, one on each copy at a time, and give each back when it has ended."""
    idle, busy, jobs = list(copies), [], iter(jobs)
    gc.collect()
    gc.freeze()
    with selectors.DefaultSelector() as selector:
        while True:
            while idle and (job := next(jobs, None)):
                busy.append(Fork(job, idle.pop()))
                selector.register(busy[-1], selectors.EVENT_READ)
            if not busy:
                return
            for key, _ in selector.select(timeout=1.0):
                key.fileobj.hear()
            for fork in [fork for fork in busy if fork.over()]:
                busy.remove(fork)
                selector.unregister(fork)
                fork.close()
                idle.append(fork.copy)
                yield fork.job


def collected(copy: Copy) -> list[str]:
    """The names of all tests of the project."""

    class Plugin:
        def pytest_collection_modifyitems(self, items):
            names = [item.nodeid for item in items]
            (copy.folder / "collected.json").write_text(json.dumps(names))

    def work() -> None:
        _enter(copy)
        pytest.main([*OPTIONS, "--collect-only", "-qq"], plugins=[Plugin()])

    copy.change({})
    os.waitpid(_fork(work), 0)
    return json.loads((copy.folder / "collected.json").read_text())


def _fork(work: Callable[[], None]) -> int:
    process = os.fork()
    if process:
        with suppress(OSError):  # both do it: whoever is first
            os.setpgid(process, process)
        return process
    try:
        os.setpgid(0, 0)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silence, stream)
        work()
    finally:
        os._exit(0)


def _enter(copy: Copy, forget: tuple[str, ...] = ()) -> None:
    """Let everything of the project be imported from the copy, here and in child processes."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    for name in list(sys.modules):
        if name.partition(".")[0] in ("tests", *forget):
            del sys.modules[name]
    sys.meta_path[:] = [
        finder
        for finder in sys.meta_path
        if type(finder).__module__.partition(".")[0] not in forget
    ]
    os.chdir(copy.folder)
    sys.path.insert(0, str(copy.folder))
    os.environ |= {"PYTHONPATH": str(copy.folder), "TMPDIR": str(copy.temporary)}
    os.environ["PYTEST_DEBUG_TEMPROOT"] = str(copy.temporary)


def _work(job: Job, copy: Copy, writing: int) -> None:
    _enter(copy, job.forget)
    with open(writing, "w", buffering=1) as pipe:
        for stage in stages(job.tests):
            run = _Run(stage, job, lambda *words: print(json.dumps(words), file=pipe))
            run.say("read", "")
            options = [*OPTIONS, "-x"] if job.stop else OPTIONS
            code = pytest.main(
                [*options, *dict.fromkeys(test.file for test in stage)], plugins=[run]
            )
            if (
                not run.read
                and not run.failed
                and code != pytest.ExitCode.NO_TESTS_COLLECTED
            ):
                run.fails("import", stage[0].name)  # a conftest.py cannot be imported
            if job.stop and (run.failed or run.spent):
                break
        run.say("end", "")


def stages(tests: Sequence[Test]) -> Iterator[list[Test]]:
    """Parts of growing cost, so that files are not read in vain; in each the tests of a file
    together."""
    stage, cost, most = [], 0.0, 2.0
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


def _spent() -> float:
    times = os.times()
    return sum(times[:4])


class _Run:
    """A pytest plugin: runs the tests of a stage in their order, and tells."""

    def __init__(
        self, stage: Sequence[Test], job: Job, say: Callable[[str, str], None]
    ) -> None:
        self.tests, self.job, self.say = {test.name: test for test in stage}, job, say
        self.failed = self.spent = self.read = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items):
        self.read, order = (
            True,
            {name: number for number, name in enumerate(self.tests)},
        )
        items[:] = sorted(
            (item for item in items if item.nodeid in order),
            key=lambda item: order[item.nodeid],
        )

    def pytest_collectreport(self, report):
        if report.failed:
            file = report.nodeid.partition("::")[0]
            self.fails(
                "import",
                next(
                    (name for name in self.tests if name.startswith(file)),
                    next(iter(self.tests)),
                ),
            )

    def pytest_runtest_logstart(self, nodeid):
        self.say("begin", nodeid)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.fails("failed", report.nodeid)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        result = yield
        if (
            _spent() + (self.tests[nextitem.nodeid].cost if nextitem else 0)
            > self.job.budget
        ):
            self.spent, item.session.shouldstop = True, "the budget is spent"
        return result

    def fails(self, how, name):
        self.failed = True
        self.say(how, name)
