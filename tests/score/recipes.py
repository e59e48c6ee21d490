"""Losses and optimizers as a training script sets them up, for the rules to change."""

import torch
from torch import nn


class CrossEntropy(nn.Module):
    """Cross entropy with all its settings."""

    def forward(self, outputs, target):
        weight = torch.arange(1.0, 5.0, dtype=outputs.dtype)
        loss = nn.functional.cross_entropy(
            outputs, target, weight=weight, label_smoothing=0.05, ignore_index=3
        )
        return loss + 1e-2 * (outputs**2).mean()


class Distance(nn.Module):
    """A smooth distance, and a mean over the batch of sums."""

    def forward(self, outputs, target):
        near = nn.functional.smooth_l1_loss(outputs, target, beta=0.5)
        return near + 0.5 * ((outputs - target) ** 2).sum(dim=1).mean()


def adam(parameters):
    return torch.optim.AdamW(
        parameters, lr=1e-3, betas=(0.9, 0.98), eps=1e-7, weight_decay=0.05
    )


def sgd(parameters):
    return torch.optim.SGD(
        parameters, lr=1e-3, momentum=0.9, nesterov=True, weight_decay=0.05
    )


def rmsprop(parameters):
    return torch.optim.RMSprop(parameters, lr=1e-3, alpha=0.95, eps=1e-7, momentum=0.8)
