"""Several processes of a Python module, of which none outlives another's failure: for a framework
without a launcher.

    python -m deliralike.backends.processes.spawn COUNT TOTAL FIRST ADDRESS MODULE [ARGUMENT ...]

starts processes FIRST, FIRST + 1 … of TOTAL, COUNT of them, which find their places in the
environment. An empty address stands for a free port of this machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from deliralike.backends.processes.join import ADDRESS, COUNT, RANK, THIS_MACHINE, free_port

GRACE = (
    10.0  # seconds in which the others may say what they know of a failure, before they are ended
)
_LOOK = 0.05  # seconds between two looks at the processes


def main(count: str, total: str, first: str, address: str, *module: str) -> int:
    """Start, wait, and give the exit code of the first process that failed, or 0."""
    ranks = range(int(first), int(first) + int(count))
    told = {ADDRESS: address or f"{THIS_MACHINE}:{free_port()}", COUNT: total}
    started = [_started(module, told | {RANK: str(rank)}) for rank in ranks]

    def ended_by_scheduler(*_: Any) -> None:
        for each in started:
            each.terminate()

    signal.signal(signal.SIGTERM, ended_by_scheduler)
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C goes to all processes of a terminal, and each ends by itself
    failed = _first_failure(started)
    if failed is None:
        return 0
    code = started[failed].returncode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    print(f"process {ranks[failed]} of {total} ended {how}", file=sys.stderr, flush=True)
    _end(started)
    return 128 - code if code < 0 else code


def _started(module: Sequence[str], place: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", *module], env=os.environ | place)


def _first_failure(started: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait until one has failed, which it gives, or all have ended."""
    while True:
        codes = [each.poll() for each in started]
        failed = [index for index, code in enumerate(codes) if code]
        if failed or None not in codes:
            return failed[0] if failed else None
        time.sleep(_LOOK)


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Wait a little, then end whoever is left, by force if need be."""
    for give_up in (lambda each: each.terminate(), lambda each: each.kill()):
        end = time.monotonic() + GRACE
        while time.monotonic() < end and any(each.poll() is None for each in started):
            time.sleep(_LOOK)
        for each in started:
            if each.poll() is None:
                give_up(each)
    for each in started:
        each.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
