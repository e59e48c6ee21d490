"""A sequence classifier in functional style: parameters, and functions that use them."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def attend(x, wq, wk, wv):
    """One head; every step looks at itself and at the two before it."""
    q, k, v = x @ wq, x @ wk, x @ wv
    scores = torch.einsum("bid,bjd->bij", q, k) / q.shape[-1] ** 0.5
    i = torch.arange(x.shape[1])
    distance = i[:, None] - i[None, :]
    scores = scores.masked_fill((distance < 0) | (distance > 2), float("-inf"))
    return F.softmax(scores, dim=-1) @ v


class Classifier(nn.Module):
    def __init__(self, inputs=5, width=8, classes=4):
        super().__init__()

        def matrix(*shape):
            return nn.Parameter(torch.randn(*shape) / shape[0] ** 0.5)

        self.w_in = matrix(inputs, width)
        self.b_in = nn.Parameter(0.1 * torch.randn(width))
        self.norm_scale = nn.Parameter(1 + 0.2 * torch.randn(width))
        self.norm_shift = nn.Parameter(0.2 * torch.randn(width))
        self.wq = matrix(width, 6)
        self.wk = matrix(width, 6)
        self.wv = matrix(width, width)
        self.w_gate = matrix(width, 14)
        self.w_up = matrix(width, 14)
        self.w_down = matrix(14, width)
        self.rms = nn.Parameter(1 + 0.2 * torch.randn(width))
        self.filters = nn.Parameter(0.4 * torch.randn(9, width, 3))
        self.prototypes = nn.Parameter(torch.randn(classes, 9))
        self.temperature = nn.Parameter(torch.tensor(1.7))

    def forward(self, x):
        h = F.gelu(x @ self.w_in + self.b_in)
        h = F.layer_norm(h, (8,), self.norm_scale, self.norm_shift, eps=1e-5)
        h = h + attend(h, self.wq, self.wk, self.wv)
        y = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * self.rms
        y = F.silu(y @ self.w_gate) * (y @ self.w_up)
        h = h + y @ self.w_down
        h = F.elu(F.conv1d(h.transpose(1, 2), self.filters, padding=1))
        h = F.avg_pool1d(h, 3, stride=2)
        h = F.softplus(h.amax(-1))
        h = F.normalize(h, dim=-1)
        return self.temperature * F.linear(h, F.normalize(self.prototypes, dim=-1))


def network():
    torch.manual_seed(5)
    return Classifier()


def batch():
    rng = np.random.default_rng(6)
    return rng.normal(size=(4, 7, 5)).astype(np.float32), rng.integers(0, 4, 4)


def loss(network, x, y):
    logits = network(x)
    return F.cross_entropy(logits, y) + 1e-2 * torch.logsumexp(logits, dim=-1).pow(2).mean()


OPTIMIZERS = {
    "momentum": lambda network: torch.optim.SGD(
        network.parameters(), lr=0.02, momentum=0.9, nesterov=True
    )
}
