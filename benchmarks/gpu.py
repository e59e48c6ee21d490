"""What only a GPU can show: ``python -m benchmarks.gpu --minutes 8``, in a bare checkout.

It runs with the PyTorch, JAX and CuPy that a machine has, and needs no package index: pure-Python
packages that are missing are taken from wheels in a folder, which ``--fetch`` makes elsewhere.
Each step is a process with a time limit, so that one which crashes or hangs stops no other, and
writes lines of JSON as it goes. Steps that only compare run at the same time, those that measure
times alone. On the host, with ``--device cpu``, the same code runs on small networks.
"""

import argparse
import gc
import importlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gpu_steps import READY, STEPS, Entry, NotRun, Record

ROOT = Path(__file__).parent.parent
OUT = Path("build") / "gpu"  # .jsonl, .md and .log
WHEELS = Path("build") / "wheels"
KINDS = ("gpu", "cpu")
#: Distributions that a machine with a GPU may lack, and the modules by which that is seen.
PURE = {
    "chainer": "chainer",
    "optree": "optree",
    "typing_extensions": "typing_extensions",
    "xxhash": "xxhash",
    "threadpoolctl": "threadpoolctl",
    "safetensors": "safetensors",
    "typer": "typer",
    "click": "click",
    "shellingham": "shellingham",
    "rich": "rich",
    "markdown-it-py": "markdown_it",
    "mdurl": "mdurl",
    "pygments": "pygments",
    "flax": "flax",
    "optax": "optax",
    "six": "six",
    "filelock": "filelock",
    "pytest": "pytest",
    "pluggy": "pluggy",
    "iniconfig": "iniconfig",
}
EACH = 8  # seconds for a step that is timed, where time is short
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
#: PyTorch and JAX share the card with processes beside them.
SHARED = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONUNBUFFERED": "1",
    "OMP_NUM_THREADS": "4",
}


@dataclass
class Child:
    """A step that runs."""

    name: str
    entry: Entry
    process: Any
    deadline: float
    is_ready: bool = False
    started: float = field(default_factory=time.monotonic)


