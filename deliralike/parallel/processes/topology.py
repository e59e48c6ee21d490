"""Processes by the nodes on which they run: those of one node, and their peers on the others."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from deliralike.errors import ProcessError
from deliralike.parallel.processes.group import ProcessGroup, SingleProcess

_COUNTS = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "LOCAL_WORLD_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
)
_PLACES = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "LOCAL_RANK", "SLURM_LOCALID")


class Nodes:
    """Nodes have the same number of processes each, in the order of ranks.

    The first node has the first ones.

    Attributes:
        processes: All of them.
        node: Those on this process's node.
        peers: Those with this process's place on every node.
        count, members: How many nodes there are, and processes on each.
        number, member: This process's node, and its place there.
    """

    def __init__(self, processes: ProcessGroup, members: int | None = None) -> None:
        """Make the groups; every process makes the call.

        Args:
            members: How many processes a node has; what the launcher (torchrun, mpiexec, srun) says
                when None. Another number than that of the machine makes nodes of parts of it, or of
                several.

        Raises:
            ProcessError: Nodes would differ in size, their processes do not follow each other, or
                nobody says how many a node has.
        """
        self.processes = processes
        self.members = _agreed(processes, members)
        self.count = processes.count // self.members
        self.number, self.member = divmod(processes.rank, self.members)
        of_node = [
            range(first, first + self.members) for first in range(0, processes.count, self.members)
        ]
        of_place = [range(place, processes.count, self.members) for place in range(self.members)]
        # every process takes part in making every group, in the same order
        self.node = [_group(processes, ranks) for ranks in of_node][self.number]
        self.peers = [_group(processes, ranks) for ranks in of_place][self.member]

    def rank_of(self, number: int, member: int) -> int:
        """The rank among all processes of a member of a node."""
        return number * self.members + member

    def __str__(self) -> str:
        """``2 nodes of 4 processes``."""
        nodes = "node" if self.count == 1 else "nodes"
        processes = "process" if self.members == 1 else "processes"
        return f"{self.count} {nodes} of {self.members} {processes}"


def place_on_node(processes: ProcessGroup) -> int:
    """Return the number of this process among those on its node.

    It is as the launcher counts them, or the rank if the launcher does not count.

    Example:
        >>> place_on_node(SingleProcess())
        0
    """
    place = _told(processes, os.environ)[1]
    return processes.rank if place is None else place


def _group(processes: ProcessGroup, ranks: Sequence[int]) -> ProcessGroup:
    return SingleProcess() if len(ranks) == 1 else processes.subgroup(ranks)


def _agreed(processes: ProcessGroup, members: int | None) -> int:
    """The number that all processes name."""
    told = _told(processes, os.environ) if members is None else (members, None)
    everyone = processes.all_gather_object("how many processes a node has", told)
    counts = [count for count, _ in everyone]
    if None in counts:
        raise ProcessError(
            "the launcher does not say how many processes a node has: say members=..."
        )
    if len(set(counts)) > 1 or counts[0] < 1 or processes.count % counts[0]:
        raise ProcessError(
            f"every node needs the same number of processes: {processes.count} processes say, in "
            f"the order of ranks, that their nodes have {counts}; or say members=..."
        )
    for rank, (count, place) in enumerate(everyone):
        if place is not None and place != rank % count:
            raise ProcessError(
                f"process {rank} has place {place} on its node, wanted {rank % count}: ranks must "
                "go node by node (mpiexec --map-by slot, srun --distribution=block); or say "
                "members=..."
            )
    return counts[0]


def _told(processes: ProcessGroup, environment: Mapping[str, str]) -> tuple[int | None, int | None]:
    """How many processes the launcher has started on this node, and which of them this is.

    Slurm writes ``4(x2),3``: two nodes of four, and one of three, which no place is wanted for.
    """
    if processes.count == 1:
        return 1, None
    for name, place in zip(_COUNTS, _PLACES, strict=True):
        if counts := {
            int(count)
            for count in re.findall(r"(\d+)(?:\(x\d+\))?(?:,|$)", environment.get(name, ""))
        }:
            own = environment.get(place)
            return (counts.pop() if len(counts) == 1 else 0), None if own is None else int(own)
    return None, None
