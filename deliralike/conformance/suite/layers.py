"""Checks of layers: outputs, gradients of every parameter, running statistics and padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Shape
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
from deliralike.conformance.suite.rows import networks
from deliralike.errors import IndexRangeError, ShapeError

_LINE, _IMAGE, _VOLUME = values(2, 2, 5), values(2, 4, 3, 3), values(1, 2, 2, 3, 3)
_TOKENS = values(2, 3, 4)
_BOTH = ((4,), (4,))  # the shapes of a weight and a bias

# Without parameters
# -----------------------------------------------------------------------------

for _name, _plain, _x, *_rest in (
    ("Flatten", lambda x: x.reshape(2, 36), _IMAGE),
    ("PixelShuffle", formulas.pixel_shuffle, _IMAGE, 2),
    ("Upsample", lambda x, *_: x.repeat(2, 2).repeat(2, 3), _IMAGE, None, 2),
    ("MaxPool2d", formulas.max_windows, values(2, 2, 3, 5), 3, 2, 1),
    ("AvgPool3d", formulas.mean_windows, values(2, 2, 4, 3, 5), 2, 2, 1),
    ("AdaptiveAvgPool2d", partial(formulas.adaptive_pool, np.mean), values(2, 2, 3, 5), (1, 2)),
    ("GELU", formulas.gelu, _TOKENS, "tanh"),
):
    networks("layers", (_name, (_name, *_rest), (), lambda x, f=_plain, s=_rest: f(x, *s), _x))

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
    _formula = lambda x, w, b, f=_function, s=_settings: f(x, w, b, *s[3:])  # noqa: E731
    networks("layers", (_kind, (_kind, *_settings), (_shape, _settings[1:2]), _formula, _x))

# Norms, and other layers with parameters
# -----------------------------------------------------------------------------


def _both_ways(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    x, start = x.swapaxes(0, 1), np.zeros((len(x), 2))
    forth = formulas.lstm(x, start, start, *weights[:4])[0]
    back = formulas.lstm(x[::-1], start, start, *weights[4:])[0]
    return np.concatenate([forth, back[::-1]], -1).swapaxes(0, 1)


def _two_layers(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
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


def _recurrent(second: str, *shapes: Shape) -> dict[str, Shape]:
    """Shapes of parameters by name; the second four have names that end differently."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    names = [part + end for end, part in product(("_l0", second), parts)]
    return dict(zip(names, shapes, strict=True))


def _in_groups(count: int) -> Callable[..., np.ndarray]:
    return lambda x, *weights: formulas.group_norm(x, count, *weights)


_RATE = (1e-5, 0.1, True)  # the epsilon, the momentum, and that there are weights
_LSTM = _recurrent("_l0_reverse", *((8, 3), (8, 2), (8,), (8,)) * 2)
_GRU = _recurrent("_l1", (6, 3), (6, 2), (6,), (6,), (6, 2), (6, 2), (6,), (6,))
networks(
    "layers",
    ("BatchNorm1d", ("BatchNorm1d", 4), _BOTH, formulas.batch_norm_train, values(5, 4)),
    (
        "BatchNorm2d",
        ("BatchNorm2d", 4, 1e-3),
        _BOTH,
        partial(formulas.batch_norm_train, eps=1e-3),
        _IMAGE,
    ),
    (
        "BatchNorm2d of one image",  # a stride of the batch that means nothing
        ("BatchNorm2d", 4),
        _BOTH,
        formulas.batch_norm_train,
        _IMAGE[:1],
    ),
    ("BatchNorm3d", ("BatchNorm3d", 2), ((2,), (2,)), formulas.batch_norm_train, _VOLUME),
    ("InstanceNorm2d", ("InstanceNorm2d", 4, *_RATE), _BOTH, _in_groups(4), _IMAGE),
    ("GroupNorm", ("GroupNorm", 2, 4), _BOTH, _in_groups(2), _IMAGE),
    ("LayerNorm", ("LayerNorm", 4), _BOTH, lambda x, *w: formulas.layer_norm(x, (4,), *w), _TOKENS),
    ("Linear", ("Linear", 4, 3), ((3, 4), (3,)), formulas.linear, _TOKENS),
    ("Embedding", ("Embedding", 5, 3), ((5, 3),), lambda i, w: w[i], np.array([[4, 0], [1, 1]])),
    ("PReLU", ("PReLU", 4), ((4,),), formulas.prelu, _IMAGE),
    ("LSTM", ("LSTM", 3, 2, 1, True, True, 0.0, True), _LSTM, _both_ways, values(2, 3, 3)),
    ("GRU", ("GRU", 3, 2, 2), _GRU, _two_layers, values(3, 2, 3)),
)
_PROJECTED = {"in_proj_weight": (12, 4), "in_proj_bias": (12,)}
networks(
    "layers",
    (
        "MultiheadAttention",
        ("MultiheadAttention", 4, 2, 0.0, True, False, False, None, None, True),
        _PROJECTED | {"out_proj.weight": (4, 4), "out_proj.bias": (4,)},
        lambda x, w, b, *out: formulas.linear(_two_heads(x, w, b)[0], *out),
        _TOKENS,
    ),
    call=lambda layer, x: layer(x, x, x)[0],
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
