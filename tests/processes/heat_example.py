"""A script as heat's users have it, for the digits: only its import and its loaders are others."""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset

import deliralike.compat.heat as ht

TRAINING = 512  # of 1797 pictures


class Net(ht.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = ht.nn.Conv2d(1, 16, 3, 1)
        self.conv2 = ht.nn.Conv2d(16, 32, 3, 1)
        self.fc1 = ht.nn.Linear(128, 64)
        self.fc2 = ht.nn.Linear(64, 10)

    def forward(self, x):
        x = ht.nn.functional.relu(self.conv1(x))
        x = ht.nn.functional.relu(self.conv2(x))
        x = ht.nn.functional.max_pool2d(x, 2)
        x = ht.nn.functional.relu(self.fc1(torch.flatten(x, 1)))
        return ht.nn.functional.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for data, target in train_loader:
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = ht.nn.functional.nll_loss(output, target)
        loss.backward()
        optimizer.step()


def test(model, device, test_loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in test_loader:
            data, target = data.to(device), target.to(device)
            correct += model(data).argmax(dim=1).eq(target).sum().item()
    return correct / len(test_loader.dataset)


def digits():
    bunch = load_digits()
    images = torch.from_numpy(bunch.images[:, None] / 16)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    return TensorDataset(images[:TRAINING], labels[:TRAINING]), TensorDataset(
        images[TRAINING:], labels[TRAINING:]
    )


def share(dataset, comm):
    """What heat's dataset holds of all samples in this process; dealt out, so that batches are the
    same."""
    return Subset(dataset, range(comm.rank, len(dataset), comm.size))


def main(processes, blocking):
    parser = argparse.ArgumentParser(description="heat's example")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.9)
    args = parser.parse_args([])
    torch.manual_seed(1)
    device = torch.device("cpu")

    train_set, test_set = digits()
    train_loader = DataLoader(
        share(train_set, ht.MPI_WORLD), batch_size=32 // ht.MPI_WORLD.size
    )
    test_loader = DataLoader(test_set, batch_size=256)
    model = Net().double().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    dp_optim = ht.optim.DataParallelOptimizer(optimizer, blocking=blocking)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    dp_model = ht.nn.DataParallel(
        model,
        comm=ht.MPI_WORLD,
        optimizer=dp_optim,
        blocking_parameter_updates=blocking,
    )
    for epoch in range(1, args.epochs + 1):
        train(args, dp_model, device, train_loader, dp_optim, epoch)
        accuracy = test(dp_model, device, test_loader)
        scheduler.step()
    return [
        accuracy,
        {name: value.tolist() for name, value in dp_model.state_dict().items()},
    ]


def alone():
    """The same in PyTorch without heat, in one process."""
    torch.manual_seed(1)
    train_set, test_set = digits()
    model = Net().double()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.9)
    for epoch in range(2):
        train(
            None, model, "cpu", DataLoader(train_set, batch_size=32), optimizer, epoch
        )
        accuracy = test(model, "cpu", DataLoader(test_set, batch_size=256))
        scheduler.step()
    return [
        accuracy,
        {name: value.tolist() for name, value in model.state_dict().items()},
    ]
