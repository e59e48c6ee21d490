"""Start several processes of a Python module, for a framework that has no launcher of its own.

    python -m deliralike.backends.processes.spawn COUNT TOTAL FIRST ADDRESS MODULE [ARGUMENT ...]

starts COUNT processes of TOTAL: FIRST, FIRST + 1 … They read their ranks from the environment. An
empty address stands for a free port of this machine. When one process fails, all others are ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.backends.processes.environment import (
    ADDRESS,
    COUNT,
    RANK,
    THIS_MACHINE,
    free_port,
)
from deliralike.terminal import say_error

GRACE = 10.0  # seconds in which the other processes may report a failure before they are ended
_POLL_INTERVAL = 0.05  # seconds


def main(count: str, total: str, first: str, address: str, *module: str) -> int:
    """Start the processes, wait for them, and return the first exit code that is not 0, or 0."""
    ranks = range(int(first), int(first) + int(count))
    variables = {ADDRESS: address or f"{THIS_MACHINE}:{free_port()}", COUNT: total}
    processes = [_start(module, variables | {RANK: str(rank)}) for rank in ranks]

    def terminate_all(*_: Any) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, terminate_all)
    # Ctrl-C reaches all processes of a terminal, and each of them ends by itself
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    failure = _first_failure(processes)
    if failure is None:
        return 0
    code = processes[failure].returncode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    say_error(f"process {ranks[failure]} of {total} ended {how}")
    _end(processes)
    return 128 - code if code < 0 else code


def _start(
    module: Sequence[str], variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", *module], env=os.environ | variables)


def _first_failure(processes: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait until a process has failed, and return its index, or None when all have succeeded."""
    while True:
        codes = [process.poll() for process in processes]
        for index, code in enumerate(codes):
            if code:
                return index
        if None not in codes:
            return None
        time.sleep(_POLL_INTERVAL)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait for `GRACE` seconds, then terminate what still runs, and kill it after as many more."""
    for give_up in (subprocess.Popen.terminate, subprocess.Popen.kill):
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(
            process.poll() is None for process in processes
        ):
            time.sleep(_POLL_INTERVAL)
        for process in processes:
            if process.poll() is None:
                give_up(process)
    for process in processes:
        process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
