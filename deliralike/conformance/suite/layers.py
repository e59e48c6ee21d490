"""Checks of layers: outputs, gradients of every parameter, running statistics and padding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite import formulas
from deliralike.conformance.suite.check import Check, check, register
from deliralike.conformance.suite.comparing import (
    BY_DIFFERENCES,
    agree,
    differences,
    dtype_of,
    equal,
    made,
    native,
    refused,
    values,
)
from deliralike.errors import IndexRangeError, ShapeError

Formula = Callable[..., np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


class Layer:
    """A layer with random weights and its formula.

    It has the names and shapes of the parameters, the output and the gradients.
    """

    def __init__(
        self,
        name: str,
        settings: tuple,
        options: Mapping[str, Any],
        shapes: Shapes,
        formula: Formula,
        inputs: tuple[np.ndarray, ...],
    ) -> None:
        """State what is checked.

        Args:
            name, settings, options: The layer of `nn`, and what it is made with.
            shapes: Its parameters.
            formula: ``formula(*parameters, *inputs)`` in training mode.
            inputs: NumPy arrays.
        """
        self.name, self.settings, self.options, self.inputs = name, settings, options, inputs
        self.weights = {
            key: values(*shape, seed=20 + seed) for seed, (key, shape) in enumerate(shapes.items())
        }
        self.formula = formula
        self.cotangent: np.ndarray | None = None
        self.slopes: dict[str, np.ndarray] = {}

    def __call__(self, backend: Backend) -> None:
        """Compare names, output and gradients."""
        layer = made(backend, self.name, *self.settings, **self.options)
        parameters = [name for name, slot in layer.neutral_slots().items() if slot.is_parameter]
        equal(f"{self.name}: names of parameters", parameters, list(self.weights))
        layer.load_neutral_state(layer.neutral_state() | self.weights)
        wanted = self.formula(*self.weights.values(), *self.inputs)
        output = _first(layer(*(native(backend, x) for x in self.inputs)))
        agree(f"{self.name}: output", backend.numpy(output), wanted)
        cotangent = np.random.default_rng(8).standard_normal(wanted.shape)

        def loss(network: Any, *inputs: Any) -> Any:
            y = _first(network(*inputs))
            return network.nn.sum(y * network.nn.constant(cotangent, like=y))

        found = backend.gradients(loss, layer, *self.inputs)
        limit = BY_DIFFERENCES[dtype_of(backend)]
        for name, slope in self._slopes(cotangent).items():
            agree(f"{self.name}: gradient of {name}", found.parameters[name], slope, limit)

    def _slopes(self, cotangent: np.ndarray) -> dict[str, np.ndarray]:
        if not self.slopes:
            arrays = [*self.weights.values(), *self.inputs]
            self.slopes = {
                name: differences(
                    lambda *at: float((self.formula(*at) * cotangent).sum()), arrays, which
                )
                for which, name in enumerate(self.weights)
            }
        return self.slopes


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def _add(
    name: str,
    settings: tuple,
    shapes: Shapes,
    formula: Formula,
    *inputs: np.ndarray,
    **options: Any,
) -> None:
    register(Check("layers", "L1", name, Layer(name, settings, options, shapes, formula, inputs)))


def _lstm_both_ways(
    w: Any, u: Any, b: Any, c: Any, wr: Any, ur: Any, br: Any, cr: Any, x: np.ndarray
) -> np.ndarray:
    x, start = x.transpose(1, 0, 2), np.zeros((len(x), 2))
    forth, back = (
        formulas.lstm(x, start, start, w, u, b, c)[0],
        formulas.lstm(x[::-1], start, start, wr, ur, br, cr)[0],
    )
    return np.concatenate([forth, back[::-1]], -1).transpose(1, 0, 2)


def _two_gru_layers(
    w: Any, u: Any, b: Any, c: Any, w2: Any, u2: Any, b2: Any, c2: Any, x: np.ndarray
) -> np.ndarray:
    start = np.zeros((x.shape[1], 2))
    return formulas.gru(formulas.gru(x, start, w, u, b, c)[0], start, w2, u2, b2, c2)[0]


def _two_heads(
    w: np.ndarray, b: np.ndarray, out: np.ndarray, out_bias: np.ndarray, x: np.ndarray, *_: Any
) -> np.ndarray:
    query, key, value = np.split(x @ w.T + b, 3, axis=-1)
    heads = [
        formulas.attention(query[..., h], key[..., h], value[..., h])
        for h in (slice(0, 2), slice(2, 4))
    ]
    return np.concatenate(heads, -1) @ out.T + out_bias


_IMAGE, _TOKENS = values(2, 4, 3, 3), values(2, 3, 4)
_RECURRENT = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
_add("Linear", (4, 3), {"weight": (3, 4), "bias": (3,)}, lambda w, b, x: x @ w.T + b, _TOKENS)
_add(
    "Conv2d",
    (4, 2, 3),
    {"weight": (2, 2, 3, 3), "bias": (2,)},
    lambda w, b, x: formulas.convolve(x, w, (2, 2), ((1, 1), (1, 1)), (1, 1), 2) + b[:, None, None],
    _IMAGE,
    stride=2,
    padding=1,
    groups=2,
)
_add(
    "ConvTranspose2d",
    (4, 2, 3),
    {"weight": (4, 2, 3, 3), "bias": (2,)},
    lambda w, b, x: (
        formulas.convolve_transposed(x, w, (2, 2), (1, 1), (1, 1), (1, 1), 1) + b[:, None, None]
    ),
    _IMAGE,
    stride=2,
    padding=1,
    output_padding=1,
)
_LINE, _VOLUME = values(2, 2, 5), values(1, 2, 2, 3, 3)
_add(
    "Conv1d",
    (2, 3, 2),
    {"weight": (3, 2, 2), "bias": (3,)},
    lambda w, b, x: formulas.convolve(x, w, (1,), ((1, 1),), (2,), 1) + b[:, None],
    _LINE,
    padding=1,
    dilation=2,
)
_add(
    "Conv3d",
    (2, 2, 2),
    {"weight": (2, 2, 2, 2, 2)},
    lambda w, x: formulas.convolve(x, w, (1, 2, 2), ((0, 0), (1, 1), (0, 0)), (1, 1, 1), 1),
    _VOLUME,
    stride=(1, 2, 2),
    padding=(0, 1, 0),
    bias=False,
)
_add(
    "ConvTranspose1d",
    (2, 2, 3),
    {"weight": (2, 2, 3), "bias": (2,)},
    lambda w, b, x: formulas.convolve_transposed(x, w, (2,), (0,), (0,), (1,), 1) + b[:, None],
    _LINE,
    stride=2,
)
_add(
    "ConvTranspose3d",
    (2, 2, 2),
    {"weight": (2, 1, 2, 2, 2)},
    lambda w, x: formulas.convolve_transposed(x, w, (1, 1, 2), (0, 0, 0), (0, 0, 0), (1, 1, 1), 2),
    _VOLUME,
    stride=(1, 1, 2),
    groups=2,
    bias=False,
)
_add(
    "BatchNorm3d",
    (2,),
    {"weight": (2,), "bias": (2,)},
    lambda w, b, x: formulas.batch_norm(x, w, b),
    _VOLUME,
)
_add(
    "InstanceNorm3d",
    (2,),
    {"weight": (2,), "bias": (2,)},
    lambda w, b, x: formulas.group_norm(x, 2, w, b),
    _VOLUME,
    affine=True,
)
_add(
    "BatchNorm1d",
    (3,),
    {"weight": (3,), "bias": (3,)},
    lambda w, b, x: formulas.batch_norm(x, w, b),
    values(5, 3),
)
_add(
    "BatchNorm2d",
    (4,),
    {"weight": (4,), "bias": (4,)},
    lambda w, b, x: formulas.batch_norm(x, w, b, 1e-3),
    _IMAGE,
    eps=1e-3,
)
_add(
    "InstanceNorm2d",
    (4,),
    {"weight": (4,), "bias": (4,)},
    lambda w, b, x: formulas.group_norm(x, 4, w, b),
    _IMAGE,
    affine=True,
)
_add(
    "GroupNorm",
    (2, 4),
    {"weight": (4,), "bias": (4,)},
    lambda w, b, x: formulas.group_norm(x, 2, w, b),
    _IMAGE,
)
_add(
    "LayerNorm",
    (4,),
    {"weight": (4,), "bias": (4,)},
    lambda w, b, x: formulas.standardised(x, (2,)) * w + b,
    _TOKENS,
)
_add("PReLU", (4,), {"weight": (4,)}, lambda w, x: np.where(x > 0, x, x * w[:, None, None]), _IMAGE)
_add("Embedding", (5, 3), {"weight": (5, 3)}, lambda w, i: w[i], np.array([[4, 0, 4], [1, 1, 2]]))
_add(
    "LSTM",
    (3, 2),
    {
        name + end: shape
        for end in ("", "_reverse")
        for name, shape in zip(_RECURRENT, ((8, 3), (8, 2), (8,), (8,)), strict=True)
    },
    _lstm_both_ways,
    values(2, 3, 3),
    batch_first=True,
    bidirectional=True,
)
_add(
    "GRU",
    (3, 2),
    dict(
        zip(
            [*_RECURRENT, *(name.replace("l0", "l1") for name in _RECURRENT)],
            ((6, 3), (6, 2), (6,), (6,), (6, 2), (6, 2), (6,), (6,)),
            strict=True,
        )
    ),
    _two_gru_layers,
    values(3, 2, 3),
    num_layers=2,
)
_add(
    "MultiheadAttention",
    (4, 2),
    {
        "in_proj_weight": (12, 4),
        "in_proj_bias": (12,),
        "out_proj.weight": (4, 4),
        "out_proj.bias": (4,),
    },
    _two_heads,
    _TOKENS,
    _TOKENS,
    _TOKENS,
    batch_first=True,
)


@check("layers", "L1")
def running_statistics(backend: Backend) -> None:
    """Running statistics follow the mean and the *unbiased* variance by the momentum.

    The count goes up by one.
    """
    batches = [values(3, 2, 2, 2, seed=seed) for seed in range(3)]
    for momentum in (0.1, None):
        layer = made(backend, "BatchNorm2d", 2, momentum=momentum)
        mean, var = np.zeros(2), np.ones(2)
        for step, x in enumerate(batches, start=1):
            layer(native(backend, x))
            share = 1.0 / step if momentum is None else momentum
            mean = (1.0 - share) * mean + share * x.mean((0, 2, 3))
            var = (1.0 - share) * var + share * x.var((0, 2, 3), ddof=1)
            state = layer.neutral_state()
            agree(
                f"running_mean after {step} batches (momentum {momentum})",
                state["running_mean"],
                mean,
            )
            agree(
                f"running_var after {step} batches (momentum {momentum})", state["running_var"], var
            )
            agree(
                f"num_batches_tracked after {step} batches",
                state["num_batches_tracked"],
                np.array(step),
            )


@check("layers", "L1")
def running_statistics_move_with_gradients(backend: Backend) -> None:
    """Once for each call of `gradients`, as they do without it."""
    x = values(3, 2, 2, 2)
    layer = made(backend, "BatchNorm2d", 2)
    backend.gradients(lambda network, at: network.nn.sum(network(at)), layer, x)
    agree(
        "running_mean after gradients",
        layer.neutral_state()["running_mean"],
        0.1 * x.mean((0, 2, 3)),
    )
    agree(
        "num_batches_tracked after gradients",
        layer.neutral_state()["num_batches_tracked"],
        np.array(1),
    )


@check("layers", "L1")
def batch_norm_in_evaluation(backend: Backend) -> None:
    """By the running statistics, which stay as they are."""
    layer = made(backend, "BatchNorm2d", 4).eval()
    state = {
        "weight": values(4),
        "bias": values(4, seed=1),
        "running_mean": values(4, seed=2),
        "running_var": values(4, low=0.5),
        "num_batches_tracked": np.array(7),
    }
    layer.load_neutral_state(state)
    mean, var = (state[name].reshape(4, 1, 1) for name in ("running_mean", "running_var"))
    wanted = formulas.channelwise(
        (_IMAGE - mean) / np.sqrt(var + 1e-5), state["weight"], state["bias"]
    )
    agree(
        "BatchNorm2d in evaluation: output", backend.numpy(layer(native(backend, _IMAGE))), wanted
    )
    for name, value in state.items():
        agree(f"BatchNorm2d in evaluation: {name} afterwards", layer.neutral_state()[name], value)


@check("layers", "L7")
def one_value_for_each_channel(backend: Backend) -> None:
    """The variance of one value is refused in training, and possible in evaluation."""
    layer, x = made(backend, "BatchNorm1d", 2), native(backend, values(1, 2))
    with refused("a batch of one in training", ShapeError):
        layer(x)
    agree(
        "a batch of one in evaluation",
        backend.numpy(layer.eval()(x)),
        values(1, 2) / np.sqrt(1.0 + 1e-5),
    )


@check("layers", "L7")
def padding_of_embeddings(backend: Backend) -> None:
    """The padding row starts at zero, is read as it is stored, and takes no gradient."""
    layer, index = made(backend, "Embedding", 4, 2, padding_idx=1), np.array([1, 3, 1, 0])
    agree(
        "Embedding: the padding row at the start", layer.neutral_state()["weight"][1], np.zeros(2)
    )
    table = values(4, 2)
    layer.load_neutral_state({"weight": table})
    agree("Embedding: output", backend.numpy(layer(native(backend, index))), table[index])
    found = backend.gradients(
        lambda network, i: network.nn.sum(network(i)), layer, index
    ).parameters["weight"]
    agree(
        "Embedding: gradient of weight",
        found,
        np.array([[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]),
    )


@check("layers", "L7")
def wrong_inputs(backend: Backend) -> None:
    """Shapes and indices that a layer cannot take are refused by name."""
    nn = backend.nn
    with refused("a Linear layer for 3 features given 2", ShapeError):
        made(backend, "Linear", 3, 2)(native(backend, values(4, 2)))
    with refused("a Conv2d layer for 3 channels given 2", ShapeError):
        made(backend, "Conv2d", 3, 2, 1)(native(backend, values(1, 2, 3, 3)))
    if nn.concrete(native(backend, np.arange(2))) is not None:
        with refused("index 4 of 4", IndexRangeError):
            made(backend, "Embedding", 4, 2)(native(backend, np.array([4])))


@check("layers", "L1")
def running_statistics_of_instances(backend: Backend) -> None:
    """Of each sample's mean and unbiased variance the mean over samples, where they are tracked."""
    layer, x = made(backend, "InstanceNorm1d", 2, track_running_stats=True), values(3, 2, 4)
    layer(native(backend, x))
    agree("running_mean", layer.neutral_state()["running_mean"], 0.1 * x.mean((0, 2)))
    agree("running_var", layer.neutral_state()["running_var"], 0.9 + 0.1 * x.var(2, ddof=1).mean(0))


