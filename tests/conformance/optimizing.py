"""What the tests of optimizer steps compare: tiny networks of odd sizes, and native optimizers
behind the interface."""

from functools import cache

import optax

from deliralike import Network, backends
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance.subject import Subject
from deliralike.optim.rules import rule
from tests.planted.optimizers import equipped


class Two(Network):
    """Two layers."""

    def __init__(self):
        super().__init__()
        self.hidden, self.fc = self.nn.Linear(3, 5), self.nn.Linear(5, 2)

    def forward(self, x):
        return self.fc(self.nn.relu(self.hidden(x)))


class Laid(Network):
    """Parameters that no two backends lay out alike."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(2, 3, (2, 3))
        self.back = self.nn.ConvTranspose2d(3, 4, (3, 2))
        self.norm = self.nn.BatchNorm2d(4)

    def forward(self, x):
        return self.norm(self.back(self.conv(x)))


class Large(Network):
    """One parameter is large."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(41, 60, (3, 2))

    def forward(self, x):
        return self.conv(x)


@cache
def right(backend, network=Two):
    """A right subject; nothing changes it."""
    return equipped(Subject(network.on(backend, dtype="float64")()))


def with_optimizers(backend, **optimizers):
    """The same with other optimizers and without a schedule."""
    return right(backend).replace(optimizers=optimizers, schedule=None)


def following(name, **settings):
    """An optimizer of a neutral rule."""
    return lambda network: network.backend.optimizer(rule(name, **settings), network)


def of_torch(kind, **settings):
    """One of ``torch.optim``."""
    return lambda network: network.backend.wrap_optimizer(
        kind(network.parameters(), **settings), network
    )


def of_chainer(kind, *hooks, **settings):
    """One of ``chainer.optimizers``."""

    def make(network):
        native = kind(**settings)
        native.setup(network)
        for hook in hooks:
            native.add_hook(hook)
        return network.backend.wrap_optimizer(native, network)

    return make


def of_optax(kind, **settings):
    """One of optax's, with a learning rate that can be set."""
    return lambda network: network.backend.wrap_optimizer(
        optax.inject_hyperparams(kind)(**settings), network
    )


decay = chainer.optimizer_hooks.WeightDecay
get = backends.get
