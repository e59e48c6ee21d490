"""The engines over MPI, which mpiexec and ``srun --mpi=pmix`` start: mpi4py and ChainerMN."""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

from deliralike.backends import get
from deliralike.backends.processes.engine import Engine, Launch
from deliralike.backends.processes.environment import in_slurm_step, number
from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_STDERR = 2


class MPIEngine(Engine):
    """MPI by mpi4py, for networks of every backend."""

    name = "mpi"
    package = "mpi4py"
    finds_nodes = True
    # At SIGTERM and Ctrl-C mpiexec kills its processes at once, before they can save their state;
    # SIGUSR1 it passes on.
    first_signal: ClassVar[int | None] = signal.SIGUSR1

    def command(self, launch: Launch) -> list[str]:
        """See `Engine.command`."""
        beside_python = Path(sys.executable).parent / "mpiexec"
        mpiexec = (
            str(beside_python) if beside_python.exists() else shutil.which("mpiexec")
        )
        if mpiexec is None or not self.is_installed():
            raise ProcessError(
                f"the engine {self.name} needs mpiexec and mpi4py: pip install 'deliralike[mpi]'"
            )
        command = [mpiexec, "-n", str(launch.processes * launch.nodes)]
        if "HYDRA" not in self._version(mpiexec):
            # unlike MPICH, Open MPI binds a process to one core and refuses more processes than
            # cores
            command += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
        return [*command, sys.executable, "-m", "mpi4py", "-m", *launch.module]

    def _version(self, mpiexec: str) -> str:
        environment = os.environ | self.environment()
        return subprocess.run(
            [mpiexec, "--version"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        ).stdout

    def environment(self) -> dict[str, str]:
        """Without these Open MPI refuses the root user, the only one of a container."""
        if os.geteuid() != 0:
            return {}
        return dict.fromkeys(
            ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"), "1"
        )

    def has_started_this_process(self) -> bool:
        """See `Engine.has_started_this_process`."""
        is_of_mpiexec = any(number(name) > 1 for name in _SIZES)
        return is_of_mpiexec or ("PMIX_RANK" in os.environ and in_slurm_step())

    def join(self, timeout: float) -> ProcessGroup:
        """See `Engine.join`."""
        return _wait_for_mpi_to_start(timeout).MPIProcessGroup(timeout=timeout)


class ChainerMNEngine(MPIEngine):
    """ChainerMN over MPI, by which it may add the gradients of Chainer's networks."""

    name = "chainermn"

    def has_started_this_process(self) -> bool:
        """Nothing in the environment tells it from MPI alone: it is chosen by name."""
        return False

    def join(self, timeout: float) -> ProcessGroup:
        """See `Engine.join`."""
        _wait_for_mpi_to_start(timeout)
        return get("chainer").join(timeout)


def _wait_for_mpi_to_start(timeout: float) -> Any:
    """Import MPI, whose start waits for all processes.

    Nothing can interrupt that wait, so a timer ends the process; its traceback names this function.
    """
    faulthandler.dump_traceback_later(timeout, exit=True, file=_STDERR)
    try:
        return importlib.import_module("deliralike.parallel.processes.mpi")
    finally:
        faulthandler.cancel_dump_traceback_later()


MPI, CHAINERMN = MPIEngine(), ChainerMNEngine()
