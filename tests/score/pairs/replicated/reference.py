"""A small network with batch norms, which one device trains on the whole batch, on PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

OPTIONS = {"replicas": (2,), "levels": ("L0", "L1", "L3", "L6")}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.fc1 = nn.Linear(6 * 2 * 3, 7, bias=False)
        self.bn2 = nn.BatchNorm1d(7)
        self.fc2 = nn.Linear(7, 3)

    def forward(self, x):
        x = F.avg_pool2d(torch.relu(self.bn1(self.conv(x))), 2)
        x = torch.relu(self.bn2(self.fc1(x.flatten(1))))
        return self.fc2(x)


def network():
    torch.manual_seed(31)
    net = Net()
    with torch.no_grad():
        for bn in (net.bn1, net.bn2):
            bn.weight.uniform_(0.5, 1.5)
            bn.bias.normal_(0, 0.3)
            bn.running_mean.normal_(0, 0.5)
            bn.running_var.uniform_(0.5, 2.0)
    return net


def batch():
    rng = np.random.default_rng(15)
    return rng.normal(0.3, 1.4, size=(7, 2, 4, 6)).astype("float32"), rng.integers(0, 3, 7)


def loss(network, x, labels):
    return F.cross_entropy(network(x), labels)


OPTIMIZERS = {"sgd": lambda network: torch.optim.SGD(network.parameters(), lr=0.1)}
