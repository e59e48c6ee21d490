"""An epoch of small networks in flax.nnx and optax by hand: one compiled program per step."""

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


class LeNet(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(1, 6, (5, 5), padding=2, rngs=rngs)
        self.conv2 = nnx.Conv(6, 16, (5, 5), padding=0, rngs=rngs)
        self.fc1, self.fc2 = (
            nnx.Linear(400, 120, rngs=rngs),
            nnx.Linear(120, 84, rngs=rngs),
        )
        self.fc3 = nnx.Linear(84, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(
            jax.nn.relu(self.conv1(x.transpose(0, 2, 3, 1))), (2, 2), (2, 2)
        )
        x = nnx.max_pool(jax.nn.relu(self.conv2(x)), (2, 2), (2, 2))
        x = jax.nn.relu(self.fc1(x.reshape(len(x), -1)))
        return self.fc3(jax.nn.relu(self.fc2(x)))


def training_epoch(
    kind: str,
    inputs: np.ndarray,
    labels: np.ndarray,
    batch: int,
    hidden: int,
    lr: float,
    momentum: float,
):
    """A function that trains for one epoch, reading each loss, and returns the last one."""
    rngs = nnx.Rngs(0)
    graph, parameters = nnx.split(
        LeNet(rngs) if kind == "lenet" else Small(inputs[0].size, hidden, rngs)
    )
    optimizer = optax.sgd(lr, momentum)
    state = optimizer.init(parameters)
    rng = np.random.default_rng(0)

    def loss_function(parameters, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(
            nnx.merge(graph, parameters)(x), y
        ).mean()

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
            parameters, state, loss = step(
                parameters, state, inputs[chosen], labels[chosen]
            )
            value = float(loss)
        return value

    return epoch
