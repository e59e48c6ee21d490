"""Several processes as PyTorch's tutorials of DistributedDataParallel have them, with a file
written on the way."""

import os
import socket
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

# was: from torch.nn.parallel import DistributedDataParallel as DDP
from deliralike import DistributedDataParallel as DDP
from deliralike import join


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(64, 16)
        self.norm = nn.BatchNorm1d(16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 10)

    def forward(self, x):
        return self.net2(self.relu(self.norm(self.net1(x))))


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


def digits(length=96):
    bunch = load_digits()
    return TensorDataset(
        torch.from_numpy(bunch.data[:length] / 16),
        torch.from_numpy(bunch.target[:length]),
    )


def train(model, loader, optimizer, sampler=None, epochs=2):
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(inputs), labels)
            loss.backward()
            optimizer.step()


def demo(rank, world_size, port, folder):
    setup(rank, world_size, port)
    torch.manual_seed(rank)
    dataset = digits()
    sampler = DistributedSampler(dataset, shuffle=False)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)

    # was: nn.SyncBatchNorm.convert_sync_batchnorm(…), which refuses CPUs
    model = ToyModel().double()
    ddp_model = DDP(model, join())  # was: DDP(model)
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.1, momentum=0.9)
    checkpoint = os.path.join(folder, "model.checkpoint")
    if rank == 0:
        torch.save(ddp_model.state_dict(), checkpoint)
    dist.barrier()
    ddp_model.load_state_dict(
        torch.load(checkpoint, map_location="cpu", weights_only=True)
    )

    train(ddp_model, loader, optimizer, sampler)
    torch.save(ddp_model.state_dict(), os.path.join(folder, f"rank{rank}.pt"))
    cleanup()


def run_demo(demo_fn, world_size, folder):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    mp.spawn(demo_fn, args=(world_size, port, folder), nprocs=world_size, join=True)


if __name__ == "__main__":
    run_demo(demo, 2, sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
