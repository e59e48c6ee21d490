"""A training step on 1, 2 and 4 ranks, beside the prediction of the model of step time.

The model is given figures of the same run.

A ResNet-18 on 32x32 and an MLP with large layers, a batch of 64 that the ranks share. The model is
given the seconds of forward, backward and update by hand, without messages, while the other ranks
do the same, and a link's latency and bandwidth from a small and a large sum. All of it is measured
in turn, in rounds, by the same processes; those that a count leaves out wait. One rank is also
compared with one process that has two threads.
"""

import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.processes import NETWORKS
from benchmarks.step_time import Link, Work, ring_all_reduce, synchronous
from benchmarks.timing import Ratio, seconds
from deliralike import DistributedDataParallel, join, zoo
from deliralike.backends.processes.launch import launched
from deliralike.backends.torch.distributed import TorchProcessGroup
from deliralike.optim.rules import rule

RANKS = (1, 2, 4)
BATCH = 64
ROUNDS, STEPS, WARMUP = 2, 4, 1
SMALL, LARGE = 1, 2**22  # float32 numbers
WHEN = {
    "during backward": {},
    "after backward": None,
}  # what DistributedDataParallel is told

Times = Mapping[str, Sequence[float]]


def run() -> list[Ratio]:
    """Ratios of times, as the first process saw them; what the model was given is printed."""
    command, environment = launched(
        "torch", max(RANKS), ["benchmarks.scaling"], environment=os.environ
    )
    done = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    *said, ratios = [line for line in done.stdout.splitlines() if line]
    print(*dict.fromkeys(said), sep="\n")  # each once
    return [Ratio(**each) for each in json.loads(ratios)]


def main() -> None:
    """What each process does."""
    processes = join("torch")
    found = defaultdict(lambda: defaultdict(list))
    for _ in range(ROUNDS):
        for title in NETWORKS:
            for count in RANKS:
                group = processes.subgroup(list(range(count)))
                if processes.rank < count:
                    for name, times in _measured(group, title).items():
                        found[title, count][name] += times
                processes.all_gather_object("the others are done", None)
    if processes.is_root:
        print(
            json.dumps(
                [asdict(ratio) for title in NETWORKS for ratio in _ratios(title, found)]
            ),
            flush=True,
        )
    processes.close()


# What is measured
# -----------------------------------------------------------------------------


def _measured(group: TorchProcessGroup, title: str) -> Times:
    """Seconds of everything, in turn, on networks that are made anew."""
    batch = _batch(title, BATCH // group.count)
    contestants = {"small": _sum(group, SMALL), "large": _sum(group, LARGE)} | _by_hand(
        title, batch
    )
    contestants |= {
        when: _ours(group, title, batch, keywords) for when, keywords in WHEN.items()
    }
    if group.count == 1:
        contestants["two threads"] = _with_threads(2, _ours(group, title, batch, None))
    found = {name: [] for name in contestants}
    for step in range(WARMUP + STEPS):
        for name, contestant in contestants.items():
            group.all_gather_object("the next one", None)
            took = seconds(contestant)
            found[name] += [took] if step >= WARMUP else []
    return found


def _batch(title: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    return rng.normal(size=(size, *NETWORKS[title][2])).astype(
        np.float32
    ), rng.integers(0, 10, size)


def _sum(group: TorchProcessGroup, size: int) -> Callable[[], object]:
    array = torch.zeros(size)
    return lambda: dist.all_reduce(array, group=group.group)


def _network(title: str):
    name, settings, _ = NETWORKS[title]
    return zoo.build(name, backend="torch", **settings)


def _by_hand(title: str, batch: tuple) -> dict[str, Callable[[], object]]:
    """The parts of a step without messages; each goes on from the one before."""
    network = _network(title)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    images, labels = map(torch.from_numpy, batch)
    losses = []

    def forward() -> None:
        losses.append(torch.nn.functional.cross_entropy(network(images), labels))

    def backward() -> None:
        optimizer.zero_grad()
        losses.pop().backward()

    return {"forward": forward, "backward": backward, "update": optimizer.step}


def _ours(
    group: TorchProcessGroup, title: str, batch: tuple, keywords: dict | None
) -> Callable[[], object]:
    network = DistributedDataParallel(
        _network(title), group, buffers="root", in_backward=keywords
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)
    return lambda: optimizer.update(_loss, *batch)


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)


def _with_threads(count: int, step: Callable[[], object]) -> Callable[[], None]:
    def stepped() -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        step()
        torch.set_num_threads(before)

    return stepped


# What is made of it
# -----------------------------------------------------------------------------


def _ratios(title: str, found: Mapping[tuple[str, int], Times]) -> list[Ratio]:
    ratios = []
    alone = found[title, 1]
    for count in RANKS:
        times = found[title, count]
        for when in WHEN if count > 1 else ["after backward"]:
            name = f"{title} step on {count} ranks, gradients {when}, predicted"
            ratios.append(
                _ratio(name, times[when], [_predicted(title, count, times, when)])
            )
        if count > 1:
            ratios.append(
                _ratio(
                    f"{title} step on {count} ranks, on one",
                    times["during backward"],
                    alone["after backward"],
                )
            )
    two = found[title, 2]["during backward"]
    return [
        *ratios,
        _ratio(
            f"{title} step on 2 ranks, one process with two threads",
            two,
            alone["two threads"],
        ),
    ]


def _ratio(name: str, ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Of our times by the median of theirs, as they were not taken in pairs."""
    middle = statistics.median(theirs)
    low, ratio, high = (each / middle for each in statistics.quantiles(ours, n=4))
    return Ratio(name, statistics.median(ours), middle, ratio, low, high)


def _predicted(title: str, count: int, times: Times, when: str) -> float:
    middle = {name: statistics.median(each) for name, each in times.items()}
    size = sum(parameter.nbytes for parameter in _network(title).parameters())
    work = Work(middle["forward"], middle["backward"], middle["update"], size)
    link = _link(count, middle["small"], middle["large"])
    parts = " + ".join(
        f"{part * 1e3:.1f}" for part in (work.forward, work.backward, work.update)
    )
    print(
        f"{title} on {count} ranks: {parts} ms, {size / 1e6:.1f} MB, {link.latency * 1e3:.2f} ms, "
        f"{link.bandwidth / 1e9:.2f} GB/s"
    )
    buckets = work.buckets if when == "during backward" else 1
    return synchronous(work, lambda size: ring_all_reduce(count, size, link), buckets)


def _link(count: int, small: float, large: float) -> Link:
    """Latency and bandwidth of which the ring makes these seconds."""
    if count == 1:
        return Link(0.0, float("inf"))
    rounds = 2 * (count - 1)
    return Link(small / rounds, rounds / count * 4 * (LARGE - SMALL) / (large - small))


if __name__ == "__main__":
    sys.exit(main())
