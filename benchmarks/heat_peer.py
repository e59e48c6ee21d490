"""The training step in two processes over MPI against heat's own DataParallel: blocking, and not.

A ResNet-18 on 32x32 and an MLP with large layers, 64 samples, 32 in each process. Both step in turn
in the same processes, with the same layers and PyTorch's own SGD. heat asks for an older PyTorch
than it needs: ``pip install --no-deps -r requirements/bench-alone.txt``, as ``make bench`` does.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import torch

import deliralike.compat.heat
from benchmarks.by_hand.torch_step import torch_step
from benchmarks.timing import Ratio, compare_fresh
from deliralike.backends.processes.launch import launched
from tests.references import allow_torchvision

allow_torchvision()  # which heat imports
import heat  # noqa: E402
import torchvision  # noqa: E402

LIMIT = 0.95


def _mlp() -> torch.nn.Module:
    sizes = [3072, 2048, 2048]
    layers = [
        [torch.nn.Linear(*pair), torch.nn.ReLU()]
        for pair in zip(sizes, sizes[1:], strict=False)
    ]
    return torch.nn.Sequential(
        *(each for pair in layers for each in pair), torch.nn.Linear(sizes[-1], 10)
    )


NETWORKS = {
    "ResNet-18": (partial(torchvision.models.resnet18, num_classes=10), (3, 32, 32)),
    "MLP": (_mlp, (3072,)),
}


def run() -> list[Ratio]:
    """Ratios of times, as the first process saw them."""
    command, environment = launched(
        "mpi", 2, ["benchmarks.heat_peer"], environment=os.environ
    )
    done = subprocess.run(
        command, env=environment, check=True, text=True, stdout=subprocess.PIPE
    )
    line = next(line for line in done.stdout.splitlines() if line.startswith("[{"))
    return [Ratio(**each) for each in json.loads(line)]


def main() -> None:
    """What each process does."""
    rank, ratios = heat.MPI_WORLD.rank, []
    for title, (build, shape) in NETWORKS.items():
        rng = np.random.default_rng(rank)
        images = torch.from_numpy(rng.normal(size=(32, *shape)).astype(np.float32))
        batch = images, torch.from_numpy(rng.integers(0, 10, 32))
        for kind in ("blocking", "non-blocking"):
            make = partial(_steps, build, batch, kind == "blocking")
            what = f"{title} step in two processes over MPI, {kind} updates, heat"
            ratios.append(compare_fresh(what, make, rounds=3, pairs=7, limit=LIMIT))
    _finish()
    if rank == 0:
        print(json.dumps([asdict(ratio) for ratio in ratios]), flush=True)


def _steps(*what: Any) -> tuple[Callable[[], float], Callable[[], float]]:
    _finish()
    return _step(deliralike.compat.heat, *what), _step(heat, *what)


_networks: list[tuple[torch.nn.Module, torch.Tensor]] = []


def _finish() -> None:
    """Let every network of heat wait for its messages.

    MPI would otherwise write into the memory of a network that has long been freed.
    """
    while _networks:
        network, images = _networks.pop()
        network(images)


def _step(
    ht: ModuleType, build: Callable[[], torch.nn.Module], batch: tuple, blocking: bool
) -> Callable[[], float]:
    """A step by heat's names: heat's own, or ours."""
    network = build()
    optimizer = ht.optim.DataParallelOptimizer(
        torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    )
    network = ht.nn.DataParallel(network, ht.MPI_WORLD, optimizer, blocking)
    _networks.append((network, batch[0]))
    return torch_step(network, optimizer, *batch)


if __name__ == "__main__":
    sys.exit(main())
