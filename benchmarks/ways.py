"""Ways to train the digits in several processes, which differ in what they send, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from deliralike import DistributedDataParallel, data, zoo
from deliralike.backends.torch.distributed import TorchProcessGroup
from deliralike.compat.heat.nn.multi_gpu import DataParallelMultiGPU
from deliralike.compat.heat.optim.daso import DASO
from deliralike.optim.rules import rule
from deliralike.parallel import LocalSGD

BATCH = 16  # of each process
RATE, DECAY = 0.3, 0.01  # the decay of weights makes for a loss below which none goes
EVERY = 8  # batches from one average of local SGD to the next


@dataclass(frozen=True)
class Way:
    """How to train on one process: a step, which gives its loss, and the end of an epoch."""

    step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    end_epoch: Callable[[float], object] = lambda loss: None


def loss_of(network, images, labels):
    return torch.nn.functional.cross_entropy(network(images), labels)


def stepping(network, optimizer):
    """A step as it is written by hand."""

    def step(images, labels):
        optimizer.zero_grad()
        loss = loss_of(network, images, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def sgd(network):
    return torch.optim.SGD(network.parameters(), lr=RATE, weight_decay=DECAY)


def bare(processes, network, epochs, batches):
    """PyTorch's own DistributedDataParallel."""
    return Way(
        stepping(torch.nn.parallel.DistributedDataParallel(network), sgd(network))
    )


def wrapped(processes, network, epochs, batches):
    """Ours, which adds gradients during backward, and says at every step what it sends."""
    network = DistributedDataParallel(network, processes, in_backward={})
    optimizer = network.backend.optimizer(
        rule("sgd", lr=RATE, weight_decay=DECAY), network
    )
    return Way(lambda *batch: optimizer.update(loss_of, *batch))


def wrapped_knowing(processes, network, epochs, batches):
    """The same, where every process knows that all have equal shares, as bare wrappers assume."""
    network = DistributedDataParallel(network, processes, in_backward={})
    optimizer = network.backend.optimizer(
        rule("sgd", lr=RATE, weight_decay=DECAY), network
    )

    def step(*batch):
        with network.parallelism.share_sizes((BATCH,) * processes.count):
            return optimizer.update(loss_of, *batch)

    return Way(step)


def local_sgd(processes, network, epochs, batches):
    """Each by itself; parameters are averaged every few batches, and at the end of an epoch."""
    network = DistributedDataParallel(
        network, processes, averaging=LocalSGD(every=EVERY)
    )
    optimizer = network.backend.optimizer(
        rule("sgd", lr=RATE, weight_decay=DECAY), network
    )
    return Way(
        lambda *batch: optimizer.update(loss_of, *batch),
        lambda loss: network.parallelism.synchronize(),
    )


def daso(processes, network, epochs, batches):
    """Two nodes, cycling: averages across nodes every few batches, with no wait for them."""
    optimizer = DASO(
        sgd(network),
        epochs,
        processes,
        warmup_epochs=0,
        cooldown_epochs=0,
        members=processes.count // 2,
    )
    optimizer.last_batch = batches
    return Way(
        stepping(DataParallelMultiGPU(network, optimizer), optimizer),
        optimizer.epoch_loss_logic,
    )


WAYS = {
    "DistributedDataParallel": bare,
    "ours": wrapped,
    "ours, sizes known": wrapped_knowing,
    "local SGD": local_sgd,
    "DASO": daso,
}


class Digits:
    """The digits of scikit-learn, in equal shares: the batches of this process, and all of them."""

    def __init__(self, processes: TorchProcessGroup) -> None:
        train = data.load("digits").train
        self.images = torch.as_tensor(train.inputs, dtype=torch.float32).flatten(1)
        self.labels = torch.as_tensor(train.labels)
        self.processes = processes
        self.batches = len(self.labels) // (BATCH * processes.count)

    def epoch(self, number: int):
        """Another order in each epoch, the same for every way."""
        order = torch.randperm(
            len(self.labels), generator=torch.Generator().manual_seed(number)
        )
        for own in order[self.processes.rank :: self.processes.count].split(BATCH)[
            : self.batches
        ]:
            yield self.images[own], self.labels[own]


class Training:
    """A whole run of one way, on this process."""

    def __init__(
        self, processes: TorchProcessGroup, way: str, hidden: Sequence[int], epochs: int
    ) -> None:
        self.processes, self.epochs, self.digits = processes, epochs, Digits(processes)
        self.network = zoo.build(
            "mlp",
            backend="torch",
            in_features=64,
            hidden=hidden,
            out_features=10,
            seed=3,
        )
        self.way = WAYS[way](processes, self.network, epochs, self.digits.batches)

    def run(self) -> None:
        """All epochs, until every process has come to their end."""
        for epoch in range(self.epochs):
            losses = [
                float(self.way.step(*batch)) for batch in self.digits.epoch(epoch)
            ]
            self.way.end_epoch(sum(losses) / len(losses))
        self.processes.all_gather_object("the end of a run", None)

    @torch.no_grad()
    def loss(self) -> float:
        """That of all digits, with the mean of the parameters of all processes."""
        for parameter in self.network.parameters():
            total = self.processes.all_reduce_flat(parameter.numpy())
            parameter.copy_(torch.from_numpy(total / self.processes.count))
        self.network.eval()
        return float(loss_of(self.network, self.digits.images, self.digits.labels))
