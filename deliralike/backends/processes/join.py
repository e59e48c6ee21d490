"""How a process finds the others that it was started with."""

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
ENGINE = (
    "DELIRALIKE_ENGINE"  # the variable by which `deliralike launch` says which one it has started
)
RANK, COUNT, ADDRESS = (
    "DELIRALIKE_RANK",
    "DELIRALIKE_COUNT",
    "DELIRALIKE_ADDRESS",
)  # and where a process is among them
PATIENCE = "DELIRALIKE_TIMEOUT"  # and this one, how long processes wait for each other
TIMEOUT = 300.0  # seconds
# and a file for what it is to say when launchers have said all that they say
LAST_WORDS = "DELIRALIKE_LAST_WORDS"
RESTART, MAX_RESTARTS = "DELIRALIKE_RESTART", "DELIRALIKE_MAX_RESTARTS"
THIS_MACHINE = "127.0.0.1"
_STDERR = 2
_RESTARTS = (("TORCHELASTIC_RESTART_COUNT", RESTART), ("TORCHELASTIC_MAX_RESTARTS", MAX_RESTARTS))
_OF_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_SLURM = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_ID")
_OF_OUR_OWN = (RANK, COUNT, ADDRESS)
_PORTS = range(29_500, 30_500)  # one of them for each job of Slurm's


def join(engine: str | None = None, timeout: float | None = None) -> ProcessGroup:
    """The processes that this one was started with; a process that was started by itself is alone.

    Args:
        engine: What moves the bytes: ``"torch"`` for torch.distributed (gloo), which torchrun and
            Slurm's srun start; ``"mpi"``, which mpiexec and ``srun --mpi=pmix`` start;
            ``"chainermn"``, started likewise, by which ChainerMN may add the gradients of Chainer's
            networks; ``"jax"`` for JAX's own runtime, which ``deliralike launch``, srun and mpiexec
            start. What the environment variables of those say when None, which is never ChainerMN,
            nor JAX's runtime under srun or mpiexec; where they say nothing, the processes that the
            program has connected itself, by ``torch.distributed.init_process_group`` or
            ``jax.distributed.initialize``.
        timeout: Seconds after which a process that others wait for is given up, from the beginning
            to the end; what ``deliralike launch --timeout`` says, or five minutes, when None.

    Raises:
        SettingError: There is no such engine.
        ProcessError: The engine was asked for, and its environment variables are missing; or some
            of the processes have not come within the time limit, and which.
        ImportError: What the engine needs is not installed.

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
        return _beginning_mpi_with_all_others(timeout).MPIProcessGroup(timeout=timeout)
    if engine == "chainermn":
        _beginning_mpi_with_all_others(timeout)
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
    """The seconds after which a process that others wait for is given up, unless a program says
    otherwise.

    Example:
        >>> time_limit()
        300.0
    """
    return float(os.environ.get(PATIENCE, TIMEOUT))


def say_at_the_end(line: str) -> None:
    """Print a line on standard error, under `deliralike launch` when all else has been said."""
    if path := os.environ.get(LAST_WORDS):
        Path(path).write_text(line)
    else:
        print(line, file=sys.stderr, flush=True)


def restarts() -> tuple[int, int]:
    """How often these processes have been started again after a failure, and how often they may be.

    Example:
        >>> restarts()
        (0, 0)
    """
    made, at_most = (
        next((int(os.environ[name]) for name in names if name in os.environ), 0)
        for names in _RESTARTS
    )
    return made, at_most


def _beginning_mpi_with_all_others(timeout: float) -> Any:
    """Load MPI, whose start waits for all processes, deaf to everything: a clock ends it, and shows
    this function.
    """
    faulthandler.dump_traceback_later(timeout, exit=True, file=_STDERR)
    try:
        return importlib.import_module("deliralike.parallel.processes.mpi")
    finally:
        faulthandler.cancel_dump_traceback_later()


def _started_by() -> str | None:
    """The engine whose launcher started this process."""
    if ENGINE in os.environ:
        return os.environ[ENGINE]
    if _is_of_mpiexec() or ("PMIX_RANK" in os.environ and _number(_OF_SLURM[1]) > 1):
        return "mpi"
    in_step = (
        _number(_OF_SLURM[1]) > 1
    )  # a batch script by itself is in no step, whatever tasks it may start
    return "torch" if in_step or all(name in os.environ for name in _OF_TORCHRUN) else None


def _connected() -> str | None:
    """The engine by which the user's program has connected processes itself."""
    for name, entry in known().items():
        with suppress(BackendUnavailable):  # one that is broken disables only itself
            if entry.packages and entry.packages[0] in sys.modules and get(name).is_connected():
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
    """Where `deliralike.backends.processes.spawn` has put this process, if it has started it."""
    if any(name not in os.environ for name in _OF_OUR_OWN):
        return None
    rank, count, address = (os.environ[name] for name in _OF_OUR_OWN)
    return Place(int(rank), int(count), address)


def _place_by_mpi(timeout: float) -> Place | None:
    """Where mpiexec has put this process; of the first one's address all others hear by MPI.

    None where mpiexec has not started it, or mpi4py is missing: JAX by itself finds the tasks of
    Slurm.
    """
    if not _is_of_mpiexec() or importlib.util.find_spec("mpi4py") is None:
        return None
    processes = _beginning_mpi_with_all_others(timeout).MPIProcessGroup(timeout=timeout)
    told = processes.all_gather_object(
        "the host, and a port of it that is free", (socket.gethostname(), free_port())
    )
    host, port = told[0]
    is_one_machine = {other for other, _ in told} == {host}
    return Place(
        processes.rank, processes.count, f"{THIS_MACHINE if is_one_machine else host}:{port}"
    )


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind((THIS_MACHINE, 0))
        return found.getsockname()[1]
