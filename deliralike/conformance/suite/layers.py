"""Checks of layers: outputs, gradients of every parameter, running statistics and padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    agree_all,
    made,
    native,
    output,
    refused,
    values,
)
from deliralike.conformance.suite.rows import network_row
from deliralike.errors import IndexRangeError, ShapeError

_LINE, _IMAGE, _VOLUME = values(2, 2, 5), values(2, 4, 3, 3), values(1, 2, 2, 3, 3)
_TOKENS, _X = values(2, 3, 4), values(3, 5)

# Without parameters: a layer, its formula, an input, and settings of both
# -----------------------------------------------------------------------------


def _plain(
    name: str, function: Callable[..., np.ndarray], x: np.ndarray, *settings: object
) -> None:
    kind = name.split()[0]
    network_row(kind, settings, {}, lambda at: function(at, *settings), x, title=name)


_plain("Identity", np.positive, _X)
_plain("ReLU", formulas.relu, _X)
_plain("ReLU6", lambda x: np.clip(x, 0.0, 6.0), _X * 5.0)
_plain("Sigmoid", formulas.sigmoid, _X)
_plain("Tanh", np.tanh, _X)
_plain("SiLU", lambda x: x * formulas.sigmoid(x), _X)
_plain("Softplus", formulas.softplus, _X)
_plain("LeakyReLU", formulas.leaky_relu, _X)
_plain("LeakyReLU with a slope", formulas.leaky_relu, _X, 0.2)
_plain("ELU", formulas.elu, _X)
_plain("GELU", formulas.gelu, _X)
_plain("GELU by tanh", formulas.gelu, _X, "tanh")
_plain("Hardsigmoid", formulas.hardsigmoid, _X * 2.5)
_plain("Hardswish", lambda x: x * formulas.hardsigmoid(x), _X * 2.5)
_plain("Softmax", formulas.softmax, _X, 1)
_plain("LogSoftmax", formulas.log_softmax, _X, 0)
_plain("Flatten", lambda x: x.reshape(2, 36), _IMAGE)
_plain("PixelShuffle", formulas.pixel_shuffle, _IMAGE, 2)
_plain("Upsample", lambda x, size, factor: x.repeat(2, 2).repeat(2, 3), _IMAGE, None, 2)
_WINDOWED = (values(2, 2, 5), values(2, 2, 3, 5), values(2, 2, 4, 3, 5))
for _n, _x in enumerate(_WINDOWED, start=1):
    _sizes = (1,) * (_n - 1) + (2,)
    _plain(f"MaxPool{_n}d", formulas.max_pool, _x, 3, 2, 1)
    _plain(f"AvgPool{_n}d", formulas.avg_pool, _x, 2, 2, 0)
    _plain(f"AdaptiveAvgPool{_n}d", partial(formulas.adaptive_pool, np.mean), _x, _sizes)
    _plain(f"AdaptiveMaxPool{_n}d", partial(formulas.adaptive_pool, np.max), _x, _sizes)

# Convolutions: the settings are channels in and out, kernel, stride, padding, and what follows
# -----------------------------------------------------------------------------

for _kind, _settings, _shape, _x in (
    ("Conv1d", (2, 3, 2, 1, 1, 2), (3, 2, 2), _LINE),
    ("Conv2d", (4, 2, 3, 2, 1, 1, 2), (2, 2, 3, 3), _IMAGE),
    ("Conv3d", (2, 2, 2, (1, 2, 2), (0, 1, 0)), (2, 2, 2, 2, 2), _VOLUME),
    ("ConvTranspose1d", (2, 2, 3, 2), (2, 2, 3), _LINE),
    ("ConvTranspose2d", (4, 2, 3, 2, 1, 1), (4, 2, 3, 3), _IMAGE),
    ("ConvTranspose3d", (2, 2, 2, (1, 1, 2), 0, 0, 2), (2, 1, 2, 2, 2), _VOLUME),
):
    _function = formulas.conv_transpose if "Transpose" in _kind else formulas.conv
    network_row(
        _kind,
        _settings,
        {"weight": _shape, "bias": _settings[1:2]},
        lambda x, w, b, f=_function, s=_settings: f(x, w, b, *s[3:]),
        _x,
    )
network_row(
    "Conv2d",
    (4, 2, 1),
    {"weight": (2, 4, 1, 1)},
    formulas.conv,
    _IMAGE,
    title="Conv2d without a bias",
    bias=False,
)

# Norms
# -----------------------------------------------------------------------------


def _norm(kind: str, x: np.ndarray, formula: Callable[..., object], *settings: object) -> None:
    weights = {"weight": x.shape[1:2], "bias": x.shape[1:2]}
    network_row(kind, settings, weights, formula, x)


def _in_groups(groups: int) -> Callable[..., np.ndarray]:
    return lambda x, weight, bias: formulas.group_norm(x, groups, weight, bias)


_norm("BatchNorm1d", values(5, 3), formulas.batch_norm_train, 3)
_norm("BatchNorm2d", _IMAGE, partial(formulas.batch_norm_train, eps=1e-3), 4, 1e-3)
_norm("BatchNorm3d", _VOLUME, formulas.batch_norm_train, 2)
for _kind, _x in (("1d", _LINE), ("2d", _IMAGE), ("3d", _VOLUME)):
    _count = _x.shape[1]
    _norm(f"InstanceNorm{_kind}", _x, _in_groups(_count), _count, 1e-5, 0.1, True)
_norm("GroupNorm", _IMAGE, _in_groups(2), 2, 4)
network_row("LayerNorm", (4,), {"weight": (4,), "bias": (4,)}, formulas.layer_norm, _TOKENS)

# Other layers with parameters
# -----------------------------------------------------------------------------


def _names_of_weights(layer: int, end: str = "") -> list[str]:
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [f"{part}_l{layer}{end}" for part in parts]


def _lstm_both_ways(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    x, start = x.transpose(1, 0, 2), np.zeros((len(x), 2))
    forth = formulas.lstm(x, start, start, *weights[:4])[0]
    back = formulas.lstm(x[::-1], start, start, *weights[4:])[0]
    return np.concatenate([forth, back[::-1]], -1).transpose(1, 0, 2)


def _two_gru_layers(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    start = np.zeros((x.shape[1], 2))
    return formulas.gru(formulas.gru(x, start, *weights[:4])[0], start, *weights[4:])[0]


def _two_heads(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, added: np.ndarray | float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """The outputs of two heads of two features, and their mean weights."""
    query, key, value = np.split(formulas.linear(x, weight, bias), 3, axis=-1)
    heads = [
        formulas.attention(query[..., own], key[..., own], value[..., own], added)
        for own in (slice(0, 2), slice(2, 4))
    ]
    outputs, weights = zip(*heads, strict=True)
    return np.concatenate(outputs, -1), np.mean(weights, 0)


_LSTM = [*_names_of_weights(0), *_names_of_weights(0, "_reverse")]
_GRU = [*_names_of_weights(0), *_names_of_weights(1)]
network_row("Linear", (4, 3), {"weight": (3, 4), "bias": (3,)}, formulas.linear, _TOKENS)
network_row("Embedding", (5, 3), {"weight": (5, 3)}, formulas.embedding, np.array([[4, 0], [1, 1]]))
network_row(
    "PReLU", (4,), {"weight": (4,)}, lambda x, w: np.where(x > 0, x, x * w[:, None, None]), _IMAGE
)
network_row(
    "LSTM",
    (3, 2),
    dict(zip(_LSTM, ((8, 3), (8, 2), (8,), (8,)) * 2, strict=True)),
    _lstm_both_ways,
    values(2, 3, 3),
    batch_first=True,
    bidirectional=True,
)
network_row(
    "GRU",
    (3, 2),
    dict(zip(_GRU, ((6, 3), (6, 2), (6,), (6,), (6, 2), (6, 2), (6,), (6,)), strict=True)),
    _two_gru_layers,
    values(3, 2, 3),
    num_layers=2,
)


network_row(
    "MultiheadAttention",
    (4, 2),
    {
        "in_proj_weight": (12, 4),
        "in_proj_bias": (12,),
        "out_proj.weight": (4, 4),
        "out_proj.bias": (4,),
    },
    lambda x, w, b, *out: formulas.linear(_two_heads(x, w, b)[0], *out),
    _TOKENS,
    call=lambda layer, x: layer(x, x, x)[0],
    batch_first=True,
)

# What is no formula
# -----------------------------------------------------------------------------


@check("layers", "L1")
def running_statistics(backend: Backend) -> None:
    """Running statistics follow the mean and the *unbiased* variance by the momentum.

    The count goes up by one, in plain calls and in those of `gradients` alike.
    """
    batches = [values(3, 2, 2, 2, seed=seed) for seed in range(3)]
    for momentum in (0.1, None):
        layer = made(backend, "BatchNorm2d", 2, momentum=momentum)
        wanted = {"running_mean": np.zeros(2), "running_var": np.ones(2)}
        for count, x in enumerate(batches, start=1):
            if count == 2:
                backend.gradients(lambda net, at: net.nn.sum(net(at)), layer, x)
            else:
                layer(native(backend, x))
            found = {"running_mean": x.mean((0, 2, 3)), "running_var": x.var((0, 2, 3), ddof=1)}
            share = 1.0 / count if momentum is None else momentum
            for name, value in found.items():
                wanted[name] = (1.0 - share) * wanted[name] + share * value
            wanted["num_batches_tracked"] = np.array(count)
            after = f"after {count} batches (momentum {momentum})"
            agree_all(after, layer.neutral_state(), wanted)


@check("layers", "L1")
def running_statistics_of_instances(backend: Backend) -> None:
    """Of each sample's mean and unbiased variance the mean over samples, where they are tracked."""
    layer, x = made(backend, "InstanceNorm1d", 2, track_running_stats=True), values(3, 2, 4)
    layer(native(backend, x))
    wanted = {
        "running_mean": 0.1 * x.mean((0, 2)),
        "running_var": 0.9 + 0.1 * x.var(2, ddof=1).mean(0),
    }
    agree_all("after one batch", layer.neutral_state(), wanted)


