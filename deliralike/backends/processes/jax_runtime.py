"""The engine of JAX's own runtime, which ``deliralike launch`` and srun start."""

from __future__ import annotations

import os
import signal
import sys
from typing import ClassVar

from deliralike.backends import get
from deliralike.backends.processes.engine import Engine, Launch
from deliralike.backends.processes.environment import (
    ADDRESS,
    COUNT,
    RANK,
    in_slurm_step,
    number,
    port_of_slurm_step,
)
from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup, RankInfo


class JaxRuntime(Engine):
    """jax.distributed; JAX has no launcher, so `deliralike.backends.processes.spawn` is it."""

    name = "jax"
    package = "jax"
    first_signal: ClassVar[int | None] = signal.SIGTERM

    def command(self, launch: Launch) -> list[str]:
        """See `Engine.command`."""
        if not self.is_installed():
            raise ProcessError(
                "the engine jax needs JAX, which is not installed: pip install 'deliralike[jax]'"
            )
        total, first = launch.processes * launch.nodes, launch.processes * launch.node
        command = [sys.executable, "-m", "deliralike.backends.processes.spawn"]
        command += [str(launch.processes), str(total), str(first), launch.address]
        return [*command, *launch.module]

    def join(self, timeout: float) -> ProcessGroup:
        """See `Engine.join`; JAX finds the tasks of Slurm without help.

        The port that it would choose is the same for all steps of a job.
        """
        if in_slurm_step():
            os.environ.setdefault("JAX_COORDINATOR_PORT", str(port_of_slurm_step()))
        return get("jax").join(timeout, _rank_by_spawn())


def _rank_by_spawn() -> RankInfo | None:
    """Return the rank that `deliralike.backends.processes.spawn` gave to this process, if any."""
    if any(name not in os.environ for name in (RANK, COUNT, ADDRESS)):
        return None
    return RankInfo(number(RANK), number(COUNT), os.environ[ADDRESS])


ENGINE = JaxRuntime()
