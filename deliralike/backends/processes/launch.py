"""Start several processes of a Python module by the launcher of an engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from deliralike.backends import known
from deliralike.backends.processes import engine as engines
from deliralike.backends.processes.engine import Launch
from deliralike.backends.processes.environment import (
    ENGINE,
    LAST_WORDS,
    MAX_RESTARTS,
    RESTART,
)
from deliralike.errors import SettingError
from deliralike.terminal import say_error


def usual_engine(backend: str | None = None) -> str:
    """Return the default engine for networks of a backend; MPI where that one is not installed.

    A backend that brings an engine under its own name trains over it.

    Example:
        >>> usual_engine("torch"), usual_engine("jax"), usual_engine()
        ('torch', 'jax', 'torch')
    """
    engine = backend or ""
    if engine not in engines.names():
        entry = known().get(engine)
        engine = "torch" if entry is None else entry.engine
    return engine if engines.get(engine).is_installed() else "mpi"


def launched(
    engine: str,
    processes: int,
    module: Sequence[str],
    *,
    nodes: int = 1,
    node: int = 0,
    address: str = "",
    restarts: int = 0,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], dict[str, str]]:
    """Return the command that starts `processes` processes on each node, and its environment.

    Args:
        engine: ``"torch"``, ``"mpi"``, ``"chainermn"``, ``"jax"``, or another that is registered.
        module: The module's name and its arguments.
        nodes, node, address: How many machines there are, which of them this is, and ``host:port``
            of the first one, for torch and JAX; MPI finds the machines by itself, from Slurm or a
            host file.
        restarts: How often all processes are started again when one of them fails; by torchrun, or
            by `watched`.
        environment: The environment variables to start from; those of this process when None.

    Raises:
        SettingError: There is no such engine, or the address is missing.
        ProcessError: The engine's launcher is not installed.

    Example:
        >>> launched("torch", 2, ["deliralike", "train"], environment={})[0][1:6]
        ['-m', 'torch.distributed.run', '--nproc-per-node', '2', '--standalone']
    """
    chosen = engines.get(engine)
    if processes < 1 or not 0 <= node < nodes:
        raise SettingError(
            f"processes={processes}, nodes={nodes}, node={node}: wanted one process at least, and "
            f"a node from 0 to {max(nodes - 1, 0)}"
        )
    if nodes > 1 and not address and not chosen.finds_nodes:
        raise SettingError(
            f"{nodes} nodes: say where the first one is, address='host:port'"
        )
    # more threads than cores slow each other down
    threads = max(1, _usable_cores() // processes)
    variables = chosen.environment() | {"OMP_NUM_THREADS": str(threads)}
    variables.update(os.environ if environment is None else environment)
    variables[ENGINE] = engine
    if not sys.stdout.isatty():
        variables["TERM"] = "dumb"  # as mpiexec gives its processes a terminal
    return chosen.command(
        Launch(processes, module, nodes, node, address, restarts)
    ), variables


def _usable_cores() -> int:
    """Return the number of cores that this process may use: a job has a part of its node's."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def watched(
    engine: str,
    command: Sequence[str],
    environment: Mapping[str, str],
    restarts: int = 0,
) -> int:
    """Run a launcher to its end and return its exit code; signals are passed on to it.

    After a signal the code is 128 plus the signal's number. After a failure torchrun restarts the
    processes by itself; the other launchers are started again here. Lines that processes have left
    with `say_at_the_end` are printed after the last output of the launcher.
    """
    with tempfile.TemporaryDirectory() as folder:
        last_words = Path(folder) / "last-words"
        variables = dict(environment) | {LAST_WORDS: str(last_words)}
        code = _watched(engine, command, variables, restarts)
        if last_words.exists():
            say_error(last_words.read_text())
    return code


def _watched(
    engine: str, command: Sequence[str], environment: Mapping[str, str], restarts: int
) -> int:
    chosen = engines.get(engine)
    if chosen.restarts_itself:
        return _code_of(command, environment, first_as=chosen.first_signal)[0]
    for number in range(restarts + 1):
        variables = dict(environment) | {
            RESTART: str(number),
            MAX_RESTARTS: str(restarts),
        }
        code, has_signal = _code_of(command, variables, first_as=chosen.first_signal)
        if code == 0 or has_signal:
            break
        if number < restarts:
            say_error(
                f"deliralike: a process has failed: restart {number + 1} of {restarts}"
            )
    return code


def _code_of(
    command: Sequence[str], environment: Mapping[str, str], first_as: int | None
) -> tuple[int, bool]:
    """Run a command and return its exit code, and whether this process received a signal.

    The command receives the first signal as `first_as`, where that is not None, and all later ones
    as they are.
    """
    signals: list[int] = []
    # in a session of its own, so that the command receives Ctrl-C only once
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )

    def handle(number: int, frame: object) -> None:
        signals.append(number)
        is_first = len(signals) == 1
        process.send_signal(first_as if is_first and first_as is not None else number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    former = {number: signal.signal(number, handle) for number in numbers}
    try:
        code = process.wait()
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
    if signals:
        return 128 + signals[0], True
    return code, False
