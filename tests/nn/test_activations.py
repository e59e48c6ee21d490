"""Activations at random points, at their kinks and far out: values and gradients."""

import numpy as np
import pytest
import torch

from deliralike import build
from tests.conftest import BACKENDS
from tests.nn.agreement import (
    NAMES,
    get,
    hold,
    normal,
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
def test_the_far_tail_of_the_sigmoid_is_kept_relative_to_its_size(name):
    backend, network = get(name), hold(name)
    (x,) = backend.prepare((np.array([-20.0, -30.0, -600.0]),), network)
    found = backend.numpy(network.nn.sigmoid(x))
    np.testing.assert_allclose(found, 1.0 / (1.0 + np.exp([20.0, 30.0, 600.0])), rtol=1e-12)


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


def test_a_native_layer_in_place_writes_over_its_input():
    x = torch.tensor([-1.0, 2.0])
    get("torch").wrap(torch.nn.ReLU(inplace=True))(x)
    assert x.tolist() == [0.0, 2.0]
