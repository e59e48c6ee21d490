"""Activations at random points, at their kinks and far out: values and gradients."""

import numpy as np
import pytest
import torch

from deliralike import Network, build
from tests.conftest import BACKENDS
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    agree_function,
    clamped,
    get,
    hold,
    normal,
    numbers,
    property_test,
)

F = torch.nn.functional
KINKS = np.array([0.0, -0.0, 3.0, -3.0, 6.0, 1e-300, -1e-300, 2.999999, 6.000001, -2.999999])
FAR = np.array([-700.0, -88.0, -30.0, -20.0, 20.0, 21.0, 30.0, 88.0, 700.0])


def exact_hardsigmoid(x):
    """PyTorch's own has its slope of 1/6 rounded to float32, also in float64."""
    return F.relu6(x + 3.0) / 6.0


class Hardsigmoid(torch.nn.Module):
    def forward(self, x):
        return exact_hardsigmoid(x)


ACTIVATIONS = {
    "relu": (lambda nn, x: nn.relu(x), F.relu),
    "relu6": (lambda nn, x: nn.relu6(x), F.relu6),
    "leaky_relu": (lambda nn, x: nn.leaky_relu(x), F.leaky_relu),
    **{
        f"leaky_relu {slope}": (
            lambda nn, x, slope=slope: nn.leaky_relu(x, slope),
            lambda x, slope=slope: F.leaky_relu(x, slope),
        )
        for slope in (0.2, 0.0, 1.0, 1.5, -0.3)
    },
    "elu": (lambda nn, x: nn.elu(x), F.elu),
    "elu 0.7": (lambda nn, x: nn.elu(x, 0.7), lambda x: F.elu(x, 0.7)),
    "silu": (lambda nn, x: nn.silu(x), F.silu),
    "gelu": (lambda nn, x: nn.gelu(x), F.gelu),
    "gelu tanh": (lambda nn, x: nn.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh")),
    "hardswish": (lambda nn, x: nn.hardswish(x), F.hardswish),
    "hardsigmoid": (lambda nn, x: nn.hardsigmoid(x), exact_hardsigmoid),
    "sigmoid": (lambda nn, x: nn.sigmoid(x), torch.sigmoid),
    "tanh": (lambda nn, x: nn.tanh(x), torch.tanh),
    "softplus": (lambda nn, x: nn.softplus(x), F.softplus),
    "erf": (lambda nn, x: nn.erf(x), torch.erf),
    "abs": (lambda nn, x: nn.abs(x), torch.abs),
    "sin": (lambda nn, x: nn.sin(x), torch.sin),
    "cos": (lambda nn, x: nn.cos(x), torch.cos),
    "clip": (lambda nn, x: nn.clip(x, -3.0, 6.0), lambda x: clamped(x, -3.0, 6.0)),
}


@pytest.mark.parametrize(
    "points", [KINKS, FAR, normal(0, 3, 5, scale=4.0)], ids=["kinks", "far", "random"]
)
@pytest.mark.parametrize("name", NAMES)
def test_activations_agree_in_values_and_gradients(name, points):
    agree_all(
        name,
        {label: FunctionCase(*functions, [points]) for label, functions in ACTIVATIONS.items()},
    )


@pytest.mark.parametrize("slope", [0.2, 0.0, 1.5, -0.3])
@pytest.mark.parametrize("name", NAMES)
def test_leaky_relu_keeps_what_is_not_finite(name, slope):
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 2.0])
    with np.errstate(invalid="ignore"):
        wanted = np.where(x > 0, x, slope * x)
        found = hold(name).nn.leaky_relu(get(name).prepare(x, hold(name)), slope)
    np.testing.assert_array_equal(get(name).numpy(found), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_exp_log_and_square_root_agree(name):
    agree_function(
        name,
        lambda nn, x, y: [nn.exp(x), nn.log(y), nn.sqrt(y)],
        lambda x, y: [torch.exp(x), torch.log(y), torch.sqrt(y)],
        [normal(0, 3, 4), np.abs(normal(1, 3, 4)) + 1e-3],
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_far_tail_of_the_sigmoid_is_kept_relative_to_its_size(name):
    backend, network = get(name), hold(name)
    (x,) = backend.prepare((np.array([-20.0, -30.0, -600.0]),), network)
    found = backend.numpy(network.nn.sigmoid(x))
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp([20.0, 30.0, 600.0])), rtol=1e-12)


