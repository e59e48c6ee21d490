"""Whole runs on the digits over a slow link between two nodes of two processes each.

They compare the ways that send less with the way that sends everything.

50 ms from node to node and back, 100 Mbit/s. The nodes are network namespaces of this machine
(Linux, as root). One run of each way, and again; what is timed begins when networks and wrappers
are made, and ends when nothing is under way.
"""

import json
import subprocess
import sys
from dataclasses import asdict
from statistics import median, quantiles

from benchmarks.namespaces import Nodes, link
from benchmarks.timing import Ratio, seconds
from benchmarks.ways import WAYS, Digits, Training
from deliralike import join
from deliralike.backends.processes.launch import launched

HIDDEN = (512, 512)  # 1.2 MB of parameters
ROUNDS, EPOCHS = 3, 1
REFERENCE = "DistributedDataParallel"
LIMITS = {"local SGD": 1 / 3, "DASO": 1 / 3}


def run() -> list[Ratio]:
    """Ratios of times, as the first process saw them."""
    with link() as nodes:
        second, first = _started(nodes, 1), _started(nodes, 0)
        said = first.communicate()[0]
        if first.returncode or second.wait():
            raise RuntimeError(
                f"the nodes ended with {first.returncode} and {second.returncode}\n{said}"
            )
    line = next(line for line in said.splitlines() if line.startswith("["))
    return [Ratio(**each) for each in json.loads(line)]


def _started(nodes: Nodes, node: int) -> subprocess.Popen:
    command, environment = launched(
        "torch",
        2,
        ["benchmarks.slow_links"],
        nodes=2,
        node=node,
        address=f"{nodes.addresses[0]}:29400",
    )
    environment |= {"GLOO_SOCKET_IFNAME": nodes.device}
    return subprocess.Popen(
        nodes.command(node, command),
        env=environment,
        text=True,
        stdout=None if node else subprocess.PIPE,
    )


def main() -> None:
    """What each process does."""
    processes = join("torch")
    times = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way, found in times.items():
            training = Training(processes, way, HIDDEN, EPOCHS)
            processes.all_gather_object("the next run", None)
            found.append(seconds(training.run))
            loss = training.loss()
            if processes.is_root:
                print(
                    f"{way}: {found[-1]:.2f} s, loss {loss:.4f} after {EPOCHS} epochs",
                    file=sys.stderr,
                )
    if processes.is_root:
        steps = EPOCHS * Digits(processes).batches
        print(
            json.dumps(
                [asdict(_ratio(way, times, steps)) for way in WAYS if way != REFERENCE]
            ),
            flush=True,
        )
    processes.close()


def _ratio(way: str, times: dict[str, list[float]], steps: int) -> Ratio:
    """Of whole runs; the times that are shown are those of a step."""
    ratios = [
        ours / theirs for ours, theirs in zip(times[way], times[REFERENCE], strict=True)
    ]
    low, middle, high = quantiles(ratios, n=4)
    ours, theirs = (median(times[each]) / steps for each in (way, REFERENCE))
    return Ratio(
        f"a step over a slow link: {way}, {REFERENCE}",
        ours,
        theirs,
        middle,
        low,
        high,
        LIMITS.get(way),
    )


if __name__ == "__main__":
    sys.exit(main())