class Runner:
    """Runs steps and writes their records, each as it comes.

    Args:
        lines: The file of records.
        log: The file for what else the steps print.
        seconds: How long all steps may take.
    """

    def __init__(
        self, kind: str, lines: Any, log: Any, seconds: float, site: str | None
    ) -> None:
        self.kind, self.lines, self.log = kind, lines, log
        self.end = self.timing = time.monotonic() + seconds
        self.path = os.pathsep.join(
            filter(None, [str(ROOT), site, os.environ.get("PYTHONPATH")])
        )
        self.records: dict[str, list[Record]] = {}
        self._events: queue.Queue[tuple[Child, Record | None]] = queue.Queue()

    def run(self, names: Sequence[str], jobs: int) -> None:
        """Run steps: those that compare at the same time, then those that are timed, in turn.

        Timing begins when nothing else runs, and at the latest when just enough time is left for
        it; then a step that compares is stopped, one that is not ready comes last.
        """
        timed = sum(STEPS[name].is_timed for name in names)
        self.timing = self.end - timed * EACH
        waiting = list(names)
        running: list[Child] = []
        while waiting or running:
            while waiting and sum(not child.is_ready for child in running) < jobs:
                name = waiting.pop(0)
                if time.monotonic() > self.end:
                    self._write(name, {"not run": "no time was left"})
                else:
                    running.append(self._start(name))
            ready = [child for child in running if child.is_ready]
            is_time = time.monotonic() > self.timing or len(ready) == len(running)
            if ready and is_time and not waiting:
                running.remove(ready[0])
                self._let_go_on(ready[0])
            elif running:
                self._take(running)
            running = [child for child in running if not self._is_over(child)]

    def _start(self, name: str) -> Child:
        entry = STEPS[name]
        environment = (
            os.environ | SHARED | {"PYTHONPATH": self.path} | dict(entry.environment)
        )
        process = subprocess.Popen(
            self.command(name),
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )
        limit = min(
            time.monotonic() + entry.seconds,
            self.end if entry.is_timed else self.timing,
        )
        child = Child(name, entry, process, limit)
        threading.Thread(target=self._read, args=(child,), daemon=True).start()
        return child

    def command(self, name: str) -> list[str]:
        """Return the command of a step."""
        return [
            sys.executable,
            "-m",
            "benchmarks.gpu",
            "--step",
            name,
            "--device",
            self.kind,
        ]

    def _read(self, child: Child) -> None:
        with child.process.stdout as output:
            for line in output:
                try:
                    record = json.loads(line)
                except ValueError:
                    record = {"printed": line.rstrip()}
                self._events.put((child, record))
        self._events.put((child, None))

    def _take(self, running: Sequence[Child]) -> None:
        """Take the next record, or wait until the first time limit."""
        limits = [child.deadline for child in running if not child.is_ready]
        if time.monotonic() < self.timing:
            limits.append(self.timing)
        timeout = max(0.0, min(limits, default=self.end) - time.monotonic())
        try:
            child, record = self._events.get(timeout=timeout + 0.01)
        except queue.Empty:
            return
        self._handle(child, record)

    def _handle(self, child: Child, record: Record | None) -> None:
        if child.process.returncode is not None:  # it was stopped
            return
        if record == READY:
            child.is_ready = True
        elif record is not None:
            self._write(child.name, record)
        else:
            child.process.wait()
            status = "done" if child.process.returncode == 0 else "failed"
            self._finish(child, {"status": status, "exit": child.process.returncode})

    def _is_over(self, child: Child) -> bool:
        if child.process.returncode is not None:
            return True
        is_waiting = child.is_ready and time.monotonic() < self.end
        if is_waiting or time.monotonic() < child.deadline:
            return False
        self._stop(child)
        return True

    def _let_go_on(self, child: Child) -> None:
        """Let a step measure while all others wait."""
        child.deadline = min(time.monotonic() + child.entry.timing, self.end)
        child.process.stdin.write("\n")
        child.process.stdin.flush()
        while child.process.returncode is None and time.monotonic() < child.deadline:
            self._take([Child(child.name, child.entry, None, child.deadline)])
        if child.process.returncode is None:
            self._stop(child)

    def _stop(self, child: Child) -> None:
        os.killpg(child.process.pid, signal.SIGKILL)
        child.process.wait()
        self._finish(child, {"status": "stopped at its time limit"})

    def _finish(self, child: Child, record: Record) -> None:
        child.process.stdin.close()
        seconds = round(time.monotonic() - child.started, 1)
        self._write(child.name, record | {"seconds": seconds})

    def _write(self, name: str, record: Record) -> None:
        self.records.setdefault(name, []).append(record)
        line = json.dumps({"step": name} | record)
        print(line[:600], flush=True)
        self.lines.write(line + "\n")
        self.lines.flush()


def run_step(name: str, kind: str) -> int:
    """Run one step in this process: its records go to standard output, a line each."""
    entry = STEPS[name]
    module = importlib.import_module(f"benchmarks.gpu_steps.{entry.module}")
    output, sys.stdout = sys.stdout, sys.stderr  # what others print is no record
    try:
        for record in getattr(module, entry.function)(kind, *entry.arguments):
            print(json.dumps(record, default=str), file=output, flush=True)
            if record == READY:
                gc.collect()
                gc.freeze()  # so that the collections between measurements are short
                sys.stdin.readline()
    except NotRun as reason:
        print(json.dumps({"not run": str(reason)}), file=output, flush=True)
    return 0


# Wheels
# -----------------------------------------------------------------------------


def fetch(folder: Path) -> None:
    """Download wheels of what a machine with a GPU may lack: 6 MB, no framework among them."""
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    others = [name for name in PURE if name != "chainer"]
    platforms = [f"--platform={name}" for name in PLATFORMS]
    build = str(ROOT / "requirements" / "build.txt")
    constraints = {"PIP_CONSTRAINT": build, "PIP_BUILD_CONSTRAINT": build}
    chainer = [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), "chainer==7.8.1"]
    subprocess.run(chainer, check=True, env=os.environ | constraints)
    download = [
        *pip,
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "-d",
        str(folder),
    ]
    download += ["--python-version=3.12", "--implementation=cp", *platforms, *others]
    subprocess.run(download, check=True)
    size = sum(path.stat().st_size for path in folder.glob("*.whl"))
    print(f"{folder}: {len(list(folder.glob('*.whl')))} wheels, {size / 1e6:.1f} MB")