LAYERS = {
    "ReLU": {},
    "ReLU6": {},
    "SiLU": {},
    "Hardswish": {},
    "Hardsigmoid": {},
    "Sigmoid": {},
    "Tanh": {},
    "Softplus": {},
    "Identity": {},
    "LeakyReLU": {"negative_slope": 0.2},
    "ELU": {"alpha": 0.7},
    "GELU": {"approximate": "tanh"},
    "Softmax": {"dim": 1},
    "LogSoftmax": {"dim": -1},
    "PReLU": {"init": 0.1},
}


@pytest.mark.parametrize("name", NAMES)
def test_activation_layers_agree(name):
    x, oracles = normal(4, 3, 4, 2, scale=3.0), {"Hardsigmoid": Hardsigmoid}
    agree_all(
        name,
        {
            layer: LayerCase(layer, LAYERS[layer], [x], oracle=oracles.get(layer))
            for layer in LAYERS
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_prelu_agrees_with_one_slope_and_with_one_for_each_channel(name):
    shapes = [(3, 4), (3, 4, 5), (2, 4, 3, 2)]
    agree_all(
        name,
        {
            f"{n} slopes, {shape}": LayerCase("PReLU", {"num_parameters": n}, [normal(5, *shape)])
            for n in (1, 4)
            for shape in shapes
        },
    )


def softmax(dim):
    x = normal(6, 3, 4, 5, scale=300.0)
    x[0, 0, :4] = -np.inf
    return FunctionCase(lambda nn, x: nn.softmax(x, dim), lambda x: torch.softmax(x, dim), [x])


def log_softmax(dim):
    x = normal(7, 3, 4, 5, scale=300.0)
    return FunctionCase(
        lambda nn, x: nn.log_softmax(x, dim), lambda x: torch.log_softmax(x, dim), [x]
    )


@pytest.mark.parametrize("name", NAMES)
def test_softmax_agrees_over_every_axis_with_large_values_and_forbidden_ones(name):
    agree_all(
        name,
        {
            f"{case.__name__} {dim}": case(dim)
            for case in (softmax, log_softmax)
            for dim in (0, 1, 2, -1)
        },
    )


@property_test(4, seed=numbers)
def test_all_activations_agree_at_random_points(seed):
    return FunctionCase(
        lambda nn, x: [ours(nn, x) for ours, _ in ACTIVATIONS.values()],
        lambda x: [theirs(x) for _, theirs in ACTIVATIONS.values()],
        [normal(seed, 2, 3, scale=4.0)],
    )


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


@pytest.mark.parametrize("name", BACKENDS)
def test_no_layer_writes_over_its_input(name):
    backend, x = get(name), normal(0, 3, 5, scale=2.0).astype(np.float32)
    for layer, settings in IN_PLACE.items():
        given = backend.array(x)
        build(getattr(backend.nn, layer), *settings, inplace=True)(given)
        np.testing.assert_array_equal(backend.numpy(given), x, err_msg=layer)


class Branches(Network):
    """Two branches read one input, the first of them with an activation in place."""

    def __init__(self):
        super().__init__()
        self.first = self.nn.Sequential(self.nn.ReLU(inplace=True), self.nn.Linear(4, 3))
        self.second = self.nn.Linear(4, 3)

    def forward(self, x):
        return self.first(x), self.second(x)


@pytest.mark.parametrize("name", BACKENDS)
def test_an_input_is_the_same_after_an_activation_in_place(name):
    network = build(Branches.on(get(name)), dtype="float64")
    x, state = normal(0, 2, 4), network.neutral_state()
    first, second = network(get(name).array(x))
    wanted = np.maximum(x, 0.0) @ state["first.1.weight"].T + state["first.1.bias"]
    np.testing.assert_allclose(get(name).numpy(first), wanted, rtol=0, atol=1e-12)
    wanted = x @ state["second.weight"].T + state["second.bias"]
    np.testing.assert_allclose(get(name).numpy(second), wanted, rtol=0, atol=1e-12)


def test_a_native_layer_in_place_writes_over_its_input():
    x = torch.tensor([-1.0, 2.0])
    get("torch").wrap(torch.nn.ReLU(inplace=True))(x)
    assert x.tolist() == [0.0, 2.0]
