"""Convolutions and their transposes against torch and finite differences."""

import chainer
import chainer.functions as F
import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("error")

SIZES = {1: (11,), 2: (9, 7), 3: (7, 5, 6)}
KERNELS = {1: (3,), 2: (3, 2), 3: (3, 2, 2)}
CONVOLUTIONS = {
    1: torch.nn.functional.conv1d,
    2: torch.nn.functional.conv2d,
    3: torch.nn.functional.conv3d,
}
TRANSPOSES = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}
NAMED = {1: F.convolution_1d, 2: F.convolution_2d, 3: F.convolution_3d}
NAMED_TRANSPOSES = {1: F.deconvolution_1d, 2: F.deconvolution_2d, 3: F.deconvolution_3d}
SETTINGS = [
    {"stride": 1, "pad": 0, "dilate": 1, "groups": 1},
    {"stride": 2, "pad": 1, "dilate": 1, "groups": 1},
    {"stride": 2, "pad": 1, "dilate": 2, "groups": 1},
    {"stride": 2, "pad": 0, "dilate": 1, "groups": 2},
]


def _named_for_torch(settings):
    return {
        "stride": settings["stride"],
        "padding": settings["pad"],
        "dilation": settings["dilate"],
        "groups": settings["groups"],
    }


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("named", [True, False], ids=["named", "nd"])
def test_a_convolution_is_that_of_torch(ndim, settings, named, rng, agree):
    x = rng.normal(size=(3, 4, *SIZES[ndim]))
    weight = rng.normal(size=(6, 4 // settings["groups"], *KERNELS[ndim]))
    function = NAMED[ndim] if named else F.convolution_nd
    agree(
        lambda *arrays: function(*arrays, **settings),
        lambda *tensors: CONVOLUTIONS[ndim](*tensors, **_named_for_torch(settings)),
        x,
        weight,
        rng.normal(size=6),
    )


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("named", [True, False], ids=["named", "nd"])
def test_a_deconvolution_is_the_transpose_of_torch(ndim, settings, named, rng, agree):
    x = rng.normal(size=(3, 4, *(size // 2 for size in SIZES[ndim])))
    weight = rng.normal(size=(4, 6 // settings["groups"], *KERNELS[ndim]))
    function = NAMED_TRANSPOSES[ndim] if named else F.deconvolution_nd
    agree(
        lambda *arrays: function(*arrays, **settings),
        lambda *tensors: TRANSPOSES[ndim](*tensors, **_named_for_torch(settings)),
        x,
        weight,
        rng.normal(size=6),
    )


@pytest.mark.parametrize("batch", [3, 4])
def test_the_weight_of_a_first_deconvolution_gets_its_gradient(batch, rng):
    x = rng.normal(size=(batch, 4, 5, 3))
    weight = rng.normal(size=(4, 2, 3, 3))
    parameter = chainer.Parameter(weight)
    F.sum(F.deconvolution_2d(x, parameter, stride=2) ** 2).backward()
    tensor = torch.tensor(weight, requires_grad=True)
    (
        torch.nn.functional.conv_transpose2d(torch.tensor(x), tensor, stride=2) ** 2
    ).sum().backward()
    np.testing.assert_allclose(parameter.grad, tensor.grad.numpy(), rtol=1e-10)
