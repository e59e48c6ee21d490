"""Processes over a communicator of ChainerMN's."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.parallel.processes.mpi import MPIProcessGroup


class ChainerMNProcessGroup(MPIProcessGroup):
    """The processes of a ChainerMN communicator; messages go from host to host, by its MPI.

    Args:
        communicator: What ``chainermn.create_communicator`` gave a program; where gradients go by
            ChainerMN, it adds them. Without, all processes that were started together, and a
            communicator for the device of each network: ``"naive"`` on the host, ``"pure_nccl"`` on
            a GPU.
        timeout: Seconds after which a process that does not come is given up.
    """

    engine = "ChainerMN"

    def __init__(self, communicator: Any = None, timeout: float = 300.0) -> None:
        self._given = communicator
        world = MPI.COMM_WORLD if communicator is None else communicator.mpi_comm
        super().__init__(world.Dup(), timeout)  # so that messages of others do not mix with these

    def communicator_for(self, device: str) -> Any:
        """What adds the gradients of a network on that device; every process makes the call."""
        if self._given is not None:
            return self._given
        chainer.get_device(device).use()
        return chainermn.create_communicator(
            "naive" if device == arrays.HOST else "pure_nccl", mpi_comm=self.comm
        )


ChainerMNProcesses = ChainerMNProcessGroup  # deprecated alias
