"""Operations that are one node on Chainer, beside PyTorch: values, first and second derivatives."""

import numpy as np
import pytest
import torch

from deliralike.backends.chainer.kernels import shifted
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

# as (ours, theirs, inputs): each is one node on Chainer, with first derivatives by hand
IN_ONE_NODE = {
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
    "attention": (
        lambda nn, *arrays: squares(nn.attention(*arrays, scale=0.3), nn),
        lambda *arrays: squares(attended(*arrays)),
        [normal(seed, 2, 3, *shape) for seed, shape in enumerate([(4, 5), (7, 5), (7, 6)])]
        + [normal(3, 4, 7), normal(4, 3, 1, 7)],
    ),
    "attention without leading axes": (
        lambda nn, *arrays: squares(nn.attention(*arrays, scale=0.3)[:1], nn),
        lambda *arrays: squares([attended(*arrays, 0.0, 1.0)[0]]),
        [normal(seed, *shape) for seed, shape in enumerate([(4, 5), (7, 5), (7, 6)])],
    ),
    "attention in pieces": (
        lambda nn, *arrays: squares([nn.attention(*arrays, scale=0.3)[1]], nn),
        lambda *arrays: squares([attended(*arrays, 1.0)[1]]),
        [normal(seed, 3, 1, *shape) for seed, shape in enumerate([(240, 1), (250, 1), (250, 1)])]
        + [normal(3, 240, 250)],
    ),
    "self-attention": (
        lambda nn, x: squares(nn.attention(x, x, x, need_weights=False)[:1], nn),
        lambda x: squares([(x @ x.mT * 5**-0.5).softmax(-1) @ x]),
        [normal(0, 2, 4, 5)],
    ),
    "cross-entropy": (
        lambda nn, x: squares([nn.cross_entropy(x, LABELS)], nn),
        lambda x: squares([torch.nn.functional.cross_entropy(x, torch.from_numpy(LABELS))]),
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
        for name in ("silu", "gelu", "leaky_relu", "elu", "relu6", "hardswish")
    },
    "hard sigmoid": (
        lambda nn, x: squares([nn.hardsigmoid(x * 4.0)], nn),
        lambda x: squares([((x * 4.0 + 3.0) / 6.0).clamp(0.0, 1.0)]),
        [normal(0, 5, 7)],
    ),
}


def test_operations_in_one_node_have_right_first_and_second_derivatives():
    agree_twice("chainer", IN_ONE_NODE)


def settings_of_a_convolution(seed):
    """Odd settings, as (geometry, batch, in and out channels of a group)."""
    rng = np.random.default_rng(seed)
    n = 1 + seed % 3
    kernel, stride, dilation = (tuple(rng.integers(1, most, n).tolist()) for most in (6 - n, 4, 3))
    pads = tuple((int(before), int(after)) for before, after in rng.integers(0, 4, (n, 2)))
    least = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = tuple(
        max(1, k - sum(p) + int(rng.integers(0, 6))) for k, p in zip(least, pads, strict=True)
    )
    count = tuple(map(conv_size, size, kernel, stride, pads, dilation))
    groups = (1, 1, 3, 4)[seed % 4]
    geometry = Geometry(stride, pads, dilation, groups, kernel, size, count)
    return geometry, *rng.integers(1, 4, 3).tolist()


@pytest.mark.parametrize("seed", range(36))
def test_a_convolution_by_shifts_has_the_values_and_gradients_of_pytorch(seed):
    g, batch, channels, out = settings_of_a_convolution(seed)
    x = normal(0, batch, channels * g.groups, *g.size)
    w = normal(1, out * g.groups, channels, *g.kernel)
    gy = normal(2, batch, out * g.groups, *g.count)
    xs, ws = (torch.tensor(each, requires_grad=True) for each in (x, w))
    function = getattr(torch.nn.functional, f"conv{len(g.size)}d")
    margins = [margin for pads in reversed(g.pads) for margin in pads]
    padded = torch.nn.functional.pad(xs, margins)
    y = function(padded, ws, None, g.stride, 0, g.dilation, g.groups)
    gx, gw = torch.autograd.grad(y, [xs, ws], torch.tensor(gy))
    grid = shifted.grid_of(g, batch)
    same(shifted.convolve(x, w, grid), y.detach().numpy(), "output", tolerance=1e-12)
    same(shifted.transpose(gy, w, grid), gx.numpy(), "gradient of the input", tolerance=1e-12)
    same(shifted.weight_gradient(x, gy, grid), gw.numpy(), "of the weight", tolerance=1e-12)


def test_a_depthwise_convolution_by_shifts_has_the_second_derivatives_of_pytorch():
    x, w = normal(0, 2, 6, 9, 11), normal(1, 6, 1, 3, 3)
    agree_twice(
        "chainer",
        {
            f"{stride=}": (
                lambda nn, x, w, s=stride: squares([nn.conv(x, w, None, s, 1, 1, 6)], nn),
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
                lambda x, w, p=padding: squares([torch.nn.functional.conv3d(x, w, padding=p)]),
                [x, w],
            )
            for padding in (1, (2, 0, 1))
        },
    )
