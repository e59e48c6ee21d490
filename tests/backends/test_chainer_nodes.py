"""Functions of Chainer beside PyTorch's: values, first and second derivatives."""

import numpy as np
import pytest
import torch

import deliralike
from deliralike.backends.chainer.arrays import chainer
from deliralike.backends.chainer.kernels import depthwise, slices
from deliralike.backends.chainer.kernels.convolution import Convolve
from deliralike.backends.chainer.kernels.geometry import Geometry
from deliralike.nn.geometry import conv_size
from tests.nn.agreement import agree_twice, normal, same


def a_recurrence(function):
    """One layer by a function of PyTorch's, which takes states with an axis for layers."""

    def theirs(x, hidden, *parameters):
        states = hidden[None]
        if function is torch.lstm:
            states = (states, hidden.cos()[None])
        return function(x, states, list(parameters), True, 1, 0.0, True, False, False)

    return theirs


def over_time(nn, name, x, hidden, *parameters):
    states = (hidden, nn.cos(hidden)) if name == "lstm" else (hidden,)
    return getattr(nn, name)(x, *states, *parameters)


def squares(parts, nn=torch):
    return sum(nn.sum(part * part) for part in parts)


def recurrent_arrays(gates):
    rows = gates * 4
    shapes = [(5, 3, 2), (3, 4), (rows, 2), (rows, 4), (rows,), (rows,)]
    return [normal(seed, *shape) for seed, shape in enumerate(shapes)]


def attended(query, key, value, bias, mask):
    weights = (query @ key.transpose(-1, -2) * 0.3 + bias).softmax(-1)
    return (weights * mask) @ value, weights


LABELS = np.array([[0, 2], [1, -100], [2, 2], [-100, 0]])  # of which two are ignored

