"""Small runs for the tests of callbacks: a network, samples, and metrics that say what a test
wants."""

import numpy as np

from deliralike import Network, data
from deliralike.optim import rules
from deliralike.training import Callback, Trainer


class Tiny(Network):
    """Linear, norm, linear: parameters, buffers, and nothing that takes time."""

    def __init__(self):
        super().__init__()
        self.first = self.nn.Linear(3, 5)
        self.norm = self.nn.BatchNorm1d(5)
        self.last = self.nn.Linear(5, 2)

    def forward(self, x):
        return self.last(self.nn.relu(self.norm(self.first(x))))


def samples(count=7):
    generator = np.random.default_rng(0)
    return data.Samples(
        generator.normal(size=(count, 3)), generator.integers(0, 2, count)
    )


def network(backend, kind=Tiny):
    return kind.on(backend, seed=1, dtype="float64")()


def trainer(backend, callbacks=(), kind=Tiny, **options):
    """A trainer of a small network in float64."""
    return Trainer(
        network(backend, kind),
        rules.rule("sgd", lr=0.1),
        callbacks=callbacks,
        **options,
    )


def scripted(*values):
    """A metric that gives these values, one an epoch, whatever the network does."""
    following = iter(values)
    return lambda outputs, targets: next(following)


class Do(Callback):
    """Calls a function at one moment of a run."""

    def __init__(self, moment, function):
        setattr(self, moment, function)


class Broken(RuntimeError):
    """Raised on purpose."""


def fail(*_):
    raise Broken("broken on purpose")