@check("layers", "L1")
def masks_of_attention(backend: Backend) -> None:
    """Padding and future keys get the weight zero, and the other weights sum to one."""
    layer = made(backend, "MultiheadAttention", 4, 2, batch_first=True)
    x, padding = native(backend, _TOKENS), np.array([[False, False, True], [False, False, False]])
    future = np.triu(np.full((3, 3), -np.inf), 1)
    _, weights = layer(x, x, x, native(backend, padding), True, native(backend, future))
    state = layer.neutral_state()
    query, key, _ = np.split(
        _TOKENS @ state["in_proj_weight"].T + state["in_proj_bias"], 3, axis=-1
    )
    scores = [
        query[..., h] @ key[..., h].swapaxes(1, 2) / np.sqrt(2.0) + future
        for h in (slice(0, 2), slice(2, 4))
    ]
    wanted = np.mean(
        [formulas.softmax(np.where(padding[:, None], -np.inf, each), -1) for each in scores], 0
    )
    agree("weights of attention, averaged over heads", backend.numpy(weights), wanted)


@check("layers", "L1")
def activations_as_layers(backend: Backend) -> None:
    """Each is its function, with its own defaults."""
    x = values(3, 5)
    sigmoid, positive = formulas.sigmoid(x), np.maximum(x, 0.0)
    for name, settings, wanted in (
        ("ReLU", (), positive),
        ("ReLU6", (), np.minimum(positive, 6.0)),
        ("Sigmoid", (), sigmoid),
        ("Tanh", (), np.tanh(x)),
        ("SiLU", (), x * sigmoid),
        ("Softplus", (), formulas.softplus(x)),
        ("LeakyReLU", (), np.where(x > 0, x, 0.01 * x)),
        ("LeakyReLU", (0.2,), np.where(x > 0, x, 0.2 * x)),
        ("ELU", (), np.where(x > 0, x, np.exp(np.minimum(x, 0.0)) - 1.0)),
        ("Identity", (), x),
        ("GELU", (), 0.5 * x * (1.0 + formulas.erf(x / np.sqrt(2.0)))),
        (
            "GELU",
            ("tanh",),
            0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))),
        ),
        ("Hardsigmoid", (), np.clip(x + 3.0, 0.0, 6.0) / 6.0),
        ("Hardswish", (), x * np.clip(x + 3.0, 0.0, 6.0) / 6.0),
        ("Softmax", (1,), formulas.softmax(x, 1)),
        ("LogSoftmax", (0,), formulas.log_softmax(x, 0)),
    ):
        agree(
            f"{name}{settings}",
            backend.numpy(made(backend, name, *settings)(native(backend, x))),
            wanted,
        )


