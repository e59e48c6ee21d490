"""flax's own loops."""

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from deliralike import nest
from tests.strangers.gauntlet import EPOCHS, halves


def arrays(batch):
    return nest.map(jnp.asarray, batch)


class Hand:
    levels = ("L0", "L1")  # programs are compiled for each level

    def __init__(self, case):
        self.case = case
        self._trained = {}

    def trained(self, evaluates=False):
        """A network trained by hand, with validation after each epoch or not."""
        if evaluates not in self._trained:
            self._trained[evaluates] = self._train(evaluates)
        known, one = self._trained[evaluates], Hand(self.case)
        one.network, one.losses = nnx.clone(known.network), known.losses
        return one

    def _train(self, evaluates):
        one = Hand(self.case)
        one.network, one.losses = self.case.make(), []
        optimizer = nnx.Optimizer(
            one.network, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param
        )
        for _ in range(EPOCHS):
            one.losses += one._epoch(one.network, optimizer)
            if evaluates:
                one.evaluated(one.network)
        return one

    def _epoch(self, network, optimizer):
        losses = []
        for batch in halves(self.case.batch):
            network.train()
            loss, gradients = nnx.value_and_grad(self.case.loss)(
                network, *arrays(batch)
            )
            optimizer.update(network, gradients)
            losses.append(float(loss))
        return losses

    def go_on(self, network):
        optimizer = nnx.Optimizer(network, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)
        return self._epoch(network, optimizer)

    def outputs(self, network):
        """The predictions of each batch in evaluation mode."""
        network.eval()
        inputs = [arrays(batch)[0] for batch in halves(self.case.batch)]
        return [nest.map(np.asarray, self.case.call(network, x)) for x in inputs]

    def evaluated(self, network):
        network.eval()
        losses = [
            float(self.case.loss(network, *arrays(b))) for b in halves(self.case.batch)
        ]
        return sum(losses) / 2

    def other_with_its_weights(self):
        other = self.case.make()
        self.outputs(other)
        nnx.update(other, nnx.state(self.network))
        return other

    def attributes(self, network):
        """What the modules hold: names and types, and the plain settings."""
        network.train()
        found = {}
        for path, module in nnx.iter_modules(network):
            values = {
                name: v for name, v in vars(module).items() if "pytree" not in name
            }
            found[path] = {name: type(value).__name__ for name, value in values.items()}
            plain = (bool, int, float, str)
            found[(*path, ":")] = {
                n: v for n, v in values.items() if isinstance(v, plain)
            }
        return found