# as (ours, theirs, inputs)
FUNCTIONS = {
    **{
        name: (
            lambda nn, *arrays, name=name: squares(over_time(nn, name, *arrays), nn),
            lambda *arrays, function=function: squares(a_recurrence(function)(*arrays)),
            recurrent_arrays(gates),
        )
        for name, function, gates in (
            ("lstm", torch.lstm, 4),
            ("gru", torch.gru, 3),
            ("rnn", torch.rnn_tanh, 1),
        )
    },
    "rnn with relu": (
        lambda nn, *arrays: squares(nn.rnn(*arrays, nonlinearity="relu"), nn),
        lambda *arrays: squares(a_recurrence(torch.rnn_relu)(*arrays)),
        recurrent_arrays(1),
    ),
    "silu of large numbers in another order of axes": (
        lambda nn, x: squares(nn.silu(nn.permute(x, (1, 2, 0))), nn),
        lambda x: squares(torch.nn.functional.silu(x.permute(1, 2, 0))),
        [normal(0, 3, 5, 2) * 40.0],
    ),
    "attention": (
        lambda nn, *arrays: squares(nn.attention(*arrays, scale=0.3), nn),
        lambda *arrays: squares(attended(*arrays)),
        [
            normal(seed, 2, 3, *shape)
            for seed, shape in enumerate([(4, 5), (7, 5), (7, 6)])
        ]
        + [normal(3, 4, 7), normal(4, 3, 1, 7)],
    ),
    "attention without leading axes": (
        lambda nn, *arrays: squares(nn.attention(*arrays, scale=0.3)[:1], nn),
        lambda *arrays: squares([attended(*arrays, 0.0, 1.0)[0]]),
        [normal(seed, *shape) for seed, shape in enumerate([(4, 5), (7, 5), (7, 6)])],
    ),
    "self-attention": (
        lambda nn, x: squares(nn.attention(x, x, x, need_weights=False)[:1], nn),
        lambda x: squares([(x @ x.mT * 5**-0.5).softmax(-1) @ x]),
        [normal(0, 2, 4, 5)],
    ),
    "cross-entropy": (
        lambda nn, x: squares([nn.cross_entropy(x, LABELS)], nn),
        lambda x: squares(
            [torch.nn.functional.cross_entropy(x, torch.from_numpy(LABELS))]
        ),
        [normal(0, 4, 3, 2)],
    ),
    "linear": (
        lambda nn, *arrays: squares([nn.linear(*arrays)], nn),
        lambda *arrays: squares([torch.nn.functional.linear(*arrays)]),
        [normal(0, 2, 3, 5), normal(1, 4, 5), normal(2, 4)],
    ),
    "group norm": (
        lambda nn, x, *rest: squares([nn.group_norm(x, 2, *rest)], nn),
        lambda x, *rest: squares([torch.nn.functional.group_norm(x, 2, *rest)]),
        [normal(0, 3, 6, 5), normal(1, 6), normal(2, 6)],
    ),
    "group norm without a scale": (
        lambda nn, x: squares([nn.group_norm(x, 3)], nn) + nn.sum(x**3.0),
        lambda x: squares([torch.nn.functional.group_norm(x, 3)]) + (x**3.0).sum(),
        [normal(0, 3, 6, 5)],
    ),
    "layer norm": (
        lambda nn, x, *rest: squares([nn.layer_norm(x, (4, 5), *rest)], nn),
        lambda x, *rest: squares([torch.nn.functional.layer_norm(x, (4, 5), *rest)]),
        [normal(0, 3, 4, 5), normal(1, 4, 5), normal(2, 4, 5)],
    ),
    "batch norm with its statistics": (
        lambda nn, *arrays: squares(nn.batch_norm_train(*arrays), nn),
        lambda x, *rest: squares(
            [
                torch.nn.functional.batch_norm(x, None, None, *rest, training=True),
                x.mean((0, 2)),
                x.var((0, 2), correction=0),
            ]
        ),
        [normal(0, 3, 4, 5), normal(1, 4), normal(2, 4)],
    ),
    **{
        name: (
            lambda nn, x, name=name: squares([getattr(nn, name)(x * 4.0)], nn),
            lambda x, name=name: squares([getattr(torch.nn.functional, name)(x * 4.0)]),
            [normal(0, 5, 7)],
        )
        for name in ("silu", "gelu", "relu", "leaky_relu", "elu", "relu6", "hardswish")
    },
    "hard sigmoid": (
        lambda nn, x: squares([nn.hardsigmoid(x * 4.0)], nn),
        lambda x: squares([((x * 4.0 + 3.0) / 6.0).clamp(0.0, 1.0)]),
        [normal(0, 5, 7)],
    ),
}


def test_functions_have_the_first_and_second_derivatives_of_pytorch():
    agree_twice("chainer", FUNCTIONS)


KINKS = np.array([-np.inf, -1.0, -0.0, 0.0, 2.0, 6.0, 7.0, np.inf, np.nan])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["relu", "relu6"])
def test_no_gradient_goes_back_where_relu_is_flat_be_it_nan(name, dtype):
    """Every place under every gradient, in arrays that lie in memory in several orders."""
    nn = deliralike.backends.get("chainer").nn
    # at NaN PyTorch's relu6 gives one derivative in vectors of the processor, another beside them
    places = KINKS if name == "relu" else KINKS[:-1]
    values, upstream = np.meshgrid(places, [1.0, np.inf, -np.inf, np.nan])
    for order in (
        np.ascontiguousarray,
        np.asfortranarray,
        ORDERS["every second element"],
    ):
        x, gy = order(values.astype(dtype)), order(upstream.astype(dtype))
        ours = chainer.Variable(x)
        y = getattr(nn, name)(ours)
        y.grad = gy
        y.backward()
        theirs = torch.tensor(values.astype(dtype), requires_grad=True)
        wanted = getattr(torch.nn.functional, name)(theirs)
        wanted.backward(torch.tensor(upstream.astype(dtype)))
        assert y.dtype == ours.grad.dtype == dtype
        np.testing.assert_array_equal(y.array, wanted.detach().numpy())
        np.testing.assert_array_equal(ours.grad, theirs.grad.numpy())


