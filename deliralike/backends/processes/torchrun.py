"""The engine torch.distributed, which torchrun and Slurm's srun start."""

from __future__ import annotations

import os
import re
import sys

from deliralike.backends import get
from deliralike.backends.processes.engine import Engine, Launch
from deliralike.backends.processes.environment import (
    in_slurm_step,
    number,
    port_of_slurm_step,
)
from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup, RankInfo

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_SLURM = (
    "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
)


class TorchDistributed(Engine):
    """torch.distributed, on gloo or on what the program has chosen."""

    name = "torch"
    package = "torch"
    restarts_itself = True

    def command(self, launch: Launch) -> list[str]:
        """See `Engine.command`."""
        if not self.is_installed():
            raise ProcessError(
                "torchrun comes with PyTorch, which is not installed: pip install "
                "'deliralike[torch]', or choose the engine mpi"
            )
        command = [sys.executable, "-m", "torch.distributed.run"]
        command += ["--nproc-per-node", str(launch.processes)]
        if launch.nodes == 1:
            command += ["--standalone"]
        else:
            # static: the dynamic rendezvous ignores the node's rank, and looks up the first node by
            # its host name
            command += ["--nnodes", str(launch.nodes), "--node-rank", str(launch.node)]
            command += ["--rdzv-backend", "static", "--rdzv-endpoint", launch.address]
        command += ["--max-restarts", str(launch.restarts)]
        return [*command, "--no-python", sys.executable, "-m", *launch.module]

    def has_started_this_process(self) -> bool:
        """See `Engine.has_started_this_process`."""
        return in_slurm_step() or _has_all(_TORCHRUN)

    def join(self, timeout: float) -> ProcessGroup:
        """See `Engine.join`."""
        backend = get("torch")
        if _has_all(_TORCHRUN):
            return backend.join(timeout)
        if _has_all(_SLURM):
            return backend.join(timeout, _rank_in_slurm())
        if backend.is_connected():
            return backend.join(timeout)
        missing = ", ".join(name for name in _TORCHRUN if name not in os.environ)
        raise ProcessError(
            f"torch.distributed needs the variables {', '.join(_TORCHRUN)} of the environment, and "
            f"{missing} are not set: start with 'deliralike launch', torchrun or srun"
        )


def _has_all(names: tuple[str, ...]) -> bool:
    return all(name in os.environ for name in names)


def _rank_in_slurm() -> RankInfo:
    """Return the rank of this task, and the address of the first one, on the step's first node.

    SLURM_LAUNCH_NODE_IPADDR is that of the node where srun was called, which may have no task.
    """
    rank, count, nodes = _SLURM
    host = os.environ.get("MASTER_ADDR") or _first_host(os.environ[nodes])
    return RankInfo(number(rank), number(count), f"{host}:{port_of_slurm_step()}")


def _first_host(nodes: str) -> str:
    """Return the first host of one of Slurm's lists, such as ``n[07-12,20],gpu3``."""
    firsts = re.sub(r"\[(\d+)[^]]*\]", r"\1", nodes)
    return firsts.partition(",")[0]


ENGINE = TorchDistributed()
