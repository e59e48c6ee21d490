"""Chainer's own loops."""

import numpy as np

from deliralike import nest
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import LEVELS
from tests.strangers.gauntlet import EPOCHS, halves


class Hand:
    levels = LEVELS

    def __init__(self, case):
        self.case = case

    def trained(self, evaluates=False):
        """A network trained by hand, with validation after each epoch or not."""
        one = Hand(self.case)
        one.network, one.losses = self.case.make(), []
        optimizer = chainer.optimizers.MomentumSGD(0.1, 0.9).setup(one.network)
        for _ in range(EPOCHS):
            one.losses += one._epoch(one.network, optimizer)
            if evaluates:
                one.evaluated(one.network)
        return one

    def _epoch(self, network, optimizer):
        losses = []
        for batch in halves(self.case.batch):
            loss = self.case.loss(network, *batch)
            network.cleargrads()
            loss.backward()
            optimizer.update()
            losses.append(float(loss.array))
        return losses

    def go_on(self, network):
        return self._epoch(
            network, chainer.optimizers.MomentumSGD(0.1, 0.9).setup(network)
        )

    def outputs(self, network):
        """The predictions of each batch in evaluation mode."""
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            found = [
                self.case.call(network, batch[0]) for batch in halves(self.case.batch)
            ]
        return nest.map(lambda leaf: np.asarray(getattr(leaf, "array", leaf)), found)

    def evaluated(self, network):
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            losses = [
                self.case.loss(network, *batch) for batch in halves(self.case.batch)
            ]
        return sum(float(loss.array) for loss in losses) / 2

    def other_with_its_weights(self):
        other = self.case.make()
        self.outputs(other)
        other.copyparams(self.network)
        return other

    def attributes(self, network):
        """What the links hold: names and types of attributes, and the parameters that train."""
        found = {}
        for path, link in network.namedlinks():
            names = {name: type(value).__name__ for name, value in vars(link).items()}
            names.pop("_n_iteration", None)
            found[path] = names, sorted(link._params), len(link._local_link_hooks or ())
        return found
