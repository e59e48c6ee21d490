"""An epoch of small networks as a user would write it in plain PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F


def mlp(features: int, hidden: int):
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(features, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, 10),
    )


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = (
            torch.nn.Conv2d(1, 6, 5, padding=2),
            torch.nn.Conv2d(6, 16, 5),
        )
        self.fc1, self.fc2, self.fc3 = (
            torch.nn.Linear(400, 120),
            torch.nn.Linear(120, 84),
            torch.nn.Linear(84, 10),
        )

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


def training_epoch(
    kind: str,
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    torch.manual_seed(0)
    network = LeNet() if kind == "lenet" else mlp(inputs[0].size, hidden)
    optimizer = torch.optim.SGD(network.parameters(), lr=lr, momentum=momentum)
    rng = np.random.default_rng(0)

    def epoch():
        network.train()
        order = rng.permutation(len(inputs))
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            x, y = torch.from_numpy(inputs[chosen]), torch.from_numpy(labels[chosen])
            optimizer.zero_grad()
            loss = F.cross_entropy(network(x), y)
            loss.backward()
            optimizer.step()
            value = loss.item()
        return value

    return epoch
