"""A regression with the loss, the optimizers and the schedules of a training script on PyTorch."""

import math

import numpy as np
import torch
from torch import nn


class Regressor(nn.Module):
    """Three linear layers with a norm."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(5, 12)
        self.norm = nn.LayerNorm(12)
        self.fc2 = nn.Linear(12, 8)
        self.fc3 = nn.Linear(8, 2)
        self.act = nn.GELU()

    def forward(self, x):
        x = self.act(self.norm(self.fc1(x)))
        return self.fc3(self.act(self.fc2(x)))


def network():
    torch.manual_seed(11)
    model = Regressor()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.25 * torch.randn_like(parameter))
    return model


def batch():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(6, 5)), 2 * rng.normal(size=(6, 2))
    return x.astype("float32"), y.astype("float32")


def loss(network, x, target):
    return 0.5 * ((network(x) - target) ** 2).sum(dim=1).mean()


def clipped(network):
    """Gradients of a norm of one at most."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)

    def clip(*_):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def scheduled(optimizer, factor):
    """The learning rate follows a factor of the number of steps."""
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    return optimizer


def decayed(network):
    """Matrices decay, biases and norms do not."""
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.05},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=2e-3)


def cosine(step):
    return 0.5 * (1 + math.cos(math.pi * min(step, 20) / 20))


OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=1e-3),
    "momentum": lambda net: torch.optim.SGD(
        net.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3
    ),
    "adam": lambda net: torch.optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-6),
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=1e-3),
    "decayed": decayed,
    "clipped": clipped,
    "cosine": lambda net: scheduled(torch.optim.SGD(net.parameters(), lr=0.1), cosine),
    "warmup": lambda net: scheduled(
        torch.optim.Adam(net.parameters(), lr=4e-3), lambda step: min((step + 1) / 5, 1.0)
    ),
}
