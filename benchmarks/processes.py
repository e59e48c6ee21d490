"""The training step in two processes against PyTorch's DistributedDataParallel, stepped by hand.

A ResNet-18 on 32x32 and an MLP with large layers, 32 samples in each process. Both step in turn in
the same processes, with batch norm by share, as PyTorch has it. Written once, the step also gives
the loss of the whole batch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import torch

from benchmarks.by_hand.torch_step import torch_step
from benchmarks.timing import Ratio, compare_fresh
from deliralike import DistributedDataParallel, join, zoo
from deliralike.backends.processes.launch import launched
from deliralike.optim.rules import rule
from deliralike.parallel import ProcessGroup

NETWORKS = {
    "ResNet-18": ("resnet18", {"num_classes": 10}, (3, 32, 32)),
    "MLP": (
        "mlp",
        {"in_features": 3072, "hidden": (2048, 2048), "out_features": 10},
        (3072,),
    ),
}
LIMIT = 1.02  # of gradients during backward


def run() -> list[Ratio]:
    """Ratios of times, as the first process saw them."""
    command, environment = launched(
        "torch", 2, ["benchmarks.processes"], environment=os.environ
    )
    done = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("["))
    return [Ratio(**each) for each in json.loads(line)]


def main() -> None:
    """What each process does."""
    processes = join("torch")
    ratios = []
    for title, (name, settings, shape) in NETWORKS.items():
        rng = np.random.default_rng(processes.rank)
        batch = (
            rng.normal(size=(32, *shape)).astype(np.float32),
            rng.integers(0, 10, 32),
        )
        for when, keywords, limit in (
            ("during backward", {}, LIMIT),
            ("after backward", None, None),
        ):
            make = lambda: (  # noqa: E731
                _ours(processes, name, settings, batch, keywords),  # noqa: B023
                _theirs(name, settings, batch),  # noqa: B023
            )
            what = f"{title} step in two processes, gradients {when}, bare DistributedDataParallel"
            ratios.append(compare_fresh(what, make, rounds=3, pairs=10, limit=limit))
    if processes.is_root:
        print(json.dumps([asdict(ratio) for ratio in ratios]), flush=True)
    processes.close()


def _ours(
    processes: ProcessGroup,
    name: str,
    settings: dict,
    batch: tuple,
    keywords: dict | None,
) -> Callable[[], float]:
    network = zoo.build(name, backend="torch", **settings)
    network = DistributedDataParallel(
        network, processes, buffers="root", in_backward=keywords
    )
    optimizer = network.backend.optimizer(rule("sgd", lr=0.01, momentum=0.9), network)
    return lambda: network.backend.number(optimizer.update(_loss, *batch))


def _loss(network, images, labels):
    return network.nn.cross_entropy(network(images), labels)


def _theirs(name: str, settings: dict, batch: tuple) -> Callable[[], float]:
    network = torch.nn.parallel.DistributedDataParallel(
        zoo.build(name, backend="torch", **settings)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    return torch_step(network, optimizer, *map(torch.from_numpy, batch))


if __name__ == "__main__":
    sys.exit(main())
