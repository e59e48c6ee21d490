"""The topology of processes: those of one node, and their peers on the other nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup

# The environment variables of launchers: the number of processes of a node, and the local rank.
_LAUNCHER_VARIABLES = (
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("MPI_LOCALNRANKS", "MPI_LOCALRANKID"),
    ("LOCAL_WORLD_SIZE", "LOCAL_RANK"),
    ("SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
)


class Nodes:
    """Nodes with the same number of processes each, in the order of ranks.

    The first node has the first processes.

    Attributes:
        processes: The group of all processes.
        node: The group of the processes on this process's node.
        peers: The group of the processes with this process's place on every node.
        count: The number of nodes.
        members: The number of processes on each node.
        number: The number of this process's node.
        member: This process's place on its node.
    """

    def __init__(self, processes: ProcessGroup, members: int | None = None) -> None:
        """Create the groups; every process makes the call.

        Args:
            members: The number of processes of a node; None takes it from the launcher (torchrun,
                mpiexec, srun). Another number than that of the machine makes nodes of parts of it,
                or of several machines. Ranks are to go node by node, as ``mpiexec --map-by slot``
                and ``srun --distribution=block`` count them.

        Raises:
            ProcessError: Nodes would differ in size, or the launcher does not say how many
                processes a node has.
        """
        self.processes = processes
        self.members = _agreed_size(processes, members)
        self.count = processes.count // self.members
        self.number, self.member = divmod(processes.rank, self.members)
        # Every process takes part in creating every group, in the same order.
        nodes = []
        for first in range(0, processes.count, self.members):
            nodes.append(processes.subgroup(range(first, first + self.members)))
        peers = []
        for place in range(self.members):
            ranks = range(place, processes.count, self.members)
            peers.append(processes.subgroup(ranks))
        self.node = nodes[self.number]
        self.peers = peers[self.member]

    def rank_of(self, number: int, member: int) -> int:
        """Return the rank among all processes of a member of a node."""
        return number * self.members + member

    def __str__(self) -> str:
        """Return ``2 nodes of 4 processes``."""
        nodes = "node" if self.count == 1 else "nodes"
        processes = "process" if self.members == 1 else "processes"
        return f"{self.count} {nodes} of {self.members} {processes}"


def place_on_node(processes: ProcessGroup) -> int:
    """Return the local rank of this process, as its launcher counts.

    It is the rank among all processes where the launcher does not count.

    Example:
        >>> from deliralike.parallel import SingleProcess
        >>> place_on_node(SingleProcess())
        0
    """
    _, place = _size_and_place(processes, os.environ)
    return processes.rank if place is None else place


def _agreed_size(processes: ProcessGroup, members: int | None) -> int:
    """Return the number of processes of a node that all processes name.

    Raises:
        ProcessError: They name different ones or none.
    """
    if members is None:
        members, _ = _size_and_place(processes, os.environ)
    counts = processes.all_gather_object("how many processes a node has", members)
    if None in counts:
        raise ProcessError(
            "the launcher does not say how many processes a node has: say members=..."
        )
    if len(set(counts)) > 1 or counts[0] < 1 or processes.count % counts[0]:
        raise ProcessError(
            f"every node needs the same number of processes: {processes.count} processes say, in "
            f"the order of ranks, that their nodes have {counts}; or say members=..."
        )
    return counts[0]


def _size_and_place(
    processes: ProcessGroup, environment: Mapping[str, str]
) -> tuple[int | None, int | None]:
    """Return how many processes the launcher started on this node, and the place of this one.

    Where nodes differ in size the number is 0. Both are None where the environment has nothing.
    """
    if processes.count == 1:
        return 1, None
    for size_variable, place_variable in _LAUNCHER_VARIABLES:
        # Slurm writes "4(x2),3" for two nodes of four processes and one of three.
        text = environment.get(size_variable, "")
        sizes = {int(size) for size in re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", text)}
        if not sizes:
            continue
        size = sizes.pop() if len(sizes) == 1 else 0
        place = environment.get(place_variable)
        return size, None if place is None else int(place)
    return None, None
