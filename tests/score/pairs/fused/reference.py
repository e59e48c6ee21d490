"""A network whose layers are often fused before it is used: frozen norms, parallel convolutions,
separate projections. On PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class FrozenBatchNorm2d(nn.Module):
    """Statistics and scales are constants, as in detectors; no epsilon is added."""

    def __init__(self, n):
        super().__init__()
        self.register_buffer("weight", torch.ones(n))
        self.register_buffer("bias", torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))

    def forward(self, x):
        scale = self.weight * self.running_var.rsqrt()
        bias = self.bias - self.running_mean * scale
        return x * scale.view(1, -1, 1, 1) + bias.view(1, -1, 1, 1)


class Parallel(nn.Module):
    """A convolution of 3 by 3 and one of 1 by 1, added."""

    def __init__(self):
        super().__init__()
        self.wide = nn.Conv2d(6, 8, 3, stride=2, padding=1)
        self.narrow = nn.Conv2d(6, 8, 1, stride=2)

    def forward(self, x):
        return F.relu(self.wide(x) + self.narrow(x))


class SelfAttention(nn.Module):
    def __init__(self, width=8, heads=2):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = (
            layer(x).reshape(n, t, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(n, t, c))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1, bias=False)
        self.bn = FrozenBatchNorm2d(6)
        self.block = Parallel()
        self.attention = SelfAttention()
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.block(F.relu(self.bn(self.conv(x))))
        x = x.flatten(2).transpose(1, 2)
        x = x + self.attention(x)
        return self.head(x.mean(dim=1))


def network():
    """Weights have few digits, so that fused ones are exact in float32 too."""
    torch.manual_seed(29)
    net = Net()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.round((p + 0.2 * torch.randn_like(p)) * 128) / 128)
        net.bn.weight.copy_(torch.tensor([1.25, 0.75, -0.5, 1.5, 1.0, 0.875]))
        net.bn.bias.copy_(torch.tensor([0.25, -0.5, 0.125, 0.0, 0.375, -0.25]))
        net.bn.running_mean.copy_(torch.tensor([0.5, -0.25, 0.75, -0.125, 0.0, 0.25]))
        net.bn.running_var.copy_(torch.tensor([0.25, 1.0, 4.0, 1.0, 0.0625, 4.0]))
    return net.eval()


def batch():
    rng = np.random.default_rng(14)
    return rng.normal(size=(4, 3, 8, 6)).astype("float32"), np.array([0, 2, 1, 1])
