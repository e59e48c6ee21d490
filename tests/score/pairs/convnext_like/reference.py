"""A small network in the manner of ConvNeXt."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of a picture that has them first."""

    def __init__(self, channels, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=5, padding=2, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.pwconv1 = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(0.1 * torch.ones(dim))

    def forward(self, x):
        input = x
        x = self.dwconv(x)
        x = x.permute(0, 2, 3, 1)
        x = self.norm(x)
        x = self.pwconv2(self.act(self.pwconv1(x)))
        x = self.gamma * x
        x = x.permute(0, 3, 1, 2)
        return input + x


class ConvNeXt(nn.Module):
    def __init__(self, dims=(6, 10), num_classes=5):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, dims[0], kernel_size=2, stride=2), LayerNorm2d(dims[0])
        )
        self.stage1 = Block(dims[0])
        self.downsample = nn.Sequential(
            LayerNorm2d(dims[0]), nn.Conv2d(dims[0], dims[1], kernel_size=2, stride=2)
        )
        self.stage2 = Block(dims[1])
        self.norm = nn.LayerNorm(dims[1], eps=1e-6)
        self.head = nn.Linear(dims[1], num_classes)

    def forward(self, x):
        x = self.stage1(self.stem(x))
        x = self.stage2(self.downsample(x))
        return self.head(self.norm(x.mean([-2, -1])))


def network():
    torch.manual_seed(101)
    net = ConvNeXt()
    for name, p in net.named_parameters():
        if p.ndim == 1:
            p.data += 0.15 * torch.randn(p.shape)
        if name.endswith("gamma"):
            p.data = torch.rand(p.shape) + 0.2
    return net


def batch():
    rng = np.random.default_rng(9)
    return rng.normal(0.3, 1.0, (4, 3, 12, 8)).astype(np.float32), rng.integers(0, 5, 4)


def loss(network, x, y):
    weight = torch.tensor([0.5, 1.0, 2.0, 1.0, 1.5], dtype=x.dtype)
    return F.cross_entropy(network(x), y, weight=weight)