def settings_of_a_convolution(seed, axes, groups):
    """Odd settings, as (geometry, batch, in and out channels of a group)."""
    rng = np.random.default_rng(seed)
    kernel, stride, dilation = (
        tuple(rng.integers(1, most, axes).tolist()) for most in (6 - axes, 4, 3)
    )
    pads = tuple(
        (int(before), int(after)) for before, after in rng.integers(0, 4, (axes, 2))
    )
    if seed < 8:  # the others are not computed by slices
        stride = (1, *stride[1:])
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = tuple(
        max(1, k - sum(p) + int(rng.integers(0, 6)))
        for k, p in zip(least, pads, strict=True)
    )
    count = tuple(map(conv_size, size, kernel, stride, pads, dilation))
    geometry = Geometry(stride, pads, dilation, groups, kernel, size, count)
    batch, channels, out = rng.integers(1, 4, 3).tolist()
    return (geometry, batch, 1, 1) if groups > 3 else (geometry, batch, channels, out)


# as (axes, groups)
FORMS = {
    "depthwise, one axis": (1, 4),
    "depthwise": (2, 5),
    "depthwise, three axes": (3, 4),
    "by slices": (2, 1),
    "by slices twice": (3, 1),
    "by columns": (1, 1),
    "groups": (2, 3),
}
ORDERS = {
    "as usual": lambda x: x,
    "channels first": lambda x: x.swapaxes(0, 1).copy().swapaxes(0, 1),
    "channels last": lambda x: np.moveaxis(np.moveaxis(x, 1, -1).copy(), -1, 1),
    "transposed": np.asfortranarray,
    "every second element": lambda x: x.repeat(2, -1)[..., ::2],
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_convolution_has_the_values_and_gradients_of_pytorch(form, order):
    for seed in range(10):
        g, batch, channels, out = settings_of_a_convolution(seed, *form)
        x = normal(0, batch, channels * g.groups, *g.size)
        w = normal(1, out * g.groups, channels, *g.kernel)
        gy = normal(2, batch, out * g.groups, *g.count)
        b = normal(3, len(w))
        inputs = [chainer.Variable(order(each)) for each in (x, w)]
        inputs.append(chainer.Variable(b))
        y = Convolve(g).apply(inputs)[0]
        y.grad = order(gy)
        y.backward()
        found = [y.array, *(each.grad for each in inputs)]
        for mine, theirs in zip(found, of_pytorch(g, x, w, b, gy), strict=True):
            same(mine, theirs, str(g), tolerance=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_the_settings_are_those_of_the_form(form):
    x, sliced = np.zeros(1), 0
    for seed in range(10):
        g, _, channels, out = settings_of_a_convolution(seed, *FORMS[form])
        weight = (out * g.groups, channels, *g.kernel)
        assert depthwise.suits(x, weight, g) == form.startswith("depthwise")
        sliced += slices.suits(x, weight, g)
    assert (sliced > 3) == form.startswith("by slices")


def of_pytorch(g, x, w, b, gy):
    """Return a convolution of PyTorch's, and the gradients of input, weight and bias."""
    inputs = [torch.tensor(each, requires_grad=True) for each in (x, w, b)]
    function = getattr(torch.nn.functional, f"conv{len(g.size)}d")
    margins = [margin for pads in reversed(g.pads) for margin in pads]
    padded = torch.nn.functional.pad(inputs[0], margins)
    y = function(padded, *inputs[1:], g.stride, 0, g.dilation, g.groups)
    gradients = torch.autograd.grad(y, inputs, torch.tensor(gy))
    return [each.detach().numpy() for each in (y, *gradients)]


# as (stride, groups, size, in and out channels)
WITH_A_BIAS = {
    "as many channels, few windows": (
        1,
        1,
        (4, 3),
        6,
        6,
    ),
    "more output channels": (1, 1, (4, 3), 2, 6),
    "strides": (2, 1, (5, 6), 6, 4),
    "many windows": (1, 1, (9, 8), 6, 4),
    "depthwise": (1, 6, (5, 4), 6, 6),
    "one axis": (1, 1, (9,), 6, 4),
    "three axes": (1, 1, (3, 4, 5), 3, 2),
}


@pytest.mark.parametrize("name", WITH_A_BIAS)
def test_all_gradients_of_a_convolution_with_a_bias_are_those_of_pytorch(name):
    stride, groups, size, channels, out = WITH_A_BIAS[name]
    n = len(size)
    pads, kernel, strides = ((1, 1), (1, 0), (1, 1))[:n], (3, 2, 3)[:n], (stride,) * n
    count = tuple(map(conv_size, size, kernel, strides, pads, (1,) * n))
    g = Geometry(strides, pads, (1,) * n, groups, kernel, size, count)
    x, w = normal(0, 2, channels, *size), normal(1, out, channels // groups, *kernel)
    b, gy = normal(2, out), normal(3, 2, out, *count)
    inputs = [chainer.Variable(each) for each in (x, w, b)]
    y = Convolve(g).apply(inputs)[0]
    y.grad = gy
    y.backward()
    found = [y.array, *(each.grad for each in inputs)]
    for mine, theirs in zip(found, of_pytorch(g, x, w, b, gy), strict=True):
        same(mine, theirs, name, tolerance=1e-12)


def test_a_convolution_with_a_bias_has_the_second_derivatives_of_pytorch():
    x, w, b = normal(0, 2, 3, 5, 4), normal(1, 4, 3, 3, 3), normal(2, 4)
    agree_twice(
        "chainer",
        {
            "of the bias": (
                lambda nn, b, x, w: squares([nn.conv(x, w, b, padding=1)], nn),
                lambda b, x, w: squares(
                    [torch.nn.functional.conv2d(x, w, b, padding=1)]
                ),
                [b, x, w],
            ),
            "of the input": (
                lambda nn, x, w, b: squares([nn.conv(x, w, b, padding=1)], nn),
                lambda x, w, b: squares(
                    [torch.nn.functional.conv2d(x, w, b, padding=1)]
                ),
                [x, w, b],
            ),
        },
    )


def test_a_depthwise_convolution_has_the_second_derivatives_of_pytorch():
    x, w = normal(0, 2, 6, 9, 11), normal(1, 6, 1, 3, 3)
    agree_twice(
        "chainer",
        {
            f"{stride=}": (
                lambda nn, x, w, s=stride: squares(
                    [nn.conv(x, w, None, s, 1, 1, 6)], nn
                ),
                lambda x, w, s=stride: squares(
                    [torch.nn.functional.conv2d(x, w, None, s, 1, 1, 6)]
                ),
                [x, w],
            )
            for stride in (1, 2)
        },
    )


def test_a_large_convolution_of_three_axes_is_that_of_pytorch():
    x, w = normal(0, 1, 8, 18, 20, 19), normal(1, 6, 8, 3, 3, 3)
    agree_twice(
        "chainer",
        {
            f"{padding=}": (
                lambda nn, x, w, p=padding: squares([nn.conv(x, w, padding=p)], nn),
                lambda x, w, p=padding: squares(
                    [torch.nn.functional.conv3d(x, w, padding=p)]
                ),
                [x, w],
            )
            for padding in (1, (2, 0, 1))
        },
    )


def test_repeated_elements_sum_their_gradients_as_those_of_pytorch():
    x = normal(0, 2, 3, 4, 2)
    agree_twice(
        "chainer",
        {
            f"{factor} times": (
                lambda nn, x, n=factor: squares(
                    [nn.interpolate(x, scale_factor=n)], nn
                ),
                lambda x, n=factor: squares(
                    [torch.nn.functional.interpolate(x, scale_factor=n, mode="nearest")]
                ),
                [x],
            )
            for factor in (2.0, 3.0, 9.0)
        },
    )
