"""A network against its own copy is proved to be the same, or undecided with the reason."""

import copy

import numpy as np
import pytest

import deliralike
from deliralike import backends

RNG = np.random.default_rng(4)
X = RNG.normal(size=(6, 4)).astype(np.float32)
Y = RNG.normal(size=(6, 2)).astype(np.float32)


def torch_network(forward):
    import torch

    class Stranger(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)
            self.head = lambda x: self.layer(x)

        def forward(self, x):
            return forward(self, x)

    return Stranger()


def chainer_network(forward):
    import chainer

    class Stranger(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.layer = chainer.links.Linear(4, 2)
            self.head = lambda x: self.layer(x)

        def forward(self, x):
            return forward(self, x)

    return Stranger()


def mse(network, x, y):
    return network.nn.mean((network(x) - y) ** 2)


def headline(backend, forward, again=copy.deepcopy):
    make = {"torch": torch_network, "chainer": chainer_network}[backend]
    backends.get(backend)  # Chainer is imported by us
    network = make(forward)
    levels = ("L0", "L1")
    return deliralike.compare(
        network, again(network), (X, Y), loss=mse, levels=levels
    ).headline


OWN_CODE = {
    "torch": lambda self, x: self.layer(x.new_tensor(np.tanh(x.numpy()))),
    "chainer": lambda self, x: self.layer(np.tanh(x)),
}


@pytest.mark.parametrize("backend", OWN_CODE)
def test_a_network_that_takes_no_inputs_of_a_graph_is_proved(backend):
    assert headline(backend, OWN_CODE[backend]).startswith("PROVED")


NAMING = {
    "torch": lambda self, x: self.layer(x.float()),
    "chainer": lambda self, x: self.layer(
        __import__("chainer").functions.cast(x, "float32")  # imported by now
    ),
}


@pytest.mark.parametrize("backend", NAMING)
def test_a_network_that_names_float32_is_undecided_for_that_reason(backend):
    assert "runs in float32, and not in float64" in headline(backend, NAMING[backend])


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_copy_whose_function_computes_with_the_original_is_undecided(backend):
    found = headline(backend, lambda self, x: self.head(x))
    assert found.startswith("NOT PROVED")
    assert "'head'" in found


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_a_copy_of_ours_computes_with_its_own_layers(backend):
    make = {"torch": torch_network, "chainer": chainer_network}[backend]
    backends.get(backend)
    network = deliralike.wrap(make(lambda self, x: self.head(x)))
    twin = copy.deepcopy(network)
    twin.load_neutral_state(
        {name: 0 * value for name, value in network.neutral_state().items()}
    )
    (x,) = network.backend.prepare((X,), network)
    assert np.all(network.backend.numpy(twin(x)) == 0)
    assert np.any(network.backend.numpy(network(x)) != 0)


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_noise_of_its_own_is_not_taken_for_dropout(backend):
    noise = np.random.default_rng(0)

    def forward(self, x):
        return self.layer(x + noise.normal())

    found = headline(backend, forward)
    assert "draws random numbers by itself" in found
    assert "p=0" not in found
