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

from deliralike.backends.launching import launched

ROOT = Path(__file__).parents[2]
ENGINES = ("torch", "mpi")  # ChainerMN's processes are those of MPI; JAX's runtime has tests of its own


@dataclass(frozen=True)
class Outcome:
    """What became of the processes: the exit code of the launcher, what each rank returned, and all that was said."""

    code: int
    results: dict[int, Any]
    said: str

    def of_ranks(self) -> list[Any]:
        """What each rank returned, in order."""
        return [self.results[rank] for rank in sorted(self.results)]


def run(
    engine: str, count: int, function: str, *arguments: Any, timeout: float = 120.0, check: bool = True,
    patience: float = 60.0, restarts: int = 0, late: float = 0.0, launcher: str = "",
) -> Outcome:  # fmt: skip
    """Run ``"module:function"`` with arguments that JSON can hold in every process; each returns what JSON can hold.

    Args:
        timeout: Seconds after which all are killed, and the test fails.
        patience: Seconds after which the processes themselves give up one that does not come.
        restarts: How often they are started again when one fails.
        late: Seconds that the last one waits before it joins the others.
        launcher: The engine whose launcher starts them; that of `engine` unless given.

    Raises:
        AssertionError: They did not end in time, or (with `check`) one failed.
    """
    launcher = launcher or engine
    if launcher in ("mpi", "chainermn") and importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install 'deliralike[mpi]'")
    with tempfile.TemporaryDirectory() as folder:
        worker = ["tests.processes.worker", engine, folder, function, json.dumps(arguments)]
        command, environment = launched(launcher, count, worker, restarts=restarts)
        environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATIENCE": str(patience), "LATE": str(late)}
        if restarts:
            command = [sys.executable, "-m", "tests.processes.launcher", launcher, str(restarts), *command]
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT,
                                       start_new_session=True)  # fmt: skip
            try:
                code: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
                process.terminate()  # a launcher passes it on
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5)
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            said.seek(0)
            text = said.read()
        assert code is not None, f"not ended after {timeout} s\n{text}"
        results = {int(path.stem): json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
    assert not check or (code == 0 and len(results) == count), text
    return Outcome(code, results, text)
