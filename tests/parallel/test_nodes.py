"""Which processes are on one node, by what the launcher says or by what is asked for."""

import pytest

from deliralike.errors import ProcessError
from deliralike.parallel import Nodes, SingleProcess
from deliralike.parallel.processes.group import ProcessGroup

VARIABLES = (
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALNRANKS",
    "MPI_LOCALRANKID",
    "LOCAL_WORLD_SIZE",
    "LOCAL_RANK",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_LOCALID",
)


class Played(ProcessGroup):
    """One of several processes; the others say what `others` has for their rank, or what this one
    says."""

    def __init__(self, rank, count, others=None):
        super().__init__(rank, count)
        self.others, self.made = others or {}, []

    def all_gather_object(self, topic, value):
        return [
            self.others.get(rank, value) if rank != self.rank else value
            for rank in range(self.count)
        ]

    def all_gather_bytes(self, message):
        raise AssertionError

    def all_reduce_flat(self, flat):
        raise AssertionError

    def subgroup(self, ranks):
        self.made.append(tuple(ranks))
        return super().subgroup(ranks)

    def new_group(self, ranks):
        if self.rank not in ranks:
            return self
        return Played(ranks.index(self.rank), len(ranks))

    def failed(self, why):
        raise AssertionError


@pytest.fixture(autouse=True)
def unlaunched(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_groups_of_two_nodes_of_three():
    """Every process makes every group, in one order."""
    processes = Played(4, 6)
    nodes = Nodes(processes, members=3)
    assert (nodes.count, nodes.members, nodes.number, nodes.member) == (2, 3, 1, 1)
    assert processes.made == [(0, 1, 2), (3, 4, 5), (0, 3), (1, 4), (2, 5)]
    assert (nodes.node.rank, nodes.node.count, nodes.peers.rank, nodes.peers.count) == (
        1,
        3,
        1,
        2,
    )
    assert [nodes.rank_of(0, 1), nodes.rank_of(1, 2)] == [1, 5]
    assert str(nodes) == "2 nodes of 3 processes"


@pytest.mark.parametrize(
    ("members", "made"),
    [(1, [(0,), (1,), (2,), (0, 1, 2)]), (3, [(0, 1, 2), (0,), (1,), (2,)])],
)
def test_a_group_of_one_sends_nothing(members, made):
    processes = Played(2, 3)
    nodes = Nodes(processes, members)
    assert processes.made == made
    assert isinstance(nodes.node if members == 1 else nodes.peers, SingleProcess)


def test_a_process_by_itself_is_a_node():
    assert str(Nodes(SingleProcess())) == "1 node of 1 process"


@pytest.mark.parametrize(
    "variables",
    [
        {"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
        {"MPI_LOCALNRANKS": "2", "MPI_LOCALRANKID": "1"},
        {"SLURM_STEP_TASKS_PER_NODE": "2(x3)", "SLURM_LOCALID": "1"},
        {"SLURM_STEP_TASKS_PER_NODE": "2"},
    ],
)
def test_the_launcher_says_it(monkeypatch, variables):
    """torchrun, Open MPI, MPICH and Slurm."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(Nodes(Played(3, 6))) == "3 nodes of 2 processes"


def test_what_nodes_cannot_be(monkeypatch):
    with pytest.raises(
        ProcessError,
        match="the launcher does not say how many processes a node has: say members=",
    ):
        Nodes(Played(0, 4))
    with pytest.raises(
        ProcessError,
        match=r"4 processes say, in the order of ranks, that their nodes have \[3, 3, 3",
    ):
        Nodes(Played(0, 4), members=3)
    with pytest.raises(ProcessError, match=r"have \[2, 2, 2, 1\]; or say members="):
        Nodes(Played(0, 4, {3: 1}), members=2)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x1),3")
    with pytest.raises(
        ProcessError, match="every node needs the same number of processes"
    ):
        Nodes(Played(0, 5))
