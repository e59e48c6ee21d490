"""Chainer's own loops."""

from contextlib import contextmanager

import numpy as np

from deliralike import nest
from deliralike.backends.chainer.arrays import chainer
from tests.strangers import hand


class Hand(hand.Hand):
    def optimizer(self, network):
        return chainer.optimizers.MomentumSGD(0.1, 0.9).setup(network)

    def loss(self, network, batch):
        return self.case.loss(network, *batch).array

    def step(self, network, batch, optimizer):
        loss = self.case.loss(network, *batch)
        network.cleargrads()
        loss.backward()
        optimizer.update()
        return float(loss.array)

    @contextmanager
    def evaluating(self, network):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            yield

    def predicted(self, network, x):
        found = self.case.call(network, x)
        return nest.map(lambda leaf: np.asarray(getattr(leaf, "array", leaf)), found)

    def copy_weights(self, other):
        other.copyparams(self.network)

    def attributes(self, network):
        """What the links hold: names and types of attributes, and the parameters that train."""
        found = {}
        for path, link in network.namedlinks():
            names = {name: type(value).__name__ for name, value in vars(link).items()}
            names.pop("_n_iteration", None)
            found[path] = names, sorted(link._params), len(link._local_link_hooks or ())
        return found
