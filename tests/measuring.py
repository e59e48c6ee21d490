"""What each test costs, and why: ``make measure`` writes it into a file, ``python -m
tests.measuring FILE`` reads it.

A pytest plugin (``-p tests.measuring --measured FILE``). Of every test function, on every backend,
one line: how many cases there are, and their seconds in total. Times of the processor are those of
the test's own process and of the child processes that it waited for; they hardly depend on what
else the machine does. A run of the quick suite changes one column alone: what one case costs there,
where fewer tests share what is made and compiled once.
"""

import csv
import importlib._bootstrap
import os
import re
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

#: What is summed up over the cases of a test; `memory` (MB of the process afterwards) is the
#: largest instead.
SUMS = ("cases", "seconds", "processor", "children", "xla", "tracing", "imports", "building")
COLUMNS = ("test", "backend", *SUMS, "memory", "quick")
XLA = (
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)
TRACING = "/jax/core/compile/jaxpr_trace_duration"

spent: Counter = Counter()


def pytest_addoption(parser):
    parser.addoption("--measured", help="the file that takes what each test costs")


def pytest_configure(config):
    if config.getoption("--measured"):
        config.pluginmanager.register(Measuring(), "deliralike-measuring")
        if not hasattr(config, "workerinput"):
            writing = WritingQuick if config.getoption("--suite", None) == "quick" else Writing
            config.pluginmanager.register(
                writing(config.getoption("--measured")), "deliralike-writing"
            )


class Measuring:
    """In the process that runs the tests: what was spent between the start of a test and the end of
    its teardown."""

    def __init__(self):
        importlib._bootstrap._find_and_load = timed("imports", importlib._bootstrap._find_and_load)
        from deliralike import zoo

        zoo.build = timed("building", zoo.build)
        self.listening = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item):
        self.begin = self.now()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        if call.when == "teardown":
            costs = self.now()
            costs.subtract(self.begin)
            item.user_properties.append(("costs", {"cases": 1, **costs, "memory": memory()}))
        return (yield)

    def now(self):
        if "jax" in sys.modules and not self.listening:
            self.listen()
        times = os.times()
        now = Counter(spent)
        now.update(
            seconds=time.perf_counter(),
            processor=times.user + times.system,
            children=times.children_user + times.children_system,
        )
        return now

    def listen(self):
        monitoring = getattr(sys.modules["jax"], "monitoring", None)
        if monitoring is None:  # JAX is half imported
            return
        self.listening = True
        monitoring.register_event_duration_secs_listener(heard)


class Writing:
    """In the process that sees all reports: their costs by test and backend, into the file at the
    end."""

    def __init__(self, path):
        self.path, self.rows = Path(path), defaultdict(Counter)

    def pytest_runtest_logreport(self, report):
        costs = dict(report.user_properties).get("costs")
        if costs and report.when == "teardown":
            row = self.rows[named(report.nodeid)]
            largest = max(row.pop("memory", 0), costs.pop("memory"))
            row.update(costs)
            row["memory"] = largest

    def pytest_sessionfinish(self):
        before = rows_of(self.path)
        for key, row in self.rows.items():
            row["quick"] = before.get(key, {}).get("quick", 0.0)
        write(self.path, self.rows)


class WritingQuick(Writing):
    """The same for a run of the quick suite, into the column of that name."""

    def pytest_sessionfinish(self):
        rows = rows_of(self.path)
        for key in self.rows.keys() & rows.keys():
            rows[key]["quick"] = case(self.rows[key])
        write(self.path, rows)


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for key in sorted(rows):
            row = rows[key]
            seconds = [f"{row[name]:.2f}" for name in SUMS[1:]]
            writer.writerow(
                [
                    *key,
                    round(row["cases"]),
                    *seconds,
                    round(row["memory"]),
                    f"{row.get('quick', 0.0):.2f}",
                ]
            )


def case(row):
    """What one case of a test costs, in seconds of the processor."""
    return (row["processor"] + row["children"]) / row["cases"]


def timed(name, function):
    """The function, its outermost calls timed under that name."""
    inside = False

    def call(*args, **kwargs):
        nonlocal inside
        if inside:
            return function(*args, **kwargs)
        inside, begin = True, time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            inside = False
            spent[name] += time.perf_counter() - begin

    return call


def heard(event, seconds, **_):
    """JAX tells what it traced, lowered and compiled."""
    if event in XLA:
        spent["xla"] += seconds
    elif event == TRACING:
        spent["tracing"] += seconds


def memory():
    """The process's resident memory, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def named(nodeid):
    """A test without its parameters and the group that pytest-xdist adds, and the backend among the
    parameters.

    Example:
        >>> named("tests/nn/test_pooling.py::test_odd[jax-3]")
        ('tests/nn/test_pooling.py::test_odd', 'jax')
        >>> named("tests/fuzz/test_fuzz.py::test_files@fuzz")
        ('tests/fuzz/test_fuzz.py::test_files', 'none')
    """
    test, parameters = re.fullmatch(r"([^[@]*)(.*)", nodeid, re.DOTALL).groups()
    found = set(re.findall(r"torch|chainer|jax", parameters))
    return test, found.pop() if len(found) == 1 else "several" if found else "none"


def read(path):
    """The rows of a file, numbers as numbers."""
    with Path(path).open(newline="") as file:
        return [
            {key: text if key in COLUMNS[:2] else float(text) for key, text in row.items()}
            for row in csv.DictReader(file)
        ]


def rows_of(path):
    """The rows of a file, if there is one, by test and backend."""
    rows = read(path) if path.exists() else []
    return {(row["test"], row["backend"]): row for row in rows}


def folder(row):
    return "/".join(row["test"].split("::")[0].split("/")[:2])


def table(rows, title, key):
    """Sums by whatever `key` gives for a row, the dearest first, as a table of Markdown."""
    sums = defaultdict(Counter)
    for row in rows:
        for name in (key(row), "**all**"):
            sums[name].update({column: row[column] for column in SUMS})
    lines = [f"| {title} | {' | '.join(SUMS)} |", f"| :-- |{' --: |' * len(SUMS)}"]
    for name, total in sorted(
        sums.items(), key=lambda entry: -entry[1]["processor"] - entry[1]["children"]
    ):
        lines.append(f"| {name} | {' | '.join(f'{total[column]:,.0f}' for column in SUMS)} |")
    return "\n".join(lines)


def main(path, count="30"):
    rows = read(path)
    if not rows:
        sys.exit(f"{path} has no tests")
    print(table(rows, "folder", folder), end="\n\n")
    print(table(rows, "backend", lambda row: row["backend"]), end="\n\n")
    dearest = sorted(rows, key=lambda row: -row["processor"] - row["children"])[: int(count)]
    print(
        table(dearest, "dearest tests", lambda row: f"{row['test']} {row['backend']}"), end="\n\n"
    )
    largest = max(rows, key=lambda row: row["memory"])
    print(f"largest process: {largest['memory']:,.0f} MB after {largest['test']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
