"""Operations that are one node on Chainer, beside PyTorch: values, first and second derivatives."""

import torch

from tests.nn.agreement import agree_twice, normal


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
    "self-attention": (
        lambda nn, x: squares(nn.attention(x, x, x, need_weights=False)[:1], nn),
        lambda x: squares([torch.nn.functional.scaled_dot_product_attention(x, x, x)]),
        [normal(0, 2, 4, 5)],
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
        for name in ("silu", "gelu", "relu6", "hardswish")
    },
    "hard sigmoid": (
        lambda nn, x: squares([nn.hardsigmoid(x * 4.0)], nn),
        lambda x: squares([((x * 4.0 + 3.0) / 6.0).clamp(0.0, 1.0)]),
        [normal(0, 5, 7)],
    ),
}


def test_operations_in_one_node_have_right_first_and_second_derivatives():
    agree_twice("chainer", IN_ONE_NODE)
