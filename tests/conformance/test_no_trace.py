"""A comparison leaves no trace: neither in the networks nor in anything that the process keeps."""

import random
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.errors import ProofFailed

BATCH = np.random.default_rng(0).standard_normal((6, 4)), np.arange(6) % 3


class OnTorch(torch.nn.Module):
    """Draws from four generators, and sets what the process keeps."""

    def __init__(self):
        super().__init__()
        self.norm, self.out = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        random.random(), np.random.random()
        torch.set_default_dtype(torch.float64)
        return self.out(self.drop(self.norm(x)))


class OnChainer(chainer.Chain):
    """The same."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.norm, self.out = (
                chainer.links.BatchNormalization(4),
                chainer.links.Linear(4, 3),
            )

    def forward(self, x):
        random.random()
        chainer.config.dtype = np.float64
        return self.out(chainer.functions.dropout(self.norm(x)))


class OnJax(nnx.Module):
    """The same."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.norm, self.out = nnx.BatchNorm(4, rngs=rngs), nnx.Linear(4, 3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        random.random(), np.random.random()
        return self.out(self.drop(self.norm(x)))


KINDS = {"torch": OnTorch, "chainer": OnChainer, "jax": OnJax}


def of_torch(network):
    """All that a module and its blocks hold."""
    held = {
        name: value.detach().numpy().copy()
        for name, value in network.state_dict().items()
    }
    gradients = {name: str(value.grad) for name, value in network.named_parameters()}
    blocks = {name: {**vars(block)} for name, block in network.named_modules()}
    settings = {}
    for name, attributes in blocks.items():
        settings[name] = (
            sorted(attributes),
            attributes["training"],
            str(attributes["_forward_hooks"]),
        )
    return held, gradients, settings


def of_chainer(network):
    """The same of a link."""
    held = {name: value.array.copy() for name, value in network.namedparams()}
    gradients = {name: str(value.grad) for name, value in network.namedparams()}
    settings = {}
    for path, link in network.namedlinks():
        settings[path] = sorted(vars(link)), link.name
    return held, gradients, settings, network.norm.avg_mean.copy()


def of_jax(network):
    """The same of a module of flax."""
    state = nnx.state(network)
    values = [jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x
              for x in jax.tree.leaves(state)]  # fmt: skip
    return (
        [np.asarray(x) for x in values],
        network.drop.deterministic,
        sorted(vars(network)),
    )


def of_process():
    """All that the process keeps."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state().numpy().copy(),
        "type": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "x64": jax.config.jax_enable_x64,
        "chainer": {**vars(chainer.global_config)},
        "chainer, thread": {**vars(chainer.config._local)},
        "warnings": list(warnings.filters),
        "calls": [
            vars(kind).get("__call__")
            for kind in (OnTorch, OnChainer, OnJax, nnx.Linear)
        ],
    }


SNAPSHOTS = {"torch": of_torch, "chainer": of_chainer, "jax": of_jax}


def raising(network, x, labels):
    """A loss that does nothing else."""
    random.random(), np.random.random()
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize(
    ("raises", "is_on"),
    [(False, False), (True, True)],
    ids=["float32", "raises in float64"],
)
def test_a_comparison_leaves_networks_and_process_as_they_were(backend, raises, is_on):
    import sympy.utilities.exceptions  # noqa: F401  PyTorch imports it sooner or later: a filter

    with jax.enable_x64(is_on):
        sides = [KINDS[backend.name]() for _ in range(2)]
        snapshot = SNAPSHOTS[backend.name]
        before = [*map(snapshot, sides)], of_process()
        if raises:
            with pytest.raises(ProofFailed):
                compare(*sides, BATCH, loss=raising)
        else:
            compare(*sides, BATCH, weights="load")
        np.testing.assert_equal(([*map(snapshot, sides)], of_process()), before)


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.out = torch.nn.Parameter(torch.zeros(4)), torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.out(x * (1 + self.scale))


class FreshPort(nnx.Module):
    def __init__(self):
        self.scale, self.out = (
            nnx.Param(jnp.zeros(4)),
            nnx.Linear(4, 3, rngs=nnx.Rngs(0)),
        )

    def __call__(self, x):
        return self.out(x * (1 + self.scale))


def test_the_second_comparison_of_a_fresh_port_is_proved_as_the_first_was():
    """Where 64-bit types are off."""
    with jax.enable_x64(False):
        for _ in range(2):
            found = compare(
                Scaled(), FreshPort(), BATCH, weights="load", levels=("L0", "L1")
            )
            assert found.proved
        assert not jax.config.jax_enable_x64
