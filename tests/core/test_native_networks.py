"""A network written for one framework alone goes wherever a network written once does."""

import copy

import numpy as np
import pytest

from deliralike import Network, wrap
from tests.losses import mean_square_error

RNG = np.random.default_rng(2)
X = RNG.normal(size=(7, 4)).astype(np.float32)
Y = RNG.normal(size=(7, 2)).astype(np.float32)
WEIGHTS = {
    "hidden.weight": RNG.normal(size=(5, 4)).astype(np.float32),
    "hidden.bias": RNG.normal(size=5).astype(np.float32),
    "out.weight": RNG.normal(size=(2, 5)).astype(np.float32),
    "out.bias": RNG.normal(size=2).astype(np.float32),
}


def torch_network(base):
    import torch

    class Native(base or torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden, self.out = torch.nn.Linear(4, 5), torch.nn.Linear(5, 2)

        def forward(self, x):
            return self.out(torch.tanh(self.hidden(x)))

    return Native()


def chainer_network(base):
    import chainer
    import chainer.links as L

    class Native(base or chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.hidden, self.out = L.Linear(4, 5), L.Linear(5, 2)

        def forward(self, x):
            return self.out(chainer.functions.tanh(self.hidden(x)))

    return Native()


def jax_network(base):
    import jax
    from flax import nnx

    class Native(base or nnx.Module):
        def __init__(self):
            if base:
                super().__init__()
            rngs = nnx.Rngs(0)
            self.hidden, self.out = (
                nnx.Linear(4, 5, rngs=rngs),
                nnx.Linear(5, 2, rngs=rngs),
            )

        def __call__(self, x):
            return self.out(jax.numpy.tanh(self.hidden(x)))

    return Native()


@pytest.fixture(params=["wrapped", "subclass"])
def network(request, backend):
    """A native network: a plain one that is wrapped, or a subclass of the backend's abstract
    network."""
    make = {"torch": torch_network, "chainer": chainer_network, "jax": jax_network}[
        backend.name
    ]
    made = (
        wrap(make(None)) if request.param == "wrapped" else make(backend.network_base)
    )
    made.load_neutral_state(WEIGHTS)
    return made


def test_its_gradients_have_neutral_names_and_layouts(network):
    found = network.backend.gradients(mean_square_error, network, X, Y)
    assert {name: g.shape for name, g in found.parameters.items()} == {
        n: w.shape for n, w in WEIGHTS.items()
    }
    hidden = np.tanh(X @ WEIGHTS["hidden.weight"].T + WEIGHTS["hidden.bias"])
    error = hidden @ WEIGHTS["out.weight"].T + WEIGHTS["out.bias"] - Y
    np.testing.assert_allclose(
        found.parameters["out.weight"],
        2 * error.T @ hidden / error.size,
        rtol=1e-3,
        atol=1e-5,
    )


# The constructor that hands its arguments to the base
# -----------------------------------------------------------------------------


def classifier(base):
    """A network as it is written where the base class is told the arguments."""

    class Classification(base):
        def __init__(self, in_channels, n_outputs=2, **kwargs):
            super().__init__(
                in_channels=in_channels, n_outputs=n_outputs, depth=len(kwargs)
            )
            self.fc = self.nn.Linear(in_channels, n_outputs)

        def forward(self, x):
            return self.fc(x)

    return Classification


@pytest.mark.parametrize("is_native", [False, True])
def test_arguments_of_the_bases_constructor_are_recorded(backend, is_native):
    kind = (
        classifier(backend.network_base)
        if is_native
        else classifier(Network).on(backend)
    )
    one, other = kind(4), kind(3, n_outputs=5, dropout=0.5)
    assert one.init_kwargs == {"in_channels": 4, "n_outputs": 2, "depth": 0}
    assert other.init_kwargs == {
        "in_channels": 3,
        "n_outputs": 5,
        "dropout": 0.5,
        "depth": 1,
    }
    assert list(other.neutral_state()) == ["fc.weight", "fc.bias"]
    assert other.neutral_state()["fc.weight"].shape == (5, 3)
    assert copy.deepcopy(other).init_kwargs == other.init_kwargs


def test_links_among_the_arguments_are_children_of_a_chain():
    import chainer

    from deliralike.backends.chainer import AbstractChainerNetwork

    class Pair(AbstractChainerNetwork):
        def __init__(self, width):
            super().__init__(first=chainer.links.Linear(3, width), width=width)

    net = Pair(2)
    assert list(net.neutral_state()) == ["first.weight", "first.bias"]
    assert net.init_kwargs == {"width": 2}


def test_files_of_a_wrapped_module_are_those_of_the_module():
    """By PyTorch's own names too, so that a script writes the same with one process as with
    several."""
    module, other = torch_network(None), torch_network(None)
    state = wrap(module).state_dict()
    assert list(state) == list(module.state_dict())
    wrap(other).load_state_dict(state)
    np.testing.assert_array_equal(other.out.weight.detach(), module.out.weight.detach())


def test_files_of_a_module_that_holds_a_wrapped_one_have_its_names():
    import torch

    module, other = torch_network(None), torch_network(None)
    state = torch.nn.ModuleDict({"body": wrap(module)}).state_dict()
    assert list(state) == [f"body.{name}" for name in module.state_dict()]
    torch.nn.ModuleDict({"body": wrap(other)}).load_state_dict(state)
    np.testing.assert_array_equal(other.out.weight.detach(), module.out.weight.detach())
