"""Convolutions and their transposes against torch and finite differences."""

import chainer
import chainer.functions as F
import chainer.links as L
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
    (torch.nn.functional.conv_transpose2d(torch.tensor(x), tensor, stride=2) ** 2).sum().backward()
    np.testing.assert_allclose(parameter.grad, tensor.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("extra", [0, 1])
def test_outsize_adds_rows_at_the_end_of_a_deconvolution(extra, rng, agree):
    agree(
        lambda x, w: F.deconvolution_2d(x, w, stride=2, pad=1, outsize=(9 + extra, 5 + extra)),
        lambda x, w: torch.nn.functional.conv_transpose2d(
            x, w, stride=2, padding=1, output_padding=extra
        ),
        rng.normal(size=(2, 3, 5, 3)),
        rng.normal(size=(3, 2, 3, 3)),
    )


def test_cover_all_adds_the_window_that_sticks_out(rng, agree):
    agree(
        lambda x, w: F.convolution_2d(x, w, stride=2, cover_all=True),
        lambda x, w: torch.nn.functional.conv2d(
            torch.nn.functional.pad(x, (0, 1, 0, 1)), w, stride=2
        ),
        rng.normal(size=(2, 3, 8, 6)),
        rng.normal(size=(2, 3, 3, 3)),
    )


def test_a_depthwise_convolution_is_a_grouped_one(rng, agree):
    agree(
        lambda x, w: F.depthwise_convolution_2d(x, w, stride=2, pad=1),
        lambda x, w: torch.nn.functional.conv2d(
            x, w.transpose(0, 1).reshape(6, 1, 3, 3), stride=2, padding=1, groups=3
        ),
        rng.normal(size=(2, 3, 7, 5)),
        rng.normal(size=(2, 3, 3, 3)),
    )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_convolution_keeps_the_dtype_of_its_input(dtype, rng):
    x, w = (rng.normal(size=shape).astype(dtype) for shape in [(2, 3, 7, 5), (4, 3, 3, 3)])
    w = chainer.Variable(w)
    y = F.convolution_2d(x, w, stride=2)
    F.sum(y).backward()
    assert (y.dtype, w.grad.dtype) == (np.dtype(dtype), np.dtype(dtype))
    expected = torch.nn.functional.conv2d(
        *(torch.tensor(a.astype("float64")) for a in (x, w.array)), stride=2
    )
    np.testing.assert_allclose(
        y.array, expected, **{"float16": {"rtol": 2e-2, "atol": 2e-2}}.get(dtype, {"rtol": 1e-4})
    )


@pytest.mark.parametrize(
    ("link", "weight_shape", "output_shape"),
    [
        (lambda: L.Convolution2D(3, 5, 3, stride=2, nobias=True), (5, 3, 3, 3), (2, 5, 4, 3)),
        (lambda: L.Convolution2D(None, 5, 3, pad=1), (5, 3, 3, 3), (2, 5, 9, 7)),
        (lambda: L.Deconvolution2D(3, 5, 2, stride=2), (3, 5, 2, 2), (2, 5, 18, 14)),
        (lambda: L.ConvolutionND(2, 3, 5, (3, 2), dilate=2), (5, 3, 3, 2), (2, 5, 5, 5)),
        (lambda: L.DilatedConvolution2D(3, 5, 3, dilate=2), (5, 3, 3, 3), (2, 5, 5, 3)),
        (lambda: L.DepthwiseConvolution2D(3, 2, 3), (2, 3, 3, 3), (2, 6, 7, 5)),
    ],
)
def test_a_convolution_link_has_the_documented_shapes(link, weight_shape, output_shape, rng):
    link = link()
    y = link(rng.normal(size=(2, 3, 9, 7)).astype("float32"))
    assert (link.W.shape, y.shape) == (weight_shape, output_shape)
