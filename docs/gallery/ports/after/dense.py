"""Dense, written once: a port of before.dense."""

from collections import OrderedDict

from deliralike import Network
from deliralike.nn.layers.containers import ModuleDict, Sequential


class Grow(Network):
    def __init__(self, inputs, growth, squeeze):
        super(Grow, self).__init__()
        nn = self.nn
        self.bn_a = nn.BatchNorm2d(inputs)
        self.conv_a = nn.Conv2d(inputs, squeeze * growth, 1, bias=False)
        self.bn_b = nn.BatchNorm2d(squeeze * growth)
        self.conv_b = nn.Conv2d(
            squeeze * growth, growth, kernel_size=3, padding=1, bias=False
        )

    def forward(self, earlier):
        nn = self.nn
        x = nn.cat(earlier, 1)
        x = self.conv_a(nn.relu(self.bn_a(x)))
        return self.conv_b(nn.relu(self.bn_b(x)))


class Growing(ModuleDict):
    def __init__(self, count, inputs, growth, squeeze):
        super(Growing, self).__init__()
        for at in range(count):
            self.add_module("grow_%d" % at, Grow(inputs + at * growth, growth, squeeze))

    def forward(self, x):
        everything = [x]
        for layer in self.values():
            everything.append(layer(everything))
        return self.nn.cat(everything, dim=1)


class Halve(Sequential):
    def __init__(self, inputs, outputs):
        super(Halve, self).__init__()
        nn = self.nn
        self.add_module("bn", nn.BatchNorm2d(inputs))
        self.add_module("act", nn.ReLU())
        self.add_module("conv", nn.Conv2d(inputs, outputs, 1, bias=False))
        self.add_module("pool", nn.AvgPool2d(2, stride=2, ceil_mode=True))


class Dense(Network):
    def __init__(self, growth=4, counts=(2, 3), squeeze=2, classes=10):
        super(Dense, self).__init__()
        nn = self.nn
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
        nn = self.nn
        x = nn.relu(self.body(x))
        x = nn.reshape(nn.adaptive_avg_pool2d(x, (1, 1)), (x.shape[0], -1))
        return self.classifier(x)
