"""The names that users of data parallelism know, on JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from deliralike import backends
from deliralike.backends import jax as names
from tests.arrays import same_named
from tests.losses import mean_square
from tests.parallel.networks import Dense, built

JAX = backends.get("jax")
TWO = ["cpu", "cpu:1"]


def rows(samples, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, width))


def linear():
    return nnx.Linear(3, 2, rngs=nnx.Rngs(0))


# Networks and functions
# -----------------------------------------------------------------------------


def test_a_replicated_module_computes_what_the_module_does():
    module, x = linear(), jnp.asarray(rows(5))
    network = names.DataParallelJaxNetwork(module, TWO, output_device="cpu:1")
    output = network(x)
    np.testing.assert_allclose(output, module(x), rtol=1e-6)
    assert output.devices() == {jax.devices()[1]}


# Optimizers
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [None, TWO, ["cpu"] * 3], ids=str)
def test_an_optimizer_of_optax_follows_optax(devices):
    network = built(JAX, Dense)
    wanted = built(JAX, Dense)
    network = (
        network if devices is None else names.DataParallelJaxNetwork(network, devices)
    )
    optimizer = JAX.wrap_optimizer(optax.adam(learning_rate=0.1), network)
    values = {
        name: jnp.asarray(value)
        for name, value in wanted.neutral_state().items()
        if name.startswith("fc")
    }
    rule = optax.adam(0.1)
    state = rule.init(values)
    for step in range(3):
        x = rows(7, seed=step)
        optimizer.update(mean_square, x)
        gradients = jax.grad(
            lambda p, x=x: jnp.mean((x @ p["fc.weight"].T + p["fc.bias"]) ** 2)
        )(values)
        updates, state = rule.update(gradients, state)
        values = optax.apply_updates(values, updates)
    found = network.neutral_state()
    same_named(
        {name: found[name] for name in values},
        {name: np.asarray(value) for name, value in values.items()},
    )
    assert np.array_equal(
        found["unused.weight"], wanted.neutral_state()["unused.weight"]
    )
    assert optimizer.steps == 3
