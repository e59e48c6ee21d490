"""Dense connections: subclasses of `nn.Sequential` and `nn.ModuleDict`, `add_module`, old `super`."""

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as nnf


class Grow(nn.Module):
    def __init__(self, inputs, growth, squeeze):
        super(Grow, self).__init__()
        self.add_module("bn_a", nn.BatchNorm2d(inputs))
        self.add_module("conv_a", nn.Conv2d(inputs, squeeze * growth, 1, bias=False))
        self.bn_b = nn.BatchNorm2d(squeeze * growth)
        self.conv_b = nn.Conv2d(
            squeeze * growth, growth, kernel_size=3, padding=1, bias=False
        )

    def forward(self, earlier):
        x = torch.cat(earlier, 1)
        x = self.conv_a(nnf.relu(self.bn_a(x), inplace=True))
        return self.conv_b(nnf.relu(self.bn_b(x), inplace=True))


class Growing(nn.ModuleDict):
    def __init__(self, count, inputs, growth, squeeze):
        super(Growing, self).__init__()
        for at in range(count):
            self.add_module("grow_%d" % at, Grow(inputs + at * growth, growth, squeeze))

    def forward(self, x):
        everything = [x]
        for layer in self.values():
            everything.append(layer(everything))
        return torch.cat(everything, dim=1)


class Halve(nn.Sequential):
    def __init__(self, inputs, outputs):
        super(Halve, self).__init__()
        self.bn = nn.BatchNorm2d(inputs)
        self.act = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.pool = nn.AvgPool2d(2, stride=2, ceil_mode=True)


class Dense(nn.Module):
    def __init__(self, growth=4, counts=(2, 3), squeeze=2, classes=10):
        super(Dense, self).__init__()
        width = 2 * growth
        stem = [
            ("conv", nn.Conv2d(3, width, 3, stride=2, padding=1)),
            ("act", nn.ELU()),
        ]
        self.body = nn.Sequential(OrderedDict(stem))
        for at, count in enumerate(counts):
            if at > 0:
                self.body.add_module("halve_%d" % at, Halve(width, width // 2))
                width //= 2
            self.body.add_module(
                "block_%d" % at, Growing(count, width, growth, squeeze)
            )
            width += count * growth
        self.body.add_module("bn", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        x = nnf.relu(self.body(x), inplace=True)
        x = nnf.adaptive_avg_pool2d(x, (1, 1)).view(x.size(0), -1)
        return self.classifier(x)
