"""The types of inputs, modes of a network's own, and what a first look leaves."""

import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import deliralike
from deliralike import rules
from deliralike.cli import app
from deliralike.errors import ConstructionError
from deliralike.training import Trainer, predict

X = np.random.default_rng(2).normal(size=(6, 4)).astype(np.float32)
Y = np.random.default_rng(3).normal(size=(6, 2)).astype(np.float32)


def in_torch():
    import torch

    return torch.nn.Sequential(
        torch.nn.Embedding(5, 4).bfloat16(), torch.nn.Linear(4, 2)
    )


def in_chainer():
    from deliralike.backends.chainer.arrays import chainer

    chain = chainer.Chain()
    with chain.init_scope():
        chain.embed = chainer.links.Linear(5, 4)
        chain.out = chainer.links.Linear(4, 2)
    chain.embed.W.array = chain.embed.W.array.astype(np.float16)
    return chain


def in_jax():
    import jax.numpy as jnp
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self):
            self.embed = nnx.Embed(5, 4, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
            self.out = nnx.Linear(4, 2, rngs=nnx.Rngs(0))

    return Net()


@pytest.mark.parametrize("make", [in_torch, in_chainer, in_jax])
def test_a_short_first_parameter_does_not_round_the_targets(make):
    network = deliralike.wrap(make())
    (prepared,) = network.backend.prepare((Y,), network)
    assert network.dtype_name == "float32"
    np.testing.assert_array_equal(network.backend.numpy(prepared), Y)


def test_a_short_first_parameter_does_not_round_the_targets_of_a_step_on_jax():
    network = deliralike.wrap(in_jax())
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    (prepared,) = optimizer.prepared((Y,))
    np.testing.assert_array_equal(prepared, Y)


def with_own_mode():
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self):
            self.out = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
            self.mode, self.switched = "train", 0

        def train(self, **attributes):
            self.mode = "train"

        def eval(self, **attributes):
            self.mode, self.switched = "eval", self.switched + 1

        def __call__(self, x):
            return self.out(x) * (1.0 if self.mode == "eval" else 100.0)

    return Net()


def test_a_mode_of_a_flax_modules_own_is_set_for_predictions_and_restored():
    network = with_own_mode()
    (found,) = predict(network, X)
    kernel = np.asarray(network.out.kernel[...])
    np.testing.assert_allclose(found, X @ kernel, rtol=1e-5, atol=1e-6)
    assert (network.mode, network.switched) == ("train", 0)


def test_the_first_look_at_validation_leaves_attributes_and_buffers():
    import torch

    class Watching(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.out = torch.nn.Linear(4, 2)
            self.register_buffer("count", torch.zeros(()))
            self.calls = 0

        def forward(self, x):
            self.count += 1
            self.calls += 1
            return self.out(x)

    network = Watching()
    trainer = Trainer(network, rules.rule("sgd", lr=0.1))
    trainer.fit((X, Y), (X, Y), epochs=1, batch_size=3)
    assert (network.calls, float(network.count)) == (
        3,
        3.0,
    )  # two steps, one validation


def test_the_command_prepares_files_that_import_chainer(monkeypatch):
    others = [
        finder
        for finder in sys.meta_path
        if type(finder).__name__ != "CorrectingFinder"
    ]
    monkeypatch.setattr(sys, "meta_path", others)
    CliRunner().invoke(app, ["zoo", "list"])
    assert type(sys.meta_path[0]).__name__ == "CorrectingFinder"


def test_an_attribute_of_our_own_base_is_not_called_as_ours(backend):
    class Net(deliralike.Network):
        def __init__(self):
            super().__init__()
            self.fc = self.nn.Linear(4, 2)
            self.backend = "gloo"

    with pytest.raises(
        ConstructionError, match="an attribute at 'backend' cannot be called"
    ):
        Net.on(backend)()
