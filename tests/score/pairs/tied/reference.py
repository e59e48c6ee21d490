"""An autoencoder with tied weights, and a layer that is used twice, on PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class TiedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc1 = nn.Linear(9, 6)
        self.enc2 = nn.Linear(6, 4)
        self.mix = nn.Linear(4, 4)
        self.refine = nn.Linear(4, 4)
        self.dec_bias2 = nn.Parameter(torch.zeros(6))
        self.dec_bias1 = nn.Parameter(torch.zeros(9))

    def encode(self, x):
        h = F.leaky_relu(self.enc1(x), 0.2)
        return self.mix(F.leaky_relu(self.enc2(h), 0.2))

    def decode(self, z):
        h = F.linear(z, self.mix.weight.t())
        h = F.leaky_relu(F.linear(h, self.enc2.weight.t(), self.dec_bias2), 0.2)
        return F.linear(h, self.enc1.weight.t(), self.dec_bias1)

    def forward(self, x):
        z = self.encode(x)
        z = z + torch.tanh(self.refine(z))
        z = z + torch.tanh(self.refine(z))
        return self.decode(z)


def network():
    torch.manual_seed(13)
    net = TiedAutoencoder()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape) * 0.2)
    return net


def batch():
    x = np.random.default_rng(9).normal(size=(5, 9)).astype("float32")
    return x, x


def loss(network, x, target):
    return F.mse_loss(network(x), target)
