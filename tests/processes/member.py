"""One of the processes of `tests.processes.crews`."""

import importlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deliralike.backends.processes.join import join

PATIENCE = 300.0  # seconds that processes wait for each other
_RESTARTED = "TORCHELASTIC_RESTART_COUNT"


def main(engine: str, address: str) -> None:
    """Do one job after another, until whoever gives them goes."""
    world = None if engine == "torch" else join(engine, timeout=PATIENCE)
    rank = int(os.environ["RANK"]) if world is None else world.rank
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        jobs = connection.makefile("rw")
        print(rank, file=jobs, flush=True)
        for job in iter(jobs.readline, ""):
            number, count, function, arguments = json.loads(job)
            with processes_of_job(engine, world, rank, count, number) as processes:
                module, name = function.split(":")
                result = getattr(importlib.import_module(module), name)(
                    processes, *arguments
                )
                answer = json.dumps(result)
            print(answer, file=jobs, flush=True)
    if world is not None:
        world.close()


@contextmanager
def processes_of_job(
    engine: str, world: Any, rank: int, count: int, number: int
) -> Iterator[Any]:
    """The first so many processes; the errors of each job are told as those of a program that was
    started for it."""
    hook = sys.excepthook
    if engine == "torch":
        with fresh_connection(count, number) as processes:
            yield processes
    elif engine == "mpi":
        processes = part_of_mpi(world, count)
        yield processes
        processes.close()
    else:
        world.collectives.clear()
        yield world
    sys.excepthook = hook


@contextmanager
def fresh_connection(count: int, number: int) -> Iterator[Any]:
    """Processes as torchrun would connect them if it had started just these, and no others
    before."""
    # each restart has keys of its own in torchrun's store: so those of jobs do not mix
    os.environ |= {"WORLD_SIZE": str(count), _RESTARTED: str(number)}
    processes = join("torch", timeout=PATIENCE)
    yield processes
    processes.close()
    threads = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    assert not any("gloo" in name for name in threads), (
        f"threads of the engine are left: {threads}"
    )


def part_of_mpi(world: Any, count: int) -> Any:
    """A communicator of the first so many, by a duplicate for all."""
    mpi = importlib.import_module("deliralike.parallel.processes.mpi")
    everyone = mpi.MPI.COMM_WORLD
    comm = everyone.Create_group(everyone.Get_group().Incl(range(count)))
    return mpi.MPIProcessGroup(comm, PATIENCE)


if __name__ == "__main__":
    main(*sys.argv[1:])
