"""What the processes of the tests do: proofs over processes."""

from deliralike import backends, compare
from deliralike.conformance.levels import replicas
from deliralike.parallel.processes.network import SumOverProcesses
from tests.planted import replicas as planted
from tests.planted.replica_mistakes import with_parallelism


def proof(processes, backend):
    """A right candidate: the status, and the largest difference, over processes."""
    found = compare(
        planted.subject("torch"),
        planted.subject(backend),
        planted.batch(7),
        levels=("L0", "L1", "L6"),
        processes=processes,
    )
    level = found.level("L6")
    return [
        level.status,
        level.figures["differences"],
        [str(finding) for finding in level.findings],
    ]


def averaged(network, processes):
    """Gradients of processes that are averaged, though each is a part of the whole already."""
    made = backends.DistributedDataParallel(network, processes, takes_whole=True)

    class Averaged(SumOverProcesses):
        def __call__(self, optimizer, gradients):
            total = super().__call__(optimizer, gradients)
            return {
                name: None if each is None else each / processes.count
                for name, each in total.items()
            }

    return with_parallelism(made, update_hooks=lambda self: ([Averaged(self.network)], []))


def by_share(network, processes):
    """Statistics of each share by itself."""
    return backends.DistributedDataParallel(network, processes, takes_whole=True, buffers="root")


def mistaken(processes, how):
    """A candidate that goes wrong over processes: what is found."""
    distribute = {"averaged": averaged, "by share": by_share}[how]
    right = planted.subject("torch"), planted.subject("torch")
    found = replicas.level(*right, planted.batch(7), (), processes, distribute)
    causes = {
        f.explanation.cause
        for f in found.findings
        if f.explanation is not None and f.explanation.known
    }
    return [found.status, sorted(causes)]
