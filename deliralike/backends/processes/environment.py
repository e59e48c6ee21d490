"""Environment variables by which launchers and processes tell each other where a process stands."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from deliralike.errors import SettingError
from deliralike.terminal import say_error

# Variables that `deliralike launch` and `deliralike.backends.processes.spawn` set: the engine, the
# rank of a process, the number of processes, the address of the first one, how long processes wait
# for each other, the file for lines that are printed after everything else, and the restarts.
ENGINE = "DELIRALIKE_ENGINE"
RANK = "DELIRALIKE_RANK"
COUNT = "DELIRALIKE_COUNT"
ADDRESS = "DELIRALIKE_ADDRESS"
PATIENCE = "DELIRALIKE_TIMEOUT"
LAST_WORDS = "DELIRALIKE_LAST_WORDS"
RESTART = "DELIRALIKE_RESTART"
MAX_RESTARTS = "DELIRALIKE_MAX_RESTARTS"
TIMEOUT = 300.0  # seconds
THIS_MACHINE = "127.0.0.1"
_TASKS = "SLURM_STEP_NUM_TASKS"
_JOB = "SLURM_JOB_ID"
_STEP = "SLURM_STEP_ID"
_PORT = "MASTER_PORT"
_PORTS = range(29_500, 30_500)  # each job of Slurm takes one of them,
_PORTS_APART = 97  # and each further step of the job another one
_RESTARTS = (
    ("TORCHELASTIC_RESTART_COUNT", RESTART),
    ("TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS),
)


def time_limit() -> float:
    """Return the default number of seconds after which an awaited process is given up.

    Example:
        >>> time_limit()
        300.0
    """
    text = os.environ.get(PATIENCE, str(TIMEOUT))
    try:
        return float(text)
    except ValueError:
        raise SettingError(
            f"the variable {PATIENCE} of the environment is {text!r}, wanted seconds"
        ) from None


def say_at_the_end(line: str) -> None:
    """Print a line on standard error; `deliralike launch` prints it after all other output."""
    if path := os.environ.get(LAST_WORDS):
        Path(path).write_text(line)
    else:
        say_error(line)


def repeat_at_the_end(text: str) -> None:
    """Let `deliralike launch` print an error once more, behind the report of the launcher.

    That of the first process to fail stays: the others may fail because of it.
    """
    path = os.environ.get(LAST_WORDS)
    if path and not Path(path).exists():
        Path(path).write_text(text)


def restarts() -> tuple[int, int]:
    """Return how often these processes were restarted after a failure, and the limit.

    Example:
        >>> restarts()
        (0, 0)
    """
    count, limit = (_first_number(names) for names in _RESTARTS)
    return count, limit


def _first_number(names: tuple[str, ...]) -> int:
    for name in names:
        if name in os.environ:
            return number(name)
    return 0


def number(name: str) -> int:
    """Return a whole number of the environment; 1 where the variable is not set.

    Raises:
        SettingError: The variable is something else.
    """
    text = os.environ.get(name, "1")
    try:
        return int(text)
    except ValueError:
        raise SettingError(
            f"the variable {name} of the environment is {text!r}, wanted a whole number: it is set "
            "by what starts the processes, such as 'deliralike launch' and torchrun"
        ) from None


def in_slurm_step() -> bool:
    """Return whether this process is one of several tasks of a step of Slurm.

    The script of a batch job is in no step, however many tasks the job may start.
    """
    return number(_TASKS) > 1


def port_of_slurm_step() -> int:
    """Return the port at which the tasks of this step of Slurm meet.

    Several steps of a job may run at once on the same nodes. MASTER_PORT comes first.
    """
    if _PORT in os.environ:
        return number(_PORT)
    return _PORTS[(number(_JOB) + _PORTS_APART * number(_STEP)) % len(_PORTS)]


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as listener:
        listener.bind((THIS_MACHINE, 0))
        return listener.getsockname()[1]
