"""Run a function of a test module in several processes, on an engine; nothing of it can hang."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deliralike.backends.processes.launch import launched

ROOT = Path(__file__).parents[2]
ENGINES = (
    "torch",
    "mpi",
)  # ChainerMN's processes are those of MPI; JAX's runtime has tests of its own


@dataclass(frozen=True)
class Outcome:
    """What became of the processes: the exit code of the launcher, what each rank returned, and all
    that was said."""

    code: int
    results: dict[int, Any]
    said: str

    def of_ranks(self) -> list[Any]:
        """What each rank returned, in order."""
        return [self.results[rank] for rank in sorted(self.results)]


def run(
    *args: Any, timeout: float = 600.0, check: bool = True, **options: Any
) -> Outcome:
    """`Run` a function in every process, to their end.

    Args:
        timeout: Seconds after which all are killed, and the test fails.
        check: Whether none may fail.

    Raises:
        AssertionError: They did not end in time, or (with `check`) one failed.
    """
    return Run(*args, **options).outcome(timeout, check)


class Run:
    """``"module:function"`` in processes that are started for it, with arguments that JSON can
    hold.

    Each returns what JSON can hold.

    Args:
        patience: Seconds after which the processes themselves give up one that does not come.
        restarts: How often they are started again when one fails.
        late: Seconds that the last one waits before it joins the others.
        launcher: The engine whose launcher starts them; that of `engine` unless given.
    """

    def __init__(
        self,
        engine: str,
        count: int,
        function: str,
        *arguments: Any,
        patience: float = 300.0,
        restarts: int = 0,
        late: float = 0.0,
        launcher: str = "",
    ) -> None:
        self.count, launcher = count, launcher or engine
        self.folder, self.said = (
            tempfile.TemporaryDirectory(),
            tempfile.TemporaryFile("w+"),
        )
        worker = [
            "tests.processes.worker",
            engine,
            self.folder.name,
            function,
            json.dumps(arguments),
        ]
        skip_without_mpi(launcher)
        command, environment = launched(launcher, count, worker, restarts=restarts)
        environment |= {
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "PATIENCE": str(patience),
            "LATE": str(late),
        }
        if restarts:
            command = [
                sys.executable,
                "-m",
                "tests.processes.launcher",
                launcher,
                str(restarts),
                *command,
            ]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def outcome(self, timeout: float = 600.0, check: bool = True) -> Outcome:
        """What becomes of the processes, within so many seconds from now."""
        with self.folder as folder, self.said as said:
            ended = ends(self.process, timeout)
            said.seek(0)
            text = said.read()
            assert ended, f"not ended after {timeout} s\n{text}"
            results = {
                int(path.stem): json.loads(path.read_text())
                for path in Path(folder).glob("*.json")
            }
        code = self.process.returncode
        assert not check or (code == 0 and len(results) == self.count), text
        return Outcome(code, results, text)


def skip_without_mpi(engine: str) -> None:
    """Skip the test where the engine's launcher is not installed."""
    if engine in ("mpi", "chainermn") and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install 'deliralike[mpi]'")


def ends(process: subprocess.Popen[Any], timeout: float) -> bool:
    """Whether a launcher ends by itself within so many seconds; else it is ended, with all that it
    has started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout)
        return True
    process.terminate()  # a launcher passes it on
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return False
