"""Join a process to the others that it was started with."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from deliralike.backends import get, known
from deliralike.backends.processes import engine as engines
from deliralike.backends.processes.environment import ENGINE, time_limit
from deliralike.errors import BackendUnavailable
from deliralike.parallel.processes.group import ProcessGroup, SingleProcess


def join(engine: str | None = None, timeout: float | None = None) -> ProcessGroup:
    """Return the group of processes that this one was started with.

    A process that was started on its own is a group of one.

    Args:
        engine: What moves the bytes: ``"torch"`` for torch.distributed (gloo), which torchrun and
            Slurm's srun start; ``"mpi"``, which mpiexec and ``srun --mpi=pmix`` start;
            ``"chainermn"``, started likewise, by which ChainerMN may add the gradients of Chainer's
            networks; ``"jax"`` for JAX's own runtime, which ``deliralike launch`` and srun start;
            or another that is registered. None takes the engine from their environment variables,
            which is never ChainerMN, nor JAX's runtime under srun. Without such variables it takes
            the processes that the program has connected itself, by
            ``torch.distributed.init_process_group`` or ``jax.distributed.initialize``.
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
    if engine is None:
        return SingleProcess()
    return engines.get(str(engine)).join(time_limit() if timeout is None else timeout)


def _started_by() -> str | None:
    """Return the engine whose launcher started this process, or None."""
    return os.environ.get(ENGINE) or engines.find_launcher()


def _connected() -> str | None:
    """Return the engine by which the user's program has connected processes itself, or None."""
    for name, entry in known().items():
        if not entry.packages or entry.packages[0] not in sys.modules:
            continue
        with suppress(BackendUnavailable):  # a broken backend disables only itself
            if get(name).is_connected():
                return entry.engine
    return None
