"""Checks of layers: outputs, gradients of every parameter, running statistics and padding."""

from __future__ import annotations

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
    values,
)
from deliralike.conformance.suite.rows import networks

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
    (
        "AdaptiveAvgPool2d",
        partial(formulas.adaptive_pool, np.mean),
        values(2, 2, 3, 5),
        (1, 2),
    ),
    ("GELU", formulas.gelu, _TOKENS, "tanh"),
):
    networks(
        "layers",
        (_name, (_name, *_rest), (), lambda x, f=_plain, s=_rest: f(x, *s), _x),
    )

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
    networks(
        "layers", (_kind, (_kind, *_settings), (_shape, _settings[1:2]), _formula, _x)
    )

# Norms, and other layers with parameters
# -----------------------------------------------------------------------------


def _lstm(x: np.ndarray, *weights: np.ndarray) -> np.ndarray:
    start = np.zeros((x.shape[1], 2))
    return formulas.lstm(x, start, start, *weights)[0]


_LSTM = {
    "weight_ih_l0": (8, 3),
    "weight_hh_l0": (8, 2),
    "bias_ih_l0": (8,),
    "bias_hh_l0": (8,),
}
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
    (
        "BatchNorm3d",
        ("BatchNorm3d", 2),
        ((2,), (2,)),
        formulas.batch_norm_train,
        _VOLUME,
    ),
    ("Linear", ("Linear", 4, 3), ((3, 4), (3,)), formulas.linear, _TOKENS),
    (
        "Embedding",
        ("Embedding", 5, 3),
        ((5, 3),),
        lambda i, w: w[i],
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
        layer = made(backend, "BatchNorm2d", 2, momentum=momentum)
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
