"""Inverted bottlenecks from a table: squeeze and excitation, paths that are dropped by a function."""

import torch.nn.functional as F
from torch import nn


def rounded(channels, by=4):
    return max(by, by * round(channels / by))


def drop_path(x, p: float, training: bool):
    """Drop the whole branch of a sample, with probability ``p``."""
    if p == 0.0 or not training:
        return x
    keep = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(1 - p)
    return x * keep / (1 - p)


class Excite(nn.Module):
    def __init__(self, channels, ratio=0.25, gate=F.hardsigmoid):
        super().__init__()
        self.reduce = nn.Conv2d(channels, rounded(channels * ratio), 1)
        self.expand = nn.Conv2d(rounded(channels * ratio), channels, 1)
        self.gate = gate

    def forward(self, x):
        scale = x.mean((2, 3), keepdim=True)
        scale = self.expand(F.relu(self.reduce(scale), inplace=True))
        return x * self.gate(scale)


class Inverted(nn.Module):
    def __init__(
        self, inputs, outputs, kernel=3, stride=1, expand=2.0, excite=False, p=0.0
    ):
        super().__init__()
        hidden = rounded(inputs * expand)
        bn = dict(eps=1e-3, momentum=0.01)
        self.adds, self.p = inputs == outputs and stride == 1, p
        self.pw = nn.Conv2d(inputs, hidden, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden, **bn)
        self.dw = nn.Conv2d(
            hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False
        )
        self.bn2 = nn.BatchNorm2d(hidden, **bn)
        self.se = Excite(hidden) if excite else nn.Identity()
        self.pwl = nn.Conv2d(hidden, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs, **bn)

    def forward(self, x):
        y = F.hardswish(self.bn1(self.pw(x)), inplace=True)
        y = F.hardswish(self.bn2(self.dw(y)), inplace=True)
        y = self.bn3(self.pwl(self.se(y)))
        return drop_path(y, self.p, self.training) + x if self.adds else y


class Mobile(nn.Module):
    #: kernel, expansion, channels, squeeze, stride
    table = [
        [3, 1, 8, True, 2],
        [3, 3, 8, False, 1],
        [5, 2.5, 12, True, 2],
        [5, 2.5, 12, True, 1],
    ]

    def __init__(self, classes=10, width=1.0, dropout=0.2, drop_path_rate=0.1):
        super().__init__()
        channels = rounded(8 * width)
        self.stem = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.bn = nn.BatchNorm2d(channels)
        blocks = []
        for at, (kernel, expand, outputs, excite, stride) in enumerate(self.table):
            outputs, p = rounded(outputs * width), drop_path_rate * at / len(self.table)
            blocks += [
                Inverted(channels, outputs, kernel, stride, expand, excite=excite, p=p)
            ]
            channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.dropout = dropout
        self.classifier = nn.Linear(channels, classes)

    def features(self, x):
        return self.blocks(F.hardswish(self.bn(self.stem(x)), inplace=True))

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.features(x), 1).flatten(1)
        if self.dropout > 0.0:
            x = F.dropout(x, p=self.dropout, training=self.training)
        return self.classifier(x)