@check("layers", "L1")
def batch_norm_in_evaluation(backend: Backend) -> None:
    """By the running statistics, which stay as they are."""
    layer = made(backend, "BatchNorm2d", 4).eval()
    state = {
        "running_mean": values(4, seed=2),
        "running_var": values(4, low=0.5),
        "weight": values(4),
        "bias": values(4, seed=1),
        "num_batches_tracked": np.array(7),
    }
    layer.load_neutral_state(state)
    wanted = formulas.batch_norm(_IMAGE, *list(state.values())[:4])
    agree("BatchNorm2d in evaluation: output", output(backend, layer, _IMAGE), wanted)
    agree_all("after evaluation", layer.neutral_state(), state)


@check("layers", "L7")
def one_value_for_each_channel(backend: Backend) -> None:
    """The variance of one value is refused in training, and possible in evaluation."""
    layer, x = made(backend, "BatchNorm1d", 2), values(1, 2)
    with refused("a batch of one in training", ShapeError):
        layer(native(backend, x))
    found = output(backend, layer.eval(), x)
    agree("a batch of one in evaluation", found, x / np.sqrt(1.0 + 1e-5))


@check("layers", "L7")
def padding_of_embeddings(backend: Backend) -> None:
    """The padding row starts at zero, is read as it is stored, and takes no gradient."""
    layer, index = made(backend, "Embedding", 4, 2, padding_idx=1), np.array([1, 3, 1, 0])
    agree("the padding row at the start", layer.neutral_state()["weight"][1], np.zeros(2))
    table = values(4, 2)
    layer.load_neutral_state({"weight": table})
    agree("Embedding: output", output(backend, layer, index), table[index])
    found = backend.gradients(lambda net, i: net.nn.sum(net(i)), layer, index)
    wanted = np.array([[1.0], [0.0], [0.0], [1.0]]) * np.ones(2)
    agree("Embedding: gradient of weight", found.parameters["weight"], wanted)


