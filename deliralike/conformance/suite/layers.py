"""Checks of layers: outputs, gradients of every parameter, running statistics and padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Function
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    agree,
    agree_all,
    build_network,
    native,
    output,
    values,
)
from deliralike.conformance.suite.rows import networks

_LINE, _IMAGE, _VOLUME = values(2, 2, 5), values(2, 4, 3, 3), values(1, 2, 2, 3, 3)
_TOKENS = values(2, 3, 4)
_BOTH = ((4,), (4,))  # the shapes of a weight and a bias


def _calling(function: str, settings: Sequence[Any]) -> Function:
    """A function of `nn` with these settings."""
    return lambda nn, *arrays: getattr(nn, function)(*arrays, *settings)


# Without parameters, beside the function that each calls
# -----------------------------------------------------------------------------

for _name, _function, _x, *_rest in (
    ("Flatten", "flatten", _IMAGE),
    ("PixelShuffle", "pixel_shuffle", _IMAGE, 2),
    ("Upsample", "interpolate", _IMAGE, None, 2),
    ("MaxPool2d", "max_pool", values(2, 2, 3, 5), 3, 2, 1),
    ("AvgPool3d", "avg_pool", values(2, 2, 4, 3, 5), 2, 2, 1),
    ("AdaptiveAvgPool2d", "adaptive_avg_pool", values(2, 2, 3, 5), (1, 2)),
    ("GELU", "gelu", _TOKENS, "tanh"),
):
    _answer = _calling(_function, _rest)
    networks("layers", (_name, (_name, *_rest), (), _answer, _x))

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
    _function = "conv_transpose" if "Transpose" in _kind else "conv"
    _answer = _calling(_function, _settings[3:])
    networks(
        "layers", (_kind, (_kind, *_settings), (_shape, _settings[1:2]), _answer, _x)
    )

# Norms, and other layers with parameters
# -----------------------------------------------------------------------------


def _normalised(nn: Any, x: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Any:
    return nn.batch_norm_train(x, weight, bias, eps)


def _lstm(nn: Any, x: Any, *weights: Any) -> Any:
    start = nn.zeros((x.shape[1], 2), like=x)
    return nn.lstm(x, start, start, *weights)[0]


_LSTM = {
    "weight_ih_l0": (8, 3),
    "weight_hh_l0": (8, 2),
    "bias_ih_l0": (8,),
    "bias_hh_l0": (8,),
}
networks(
    "layers",
    ("BatchNorm1d", ("BatchNorm1d", 4), _BOTH, _normalised, values(5, 4)),
    (
        "BatchNorm2d",
        ("BatchNorm2d", 4, 1e-3),
        _BOTH,
        partial(_normalised, eps=1e-3),
        _IMAGE,
    ),
    (
        "BatchNorm2d of one image",  # a stride of the batch that means nothing
        ("BatchNorm2d", 4),
        _BOTH,
        _normalised,
        _IMAGE[:1],
    ),
    ("BatchNorm3d", ("BatchNorm3d", 2), ((2,), (2,)), _normalised, _VOLUME),
    (
        "Linear",
        ("Linear", 4, 3),
        ((3, 4), (3,)),
        lambda nn, x, w, b: nn.linear(x, w, b),
        _TOKENS,
    ),
    (
        "Embedding",
        ("Embedding", 5, 3),
        ((5, 3),),
        lambda nn, i, w: nn.matmul(nn.transpose(nn.one_hot(i, 5, like=w), 1, 2), w),
        np.array([[4, 0], [1, 1]]),
    ),
    ("LSTM", ("LSTM", 3, 2), _LSTM, _lstm, values(3, 2, 3)),
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
        layer = build_network(backend, "BatchNorm2d", 2, momentum=momentum)
        wanted = {"running_mean": np.zeros(2), "running_var": np.ones(2)}
        for count, x in enumerate(batches, start=1):
            if count == 2:
                backend.gradients(lambda net, at: net.nn.sum(net(at)), layer, x)
            else:
                layer(native(backend, x))
            found = {
                "running_mean": x.mean((0, 2, 3)),
                "running_var": x.var((0, 2, 3), ddof=1),
            }
            share = 1.0 / count if momentum is None else momentum
            for name, value in found.items():
                wanted[name] = (1.0 - share) * wanted[name] + share * value
            wanted["num_batches_tracked"] = np.array(count)
            after = f"after {count} batches (momentum {momentum})"
            agree_all(after, layer.neutral_state(), wanted)


@check("layers", "L1")
def batch_norm_in_evaluation(backend: Backend) -> None:
    """By the running statistics, which stay as they are."""
    layer = build_network(backend, "BatchNorm2d", 4).eval()
    state = {
        "running_mean": values(4, seed=2),
        "running_var": values(4, low=0.5),
        "weight": values(4),
        "bias": values(4, seed=1),
        "num_batches_tracked": np.array(7),
    }
    layer.load_neutral_state(state)
    mean, var, weight, bias = (x.reshape(-1, 1, 1) for x in list(state.values())[:4])
    wanted = (_IMAGE - mean) / np.sqrt(var + 1e-5) * weight + bias
    agree("BatchNorm2d in evaluation: output", output(backend, layer, _IMAGE), wanted)
    agree_all("after evaluation", layer.neutral_state(), state)
