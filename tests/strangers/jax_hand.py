"""flax's own loops."""

from contextlib import contextmanager

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from deliralike import nest
from tests.strangers import hand


def arrays(batch):
    return nest.map(jnp.asarray, batch)


class Hand(hand.Hand):
    levels = ("L0", "L1")  # programs are compiled for each level

    def __init__(self, case):
        super().__init__(case)
        self._trained = {}

    def trained(self, evaluates=False):
        """The same, trained once."""
        if evaluates not in self._trained:
            self._trained[evaluates] = super().trained(evaluates)
        known, one = self._trained[evaluates], Hand(self.case)
        one.network, one.losses = nnx.clone(known.network), known.losses
        return one

    def optimizer(self, network):
        return nnx.Optimizer(network, optax.sgd(0.1, momentum=0.9), wrt=nnx.Param)

    def loss(self, network, batch):
        return self.case.loss(network, *arrays(batch))

    def step(self, network, batch, optimizer):
        network.train()
        slope = nnx.value_and_grad(self.case.loss)
        loss, gradients = slope(network, *arrays(batch))
        optimizer.update(network, gradients)
        return float(loss)

    @contextmanager
    def evaluating(self, network):
        network.eval()
        yield

    def predicted(self, network, x):
        return nest.map(np.asarray, self.case.call(network, arrays(x)))

    def copy_weights(self, other):
        nnx.update(other, nnx.state(self.network))

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
