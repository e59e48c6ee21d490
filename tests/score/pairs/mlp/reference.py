"""The smallest pair: two linear layers with a norm between them."""

import numpy as np
import torch
from torch import nn


class MLP(nn.Module):
    """A classifier of rows."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 9)
        self.norm = nn.LayerNorm(9)
        self.out = nn.Linear(9, 4)

    def forward(self, x):
        return self.out(torch.tanh(self.norm(self.hidden(x))))


def network():
    """The classifier with weights from a generator."""
    torch.manual_seed(4)
    net = MLP()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return net


def batch():
    """Rows and their classes."""
    rng = np.random.default_rng(7)
    return rng.normal(size=(5, 6)).astype(np.float32), rng.integers(0, 4, size=5)
