"""An epoch of a small network as a user would write it in plain PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F


def training_epoch(inputs: np.ndarray, labels: np.ndarray, batch: int, hidden: int, lr: float, momentum: float):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(inputs[0].size, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
    )
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
