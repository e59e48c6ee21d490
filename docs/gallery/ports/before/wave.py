"""Dilated convolutions of a signal: a subclass of `nn.Conv1d`, gates, skips that are summed, a fixed filter."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Causal(nn.Conv1d):
    """A convolution that does not look ahead."""

    def __init__(self, inputs, outputs, kernel, dilation=1):
        super().__init__(inputs, outputs, kernel, dilation=dilation)
        self.before = (kernel - 1) * dilation

    def forward(self, x):
        return super().forward(F.pad(x, (self.before, 0)))


class Gated(nn.Module):
    def __init__(self, width, skips, dilation):
        super().__init__()
        self.dilated = Causal(width, 2 * width, 2, dilation=dilation)
        self.next = nn.Conv1d(width, width, 1)
        self.skip = nn.Conv1d(width, skips, 1)

    def forward(self, x, length):
        signal, gate = torch.split(self.dilated(x), x.size(1), dim=1)
        y = torch.tanh(signal) * torch.sigmoid(gate)
        return self.next(y) + x, self.skip(y)[:, :, -length:]


class Wave(nn.Module):
    def __init__(self, dilations=(1, 2, 4) * 2, channels=1, width=4, skips=6):
        super().__init__()
        self.reach = sum(dilations)
        window = np.hanning(7)[1:-1].astype("float32")
        smooth = torch.from_numpy(window / window.sum()).view(1, 1, -1)
        self.register_buffer("smooth", smooth)
        self.first = Causal(channels, width, 2)
        self.gated = nn.ModuleList()
        for dilation in dilations:
            self.gated += [Gated(width, skips, dilation)]
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skips, channels, 1))

    def forward(self, x):
        x = F.conv1d(x, self.smooth, padding=self.smooth.size(-1) // 2)
        length = int(x.size(2)) - self.reach
        x, skips = self.first(x), []
        for block in self.gated:
            x, skip = block(x, length)
            skips.append(skip)
        return self.last(torch.sum(torch.stack(skips), dim=0))
