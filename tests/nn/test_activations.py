"""Activations at random points, at their kinks and far out: values and gradients."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, build
from tests.nn.agreement import (
    get,
    hold,
    normal,
)


def test_the_far_tail_of_the_sigmoid_is_kept_relative_to_its_size(network):
    backend = network.backend
    (x,) = backend.prepare((np.array([-20.0, -30.0, -600.0]),), network)
    found = backend.numpy(network.nn.sigmoid(x))
    assert_allclose(found, 1.0 / (1.0 + np.exp([20.0, 30.0, 600.0])), rtol=1e-12)


@pytest.mark.parametrize("function", ["elu", "selu", "celu", "expm1"])
def test_exponentials_near_zero_are_right_relative_to_their_size(network, function):
    backend = network.backend
    points = -np.logspace(-12, 0, 7)
    (x,) = backend.prepare((points,), network)
    found = backend.numpy(getattr(network.nn, function)(x))
    theirs = getattr(torch.nn.functional, function, torch.expm1)
    wanted = theirs(torch.tensor(points)).numpy()
    assert_allclose(found, wanted, rtol=1e-12)


def test_the_far_tail_of_erfc_is_kept_relative_to_its_size(backend):
    backend, network = backend, hold(backend.name)
    points = np.array([-3.0, 0.5, 4.0, 6.0, 10.0, 25.0])
    (x,) = backend.prepare((points,), network)
    wanted = torch.erfc(torch.tensor(points)).numpy()
    found = backend.numpy(network.nn.erfc(x))
    assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("function", ["acos", "acosh"])
def test_inverses_near_one_are_right_relative_to_their_size(backend, function):
    backend, network = backend, hold(backend.name)
    steps = np.append(np.logspace(-14, -1, 6), 0.0)
    points = 1.0 + steps if function == "acosh" else np.append(1.0 - steps, -1.0)
    (x,) = backend.prepare((points,), network)
    wanted = getattr(torch, function)(torch.tensor(points)).numpy()
    found = backend.numpy(getattr(network.nn, function)(x))
    assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("function", ["elu", "selu", "celu", "cosh"])
def test_small_derivatives_are_right_relative_to_their_size(backend, function):
    points = np.array([1e-9, -1e-9]) if function == "cosh" else np.array([-25.0, -90.0])

    def loss(network, x):
        return network.nn.sum(getattr(network.nn, function)(x))

    network = build(Network.on(backend), dtype="float64")
    found = backend.gradients(loss, network, points).inputs[0]
    x = torch.tensor(points, requires_grad=True)
    theirs = getattr(torch.nn.functional, function, torch.cosh)
    theirs(x).sum().backward()
    assert_allclose(found, x.grad.numpy(), rtol=1e-9)


IN_PLACE = {
    "ReLU": (),
    "ReLU6": (),
    "SiLU": (),
    "Hardswish": (),
    "Hardsigmoid": (),
    "Mish": (),
    "SELU": (),
    "LeakyReLU": (0.2,),
    "ELU": (0.5,),
    "CELU": (0.5,),
    "Hardtanh": (-0.5, 0.5),
    "Threshold": (0.1, -3.0),
    "Dropout": (0.5,),
    "AlphaDropout": (0.5,),
}


def test_no_layer_writes_over_its_input(backend):
    backend, x = backend, normal(0, 3, 5, scale=2.0).astype(np.float32)
    for layer, settings in IN_PLACE.items():
        given = backend.array(x)
        build(getattr(backend.nn, layer), *settings, inplace=True)(given)
        assert_array_equal(backend.numpy(given), x, err_msg=layer)


class Branches(Network):
    """Two branches read one input, the first of them with an activation in place."""

    def __init__(self):
        super().__init__()
        self.first = self.nn.Sequential(
            self.nn.ReLU(inplace=True), self.nn.Linear(4, 3)
        )
        self.second = self.nn.Linear(4, 3)

    def forward(self, x):
        return self.first(x), self.second(x)


def test_an_input_is_the_same_after_an_activation_in_place(backend):
    network = build(Branches.on(backend), dtype="float64")
    x, state = normal(0, 2, 4), network.neutral_state()
    first, second = network(backend.array(x))
    wanted = np.maximum(x, 0.0) @ state["first.1.weight"].T + state["first.1.bias"]
    assert_allclose(backend.numpy(first), wanted, rtol=0, atol=1e-12)
    wanted = x @ state["second.weight"].T + state["second.bias"]
    assert_allclose(backend.numpy(second), wanted, rtol=0, atol=1e-12)


def test_a_native_layer_in_place_writes_over_its_input():
    x = torch.tensor([-1.0, 2.0])
    get("torch").wrap(torch.nn.ReLU(inplace=True))(x)
    assert x.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("shape", [(), (1,)])
def test_the_leaky_relu_of_a_scalar_is_a_scalar(name, shape):
    backend = get(name)
    x, weight = backend.array(np.array(-2.0)), backend.array(np.full(shape, 0.25))
    y = backend.nn.prelu(x, weight)
    assert tuple(y.shape) == ()
    assert float(backend.numpy(y)) == -0.5