def unpacked(folder: Path, target: Path) -> list[str]:
    """Unpack the wheels of packages that this Python lacks; return their names."""
    taken = []
    for name, module in PURE.items():
        if importlib.util.find_spec(module) is not None:
            continue
        for wheel in folder.glob(f"{name.replace('-', '_')}-*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)
            taken.append(wheel.name)
    return taken


# The table
# -----------------------------------------------------------------------------


def table(records: Mapping[str, Sequence[Record]]) -> str:
    """Return what was found in Markdown: times first, then a line for each other record."""
    lines = [
        "| what | ours, ms | theirs, ms | our speed by theirs | goal |",
        "|---|---|---|---|---|",
    ]
    for record in _each(records):
        if "ratio" in record:
            lines.append(_row(record))
    for name, each in records.items():
        lines += ["", f"## {name}", ""]
        lines += [f"- {_words(record)}" for record in each if "ratio" not in record]
    return "\n".join(lines) + "\n"


def _each(records: Mapping[str, Sequence[Record]]) -> Iterator[Record]:
    for each in records.values():
        yield from each


def _row(ratio: Record) -> str:
    goal = "" if ratio["limit"] is None else f"{1 / ratio['limit']:.2f}"
    speed, low, high = (1 / ratio[key] for key in ("ratio", "high", "low"))
    return (
        f"| {ratio['name']} | {ratio['ours'] * 1e3:.2f} | {ratio['theirs'] * 1e3:.2f} | "
        f"{speed:.3f} ({low:.3f} to {high:.3f}) | {goal} |"
    )


def _words(record: Record) -> str:
    return ", ".join(f"{key}: {_value(value)}" for key, value in record.items())


def _value(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def missed(records: Iterable[Record]) -> bool:
    """Return whether a goal was missed, or a step failed."""
    return any(
        record.get("status", "done") != "done"
        or "failed" in record
        or (record.get("limit") is not None and record["ratio"] > record["limit"])
        for record in records
    )


def main(words: Sequence[str]) -> int:
    """Run the steps, print and write their records; 1 if one failed or missed its goal."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__
    )
    parser.add_argument("--device", choices=KINDS, default="gpu")
    parser.add_argument(
        "--minutes", type=float, default=8.0, help="for all steps together"
    )
    parser.add_argument(
        "--jobs", type=int, default=len(STEPS), help="steps at the same time"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="without .jsonl, .md and .log"
    )
    parser.add_argument(
        "--only", action="append", help="steps whose name contains this"
    )
    parser.add_argument(
        "--wheels", type=Path, default=WHEELS, help="packages that are missing"
    )
    parser.add_argument(
        "--fetch", action="store_true", help="only download these wheels"
    )
    parser.add_argument("--step", help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.step:
        return run_step(chosen.step, chosen.device)
    if chosen.fetch:
        fetch(chosen.wheels)
        return 0
    names = [name for name in STEPS if _is_chosen(name, chosen.only)]
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    paths = {end: chosen.out.with_suffix(f".{end}") for end in ("jsonl", "md", "log")}
    with (
        tempfile.TemporaryDirectory() as site,
        paths["jsonl"].open("w") as lines,
        paths["log"].open("w") as log,
    ):
        taken = unpacked(chosen.wheels, Path(site))
        print(json.dumps({"unpacked": taken}), flush=True)
        runner = Runner(chosen.device, lines, log, 60 * chosen.minutes, site)
        runner.run(names, chosen.jobs)
    paths["md"].write_text(table(runner.records))
    return int(missed(_each(runner.records)))


def _is_chosen(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(each in name for each in only)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