@check("layers", "L7")
def wrong_inputs(backend: Backend) -> None:
    """Shapes and indices that a layer cannot take are refused by name."""
    with refused("a Linear layer for 3 features given 2", ShapeError):
        output(backend, made(backend, "Linear", 3, 2), values(4, 2))
    with refused("a Conv2d layer for 3 channels given 2", ShapeError):
        output(backend, made(backend, "Conv2d", 3, 2, 1), values(1, 2, 3, 3))
    index = native(backend, np.array([4]))
    if backend.nn.concrete(index) is not None:
        with refused("index 4 of 4", IndexRangeError):
            made(backend, "Embedding", 4, 2)(index)


@check("layers", "L1")
def masks_of_attention(backend: Backend) -> None:
    """Padding and future keys get the weight zero, and the other weights sum to one."""
    layer = made(backend, "MultiheadAttention", 4, 2, batch_first=True)
    state, x = layer.neutral_state(), native(backend, _TOKENS)
    padding = np.array([[False, False, True], [False, False, False]])
    future = np.triu(np.full((3, 3), -np.inf), 1)
    _, weights = layer(x, x, x, native(backend, padding), True, native(backend, future))
    added = np.where(padding[:, None], -np.inf, future)
    wanted = _two_heads(_TOKENS, state["in_proj_weight"], state["in_proj_bias"], added)[1]
    agree("weights of attention, averaged over heads", backend.numpy(weights), wanted)
