"""An epoch of a small network as a user would write it in flax.nnx and optax: one compiled program a step."""

import jax
import numpy as np
import optax
from flax import nnx


class Small(nnx.Module):
    def __init__(self, features, hidden, rngs):
        self.first = nnx.Linear(features, hidden, rngs=rngs)
        self.second = nnx.Linear(hidden, 10, rngs=rngs)

    def __call__(self, x):
        return self.second(jax.nn.relu(self.first(x.reshape(len(x), -1))))


def training_epoch(inputs: np.ndarray, labels: np.ndarray, batch: int, hidden: int, lr: float, momentum: float):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    graph, parameters = nnx.split(Small(inputs[0].size, hidden, nnx.Rngs(0)))
    optimizer = optax.sgd(lr, momentum)
    state = optimizer.init(parameters)
    rng = np.random.default_rng(0)

    def loss_function(parameters, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(nnx.merge(graph, parameters)(x), y).mean()

    @jax.jit
    def step(parameters, state, x, y):
        loss, gradients = jax.value_and_grad(loss_function)(parameters, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    def epoch():
        nonlocal parameters, state
        order = rng.permutation(len(inputs))
        for start in range(0, len(order) - batch + 1, batch):
            chosen = order[start : start + batch]
            parameters, state, loss = step(parameters, state, inputs[chosen], labels[chosen])
            value = float(loss)
        return value

    return epoch
