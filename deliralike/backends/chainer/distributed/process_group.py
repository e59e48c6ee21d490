"""Process groups over a ChainerMN communicator."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import chainer, chainermn
from deliralike.parallel.processes.mpi import MPIProcessGroup


class ChainerMNProcessGroup(MPIProcessGroup):
    """The processes of a ChainerMN communicator; messages go from host to host, by its MPI.

    Args:
        communicator: The result of ``chainermn.create_communicator``; it adds the gradients where
            ChainerMN does. When None, the group has all processes that were started together, and a
            communicator for the device of each network: ``"naive"`` on the host, ``"pure_nccl"`` on
            a GPU.
        timeout: Seconds after which the group stops waiting for a process.
    """

    engine = "ChainerMN"

    def __init__(self, communicator: Any = None, timeout: float = 300.0) -> None:
        self._given = communicator
        world = MPI.COMM_WORLD if communicator is None else communicator.mpi_comm
        super().__init__(
            world.Dup(), timeout
        )  # so that messages of others do not mix with these

    def communicator_for(self, device: str) -> Any:
        """Return the communicator for networks on a device; every process makes the call."""
        if self._given is not None:
            return self._given
        chainer.get_device(device).use()
        name = "naive" if device == arrays.HOST else "pure_nccl"
        return chainermn.create_communicator(name, mpi_comm=self.comm)
