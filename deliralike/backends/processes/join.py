"""Join a process to the others that it was started with, by the variables of its launcher."""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from deliralike.backends import get, known
from deliralike.errors import BackendUnavailable, ProcessError, SettingError, suggestion
from deliralike.parallel.processes.group import Place, ProcessGroup, SingleProcess

ENGINES = ("torch", "mpi", "chainermn", "jax")
# Environment variables that `deliralike launch` and `deliralike.backends.processes.spawn` set:
# the engine, the place of a process, how long processes wait for each other, the file for lines
# that are printed after everything else, and the restarts.
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
_STDERR = 2
_RESTARTS = (("TORCHELASTIC_RESTART_COUNT", RESTART), ("TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS))
_OF_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID")
_OF_OUR_OWN = (RANK, COUNT, ADDRESS)
_PORTS = range(29_500, 30_500)  # each Slurm job takes one of them


def join(engine: str | None = None, timeout: float | None = None) -> ProcessGroup:
    """Return the group of processes that this one was started with.

    A process that was started on its own is a group of one.

    Args:
        engine: What moves the bytes: ``"torch"`` for torch.distributed (gloo), which torchrun and
            Slurm's srun start; ``"mpi"``, which mpiexec and ``srun --mpi=pmix`` start;
            ``"chainermn"``, started likewise, by which ChainerMN may add the gradients of Chainer's
            networks; ``"jax"`` for JAX's own runtime, which ``deliralike launch``, srun and mpiexec
            start. None takes the engine from their environment variables, which is never ChainerMN,
            nor JAX's runtime under srun or mpiexec. Without such variables it takes the processes
            that the program has connected itself, by ``torch.distributed.init_process_group`` or
            ``jax.distributed.initialize``.
        timeout: Seconds after which a process that others wait for is given up, at the start and
            in every later exchange. None takes the value of ``deliralike launch --timeout``, or
            five minutes.

    Raises:
        SettingError: There is no such engine.
        ProcessError: The environment variables of the engine are missing, or some processes (which
            the message names) have not arrived within the time limit.
        ImportError: A package that the engine needs is not installed.

    Example:
        >>> join().count
        1
    """
    if engine is None:
        engine = _started_by() or _connected()
    if engine not in (None, *ENGINES):
        raise SettingError(f"there is no engine {engine!r}. {suggestion(str(engine), ENGINES)}")
    if engine is None:
        return SingleProcess()
    timeout = time_limit() if timeout is None else timeout
    if engine == "mpi":
        return _wait_for_mpi_to_start(timeout).MPIProcessGroup(timeout=timeout)
    if engine == "chainermn":
        _wait_for_mpi_to_start(timeout)
        return get("chainer").join(timeout)
    if engine == "jax":
        return get("jax").join(timeout, _place_of_our_own() or _place_by_mpi(timeout))
    if all(name in os.environ for name in _OF_TORCHRUN):
        return get("torch").join(timeout)
    if all(name in os.environ for name in _OF_SLURM):
        return get("torch").join(timeout, _place_in_slurm())
    if _connected() == "torch":
        return get("torch").join(timeout)
    missing = ", ".join(name for name in _OF_TORCHRUN if name not in os.environ)
    raise ProcessError(
        f"torch.distributed needs the variables {', '.join(_OF_TORCHRUN)} of the environment, and "
        f"{missing} are not set: start with 'deliralike launch', torchrun or srun"
    )


def time_limit() -> float:
    """Return the default number of seconds after which an awaited process is given up.

    Example:
        >>> time_limit()
        300.0
    """
    return float(os.environ.get(PATIENCE, TIMEOUT))


def say_at_the_end(line: str) -> None:
    """Print a line on standard error; `deliralike launch` prints it after all other output."""
    if path := os.environ.get(LAST_WORDS):
        Path(path).write_text(line)
    else:
        print(line, file=sys.stderr, flush=True)


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
            return int(os.environ[name])
    return 0


def _wait_for_mpi_to_start(timeout: float) -> Any:
    """Import MPI, whose start waits for all processes.

    Nothing can interrupt that wait, so a timer ends the process; its traceback names this function.
    """
    faulthandler.dump_traceback_later(timeout, exit=True, file=_STDERR)
    try:
        return importlib.import_module("deliralike.parallel.processes.mpi")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _started_by() -> str | None:
    """Return the engine whose launcher started this process, or None."""
    if ENGINE in os.environ:
        return os.environ[ENGINE]
    # the script of a batch job is in no step, however many tasks the job may start
    in_slurm_step = _number(_OF_SLURM[1]) > 1
    if _is_of_mpiexec() or ("PMIX_RANK" in os.environ and in_slurm_step):
        return "mpi"
    if in_slurm_step or all(name in os.environ for name in _OF_TORCHRUN):
        return "torch"
    return None


def _connected() -> str | None:
    """Return the engine by which the user's program has connected processes itself, or None."""
    for name, entry in known().items():
        if not entry.packages or entry.packages[0] not in sys.modules:
            continue
        with suppress(BackendUnavailable):  # a broken backend disables only itself
            if get(name).is_connected():
                return entry.engine
    return None


def _is_of_mpiexec() -> bool:
    return any(_number(name) > 1 for name in _OF_MPI)


def _number(name: str) -> int:
    return int(os.environ.get(name, "1"))


def _place_in_slurm() -> Place:
    rank, count, host, job = (os.environ[name] for name in _OF_SLURM)
    return Place(int(rank), int(count), f"{host}:{_PORTS[int(job) % len(_PORTS)]}")


def _place_of_our_own() -> Place | None:
    """Return the place that `deliralike.backends.processes.spawn` gave to this process, if any."""
    if any(name not in os.environ for name in _OF_OUR_OWN):
        return None
    rank, count, address = (os.environ[name] for name in _OF_OUR_OWN)
    return Place(int(rank), int(count), address)


def _place_by_mpi(timeout: float) -> Place | None:
    """Return the place that mpiexec gave to this process; MPI tells the first one's address to all.

    It is None where mpiexec has not started the process, or mpi4py is missing: JAX finds the tasks
    of Slurm without help.
    """
    if not _is_of_mpiexec() or importlib.util.find_spec("mpi4py") is None:
        return None
    processes = _wait_for_mpi_to_start(timeout).MPIProcessGroup(timeout=timeout)
    addresses = processes.all_gather_object(
        "the host, and a port of it that is free", (socket.gethostname(), free_port())
    )
    host, port = addresses[0]
    if all(other == host for other, _ in addresses):
        host = THIS_MACHINE
    return Place(processes.rank, processes.count, f"{host}:{port}")


def free_port() -> int:
    """Return a port of this machine that is free."""
    with socket.socket() as listener:
        listener.bind((THIS_MACHINE, 0))
        return listener.getsockname()[1]