def _pooled(name: str, x: np.ndarray, wanted: np.ndarray, *settings: Any, **options: Any) -> None:
    def function(backend: Backend) -> None:
        layer = made(backend, name, *settings, **options)
        agree(f"{name}: output", backend.numpy(layer(native(backend, x))), wanted)

    register(Check("layers", "L1", name, function))


def _adapted(x: np.ndarray, reduce: Callable[..., np.ndarray]) -> np.ndarray:
    """Reduce two windows along the last axis of five, which share the middle element.

    The other axes are reduced as a whole.
    """
    others = tuple(range(2, x.ndim))
    return np.stack([reduce(x[..., :3], axis=others), reduce(x[..., 2:], axis=others)], -1).reshape(
        *x.shape[:2], *(1,) * (x.ndim - 3), 2
    )


for _n in (1, 2, 3):
    _x = values(2, 2, *(4, 3, 5)[3 - _n :])
    _stride, _pads, _free = (2,) * _n, ((1, 1),) * _n, ((0, 0),) * _n
    _pooled(
        f"MaxPool{_n}d",
        _x,
        formulas.max_windows(_x, (3,) * _n, _stride, _pads, (1,) * _n),
        3,
        stride=2,
        padding=1,
    )
    _pooled(f"AvgPool{_n}d", _x, formulas.sum_windows(_x, _stride, _stride, _free) / 2.0**_n, 2)
    _pooled(f"AdaptiveAvgPool{_n}d", _x, _adapted(_x, np.mean), (*(1,) * (_n - 1), 2))
    _pooled(f"AdaptiveMaxPool{_n}d", _x, _adapted(_x, np.max), (*(1,) * (_n - 1), 2))
_pooled("Flatten", _IMAGE, _IMAGE.reshape(2, 36))
_pooled("Upsample", _IMAGE, _IMAGE.repeat(2, 2).repeat(2, 3), scale_factor=2)
_pooled(
    "PixelShuffle",
    _IMAGE,
    np.stack(
        [np.stack([_IMAGE[:, 0], _IMAGE[:, 1]], -1), np.stack([_IMAGE[:, 2], _IMAGE[:, 3]], -1)], 2
    ).reshape(2, 1, 6, 6),
    2,
)
