"""Forward pass, and training step with optax, of a flax network: one compiled program each.

Images have their channels last.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


def forward(network: nnx.Module, images: np.ndarray):
    """A function that computes the outputs in evaluation mode: host arrays both ways."""
    network.eval()
    graph, state = nnx.split(network)
    images = _channels_last(images)
    compiled = jax.jit(lambda state, x: nnx.merge(graph, state)(x))
    return lambda: np.asarray(compiled(state, images))


def training_step(
    network: nnx.Module,
    images: np.ndarray,
    labels: np.ndarray,
    lr: float = 0.01,
    momentum: float = 0.9,
    dtype: Any = jnp.float32,
    device: Any = None,
    donate: bool = False,
):
    """A function that makes one training step and returns the loss.

    It takes host arrays at each step, or holds the batch on the device if one is given.

    Args:
        dtype: In which the network computes; parameters, their updates and the loss are float32.
        donate: Whether a step writes over the arrays of the one before.
    """
    graph, parameters, rest = nnx.split(network, nnx.Param, ...)
    optimizer = optax.sgd(lr, momentum)
    state = optimizer.init(parameters)
    images = _channels_last(images)
    if device is not None:
        placed = jax.device_put((parameters, rest, state, images, labels), device)
        parameters, rest, state, images, labels = placed

    def loss_function(parameters, rest, x, y):
        shorter = jax.tree.map(lambda value: value.astype(dtype), parameters)
        network = nnx.merge(graph, shorter, rest, copy=True)
        outputs = network(x.astype(dtype)).astype(jnp.float32)
        loss = optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()
        return loss, nnx.split(network, nnx.Param, ...)[2]

    @partial(jax.jit, donate_argnums=(0, 1, 2) if donate else ())
    def compiled(parameters, rest, state, x, y):
        (loss, rest), gradients = jax.value_and_grad(loss_function, has_aux=True)(
            parameters, rest, x, y
        )
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), rest, state, loss

    def step():
        nonlocal parameters, rest, state
        parameters, rest, state, loss = compiled(
            parameters, rest, state, images, labels
        )
        return float(loss)

    return step


def batches(
    network: nnx.Module,
    images: np.ndarray,
    labels: np.ndarray,
    count: int,
    lr: float,
    momentum: float,
) -> Iterator[None]:
    """Compute batches, of which `count` make an update, one after the other.

    Gradients are added within the program that computes them, and all arrays written over.
    """
    if count == 1:
        step = training_step(network, images, labels, lr, momentum, donate=True)
        while True:
            yield step()
    graph, parameters, rest = nnx.split(network, nnx.Param, ...)
    optimizer = optax.sgd(lr, momentum)
    state = optimizer.init(parameters)
    images = _channels_last(images)

    def loss_function(parameters, rest, x, y):
        network = nnx.merge(graph, parameters, rest, copy=True)
        loss = optax.softmax_cross_entropy_with_integer_labels(network(x), y).mean()
        return loss / count, nnx.split(network, nnx.Param, ...)[2]

    @partial(jax.jit, donate_argnums=(1, 2))
    def add(parameters, rest, sums, x, y):
        gradients, rest = jax.grad(loss_function, has_aux=True)(parameters, rest, x, y)
        return jax.tree.map(jnp.add, sums, gradients), rest

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(parameters, state, gradients):
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    while True:
        sums = jax.tree.map(jnp.zeros_like, parameters)
        for number in range(count):
            sums, rest = add(parameters, rest, sums, images, labels)
            if number == count - 1:
                parameters, state = update(parameters, state, sums)
            yield


def _channels_last(images: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(images.transpose(0, 2, 3, 1))
