"""Variables of nnx that are read through a hook: the hook is the code's, and what is stored has not
been through it."""

from copy import deepcopy

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends, checkpoint_blocks
from deliralike.optim.rules import rule

JAX = backends.get("jax")


class Scaled(nnx.Module):
    """A linear layer whose kernel is read three times as large."""

    def __init__(self):
        self.layer = nnx.Linear(3, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(3))
        self.layer.kernel.set_metadata(on_get_value=lambda variable, value: value * 3)

    def __call__(self, x):
        return self.layer(x)


@pytest.fixture
def network():
    JAX.check_dtype("float64")
    return JAX.wrap(Scaled())


def half_mean_square(network, x):
    return 0.5 * jnp.mean(network(x) ** 2)


def weight_of(network):
    return np.asarray(network.neutral_state()["layer.weight"])


@pytest.mark.parametrize("is_recomputed", [False, True], ids=["stored", "recomputed"])
def test_an_update_begins_at_the_array_and_not_at_what_the_hook_makes_of_it(
    network, is_recomputed
):
    if is_recomputed:
        checkpoint_blocks(network, "layer")
    x = np.random.default_rng(0).normal(size=(5, 3))
    weight, bias = weight_of(network), np.zeros(2)
    optimizer = JAX.optimizer(rule("sgd", lr=0.1), network)
    for _ in range(2):
        y = x @ (3 * weight).T + bias
        optimizer.update(half_mean_square, x)
        weight = weight - 0.1 * 3 * y.T @ x / y.size
        bias = bias - 0.1 * y.sum(0) / y.size
    assert_allclose(weight_of(network), weight, rtol=1e-12)


def test_a_state_is_what_the_variables_hold(network):
    raw = np.asarray(network.layer.kernel.get_raw_value())
    assert_array_equal(weight_of(network), raw.T)
    network.load_neutral_state(network.neutral_state())
    assert_array_equal(network.layer.kernel.get_raw_value(), raw)


def test_copies_and_casts_hold_the_same_arrays(network):
    raw = np.asarray(network.layer.kernel.get_raw_value())
    copy = deepcopy(network)
    assert_array_equal(copy.layer.kernel.get_raw_value(), raw)
    JAX.set_dtype(copy, "float32")
    assert_array_equal(copy.layer.kernel.get_raw_value(), raw.astype(np.float32))
