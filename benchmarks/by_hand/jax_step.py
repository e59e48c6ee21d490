"""A training step of a flax network with optax: one compiled program, channels-last images."""

import jax
import numpy as np
import optax
from flax import nnx


def training_step(
    network: nnx.Module,
    images: np.ndarray,
    labels: np.ndarray,
    lr: float = 0.01,
    momentum: float = 0.9,
):
    """A function that makes one training step from host arrays and returns the loss."""
    graph, parameters, rest = nnx.split(network, nnx.Param, ...)
    optimizer = optax.sgd(lr, momentum)
    state = optimizer.init(parameters)
    images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))

    def loss_function(parameters, rest, x, y):
        network = nnx.merge(graph, parameters, rest, copy=True)
        loss = optax.softmax_cross_entropy_with_integer_labels(network(x), y).mean()
        return loss, nnx.split(network, nnx.Param, ...)[2]

    @jax.jit
    def compiled(parameters, rest, state, x, y):
        (loss, rest), gradients = jax.value_and_grad(loss_function, has_aux=True)(
            parameters, rest, x, y
        )
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), rest, state, loss

    def step():
        nonlocal parameters, rest, state
        parameters, rest, state, loss = compiled(parameters, rest, state, images, labels)
        return float(loss)

    return step
