"""Activations at random points, at their kinks and far out: values and gradients."""

import numpy as np
import pytest
import torch

from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    LayerCase,
    agree_all,
    get,
    hold,
    normal,
)

F = torch.nn.functional


@pytest.mark.parametrize("slope", [0.2, 0.0, 1.5, -0.3])
@pytest.mark.parametrize("name", NAMES)
def test_leaky_relu_keeps_what_is_not_finite(name, slope):
    x = np.array([np.inf, -np.inf, np.nan, -0.0, 2.0])
    with np.errstate(invalid="ignore"):
        wanted = np.where(x > 0, x, slope * x)
        found = hold(name).nn.leaky_relu(get(name).prepare(x, hold(name)), slope)
    np.testing.assert_array_equal(get(name).numpy(found), wanted)


@pytest.mark.parametrize("name", NAMES)
def test_the_far_tail_of_the_sigmoid_is_kept_relative_to_its_size(name):
    backend, network = get(name), hold(name)
    (x,) = backend.prepare((np.array([-20.0, -30.0, -600.0]),), network)
    found = backend.numpy(network.nn.sigmoid(x))
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp([20.0, 30.0, 600.0])), rtol=1e-12)


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


IN_PLACE = {
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "SiLU": F.silu,
    "Hardswish": F.hardswish,
    "LeakyReLU": F.leaky_relu,
}


def in_place(layer):
    return FunctionCase(
        lambda nn, x: getattr(nn, layer)(inplace=True)(x * 2.0),
        lambda x: IN_PLACE[layer](x * 2.0),
        [normal(8, 3, 5, scale=4.0)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_writing_in_place_changes_no_number(name):
    """PyTorch writes over what the multiplication gave; the multiplication's own gradient does not
    need it."""
    agree_all(name, {layer: in_place(layer) for layer in IN_PLACE})


@pytest.mark.parametrize("inplace", [True, False])
def test_pytorch_writes_in_place_only_when_asked(inplace):
    nn = get("torch").nn
    for layer in IN_PLACE:
        x = torch.linspace(-4.0, 4.0, 9, dtype=torch.float64)
        before = x.clone()
        y = getattr(nn, layer)(inplace=inplace)(x)
        assert (y.data_ptr() == x.data_ptr()) is inplace, layer
        assert torch.equal(x, before) is not inplace, layer
