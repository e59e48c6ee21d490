"""ResNet-18's training step in plain PyTorch over two processes.

DistributedDataParallel sums over gloo; each process has one thread.
"""

import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def two_processes(
    images: np.ndarray, labels: np.ndarray
) -> Iterator[Callable[[], float]]:
    """Yield a function that makes one step in both processes and waits for both.

    Each process takes half of the batch.
    """
    context = multiprocessing.get_context("spawn")
    port = _free_port()
    pipes = [context.Pipe() for _ in range(2)]
    workers = [
        context.Process(
            target=_work,
            args=(rank, port, pipe[1], images[rank::2], labels[rank::2]),
            daemon=True,
        )
        for rank, pipe in enumerate(pipes)
    ]
    for worker in workers:
        worker.start()
    ours = [pipe[0] for pipe in pipes]

    def step() -> float:
        for pipe in ours:
            pipe.send("step")
        return sum(pipe.recv() for pipe in ours) / 2

    try:
        yield step
    finally:
        for pipe in ours:
            pipe.send("end")
        for worker in workers:
            worker.join(timeout=20)


def _work(rank: int, port: int, pipe, images: np.ndarray, labels: np.ndarray) -> None:
    import torch
    from torch import distributed, nn

    from benchmarks.by_hand.torch_resnet import ResNet18

    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    network = nn.parallel.DistributedDataParallel(ResNet18())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    while pipe.recv() == "step":
        x, y = torch.from_numpy(images), torch.from_numpy(labels)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        pipe.send(float(loss.detach()))
    distributed.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]
