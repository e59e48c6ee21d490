"""Mistakes of precision: short types within, and formulas that are right on paper only.

A type that is too short shows in float64 anywhere. A formula that loses digits shows where there
are some to lose: in the fixture ``"far"``, whose mean is 1e4 times its deviation, and in
``"steep"``, whose exponentials overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.fixtures import CLASS_WEIGHTS, IGNORED
from tests.planted.fixtures import weighted_cross_entropy as right
from tests.planted.planting import Plant, with_loss, with_methods

# Short types within
# -----------------------------------------------------------------------------


def _short(nn: Any, x: Any, dtype: str = "float32") -> Any:
    """Rounded to a shorter type."""
    return nn.cast(nn.cast(x * 1.0, dtype), x)


def _convolved(self, x):
    """Input, kernel and bias in float32."""
    nn = self.nn
    x, weight, bias = (nn.cast(value * 1.0, "float32") for value in (x, self.weight, self.bias))
    return nn.cast(
        nn.conv(x, weight, bias, self.stride, self.padding, self.dilation, self.groups),
        self.weight * 1.0,
    )


def _multiplied(self, x):
    nn = self.nn
    short = (nn.cast(value * 1.0, "float32") for value in (x, self.weight, self.bias))
    return nn.cast(nn.linear(*short), x)


def _statistics(self, x):
    """Mean and variance in float32; the running ones are those."""
    if not self.training:
        return self.nn.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
        )
    mean, var = (
        _short(self.nn, value)
        for value in (self.nn.mean(x, (0, 2, 3)), self.nn.var(x, (0, 2, 3), correction=0))
    )
    self._update(mean, var, math.prod(x.shape) // x.shape[1])
    return self.nn.batch_norm(x, mean, var, self.weight, self.bias, self.eps)


def _layer_norm(self, x):
    nn = self.nn
    y = nn.layer_norm(nn.cast(x, "float32"), self.normalized_shape, None, None, self.eps)
    return nn.cast(y, x) * self.weight + self.bias


def _softmax(self, x):
    return self.nn.cast(self.nn.softmax(self.nn.cast(x, "float32"), 1), x)


def _gelu(self, x):
    return self.nn.cast(self.nn.gelu(self.nn.cast(x, "float32")), x)


def _pooled(self, x):
    return self.nn.cast(self.nn.mean(self.nn.cast(x, "float32"), (2, 3)), x)


def _short_table(self, index):
    """The rows of the table in float32; the padding's takes no gradient."""
    nn = self.nn
    rows = _short(nn, nn.embedding(index, self.weight))
    padding = nn.broadcast_to(nn.expand_dims(index == self.padding_idx, -1), rows.shape)
    return nn.where(padding, nn.stop_gradient(rows), rows)


def _logits_in_float32(network: Any, x: Any, target: Any) -> Any:
    nn, logits = network.nn, network(x)
    short = nn.cast(logits, "float32")
    return nn.cast(
        nn.cross_entropy(short, target, nn.constant(CLASS_WEIGHTS, like=short), IGNORED), logits
    )


def _class_weights_in_float32(network: Any, x: Any, target: Any) -> Any:
    nn, logits = network.nn, network(x)
    weight = nn.constant(CLASS_WEIGHTS.astype(np.float32).astype(np.float64), like=logits)
    return nn.cross_entropy(logits, target, weight, IGNORED)


def _gradients_in_float32(network: Any, x: Any, target: Any) -> Any:
    """The value is right, the gradient that of rounded scores."""
    loss = _logits_in_float32(network, x, target)
    return loss + network.nn.stop_gradient(right(network, x, target) - loss)


# Formulas that lose digits
# -----------------------------------------------------------------------------


def _in_one_pass(nn: Any, x: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    """The mean, and the mean of squares less its square."""
    mean = nn.mean(x, dims, keepdim=True)
    return mean, nn.mean(x * x, dims, keepdim=True) - mean * mean


def _standardised(norm: Any, x: Any, dims: tuple[int, ...]) -> Any:
    mean, var = _in_one_pass(norm.nn, x, dims)
    return (x - mean) / norm.nn.sqrt(var + norm.eps)


def _per_channel(norm: Any, y: Any) -> Any:
    return y * norm.nn.reshape(norm.weight, (1, -1, 1, 1)) + norm.nn.reshape(
        norm.bias, (1, -1, 1, 1)
    )


def _batch_in_one_pass(self, x):
    if not self.training:
        return self.nn.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
        )
    mean, var = (self.nn.reshape(value, (-1,)) for value in _in_one_pass(self.nn, x, (0, 2, 3)))
    self._update(mean, var, math.prod(x.shape) // x.shape[1])
    return self.nn.batch_norm(x, mean, var, self.weight, self.bias, self.eps)


def _group_in_one_pass(self, x):
    grouped = self.nn.reshape(x, (x.shape[0], self.num_groups, -1))
    return _per_channel(self, self.nn.reshape(_standardised(self, grouped, (2,)), tuple(x.shape)))


def _instance_in_one_pass(self, x):
    return _per_channel(self, _standardised(self, x, (2, 3)))


def _layer_in_one_pass(self, x):
    return _standardised(self, x, (2, 3)) * self.weight + self.bias


def _exponentials(nn: Any, x: Any) -> Any:
    """Softmax without subtracting the maximum."""
    weights = nn.exp(x)
    return weights / nn.sum(weights, 1, keepdim=True)


def _entropy(log_p: Callable[[Any, Any], Any]) -> Plant:
    """Cross-entropy with other logarithms of probabilities."""

    def loss(network: Any, x: Any, target: Any) -> Any:
        nn, logits = network.nn, network(x)
        label, kept = (
            nn.where(target != IGNORED, target, target * 0),
            nn.cast(target != IGNORED, logits),
        )
        weights = nn.select(nn.constant(CLASS_WEIGHTS, like=logits), label, 0) * kept
        found = nn.select_along(log_p(nn, logits), nn.expand_dims(label, 1), 1)[:, 0]
        return -nn.sum(found * weights) / nn.sum(weights)

    return with_loss(loss)


def _clipped(nn: Any, logits: Any) -> Any:
    return nn.log(nn.clip(nn.softmax(logits, 1), 1e-7, 1.0))


def _of_doubles(nn: Any, logits: Any) -> Any:
    """With the smallest normal double added."""
    return nn.log(nn.softmax(logits, 1) + 2.2e-308)


def _clipped_scores(nn: Any, logits: Any) -> Any:
    return nn.log_softmax(nn.clip(logits, -50.0, 50.0), 1)


def _precise(
    name: str, plant: Plant, place: tuple[str, ...], cause: tuple[str, ...], fixture: str
) -> Mistake:
    return Mistake(f"precision: {name}", "precision", plant, place, cause, fixture)


def _float32(name: str, path: str, plant: Plant, fixture: str, *place: str) -> Mistake:
    return _precise(
        f"{name} in float32", plant, (path, *place), ("float32", "round", "precision"), fixture
    )


def _one_pass(path: str, forward: Callable[..., Any]) -> Mistake:
    return _precise(
        f"{path} norm in one pass",
        with_methods(path, forward=forward),
        (path,),
        ("one-pass", "one pass", "round", "precision"),
        "far",
    )


_LOSS = ("loss", "cross_entropy", "log_softmax")

MISTAKES = [
    _float32("convolution", "conv", with_methods("conv", forward=_convolved), "convolutional"),
    _float32("linear layer", "fc", with_methods("fc", forward=_multiplied), "convolutional"),
    _float32(
        "batch statistics", "norm", with_methods("norm", forward=_statistics), "convolutional"
    ),
    _float32("layer norm", "norm", with_methods("norm", forward=_layer_norm), "attention"),
    _float32("softmax", "softmax", with_methods("softmax", forward=_softmax), "activations"),
    _float32("GELU", "gelu", with_methods("gelu", forward=_gelu), "activations"),
    _float32(
        "mean over the picture",
        "mean",
        with_methods("", pooled=_pooled),
        "pooling",
        "Pooling",
        "fc",
    ),
    _float32(
        "table of words", "embedding", with_methods("embedding", forward=_short_table), "recurrent"
    ),
    _float32("loss", "loss", with_loss(_logits_in_float32), "pooling", *_LOSS),
    _float32("class weights", "loss", with_loss(_class_weights_in_float32), "pooling", *_LOSS),
    _float32("gradient of the loss", "loss", with_loss(_gradients_in_float32), "pooling", *_LOSS),
    _precise(
        "output in float16",
        with_methods(
            "act",
            forward=lambda self, x: _short(
                self.nn, self.nn.leaky_relu(x, self.negative_slope), "float16"
            ),
        ),
        ("act",),
        ("float16", "round"),
        "convolutional",
    ),
    _one_pass("batch", _batch_in_one_pass),
    _one_pass("group", _group_in_one_pass),
    _one_pass("instance", _instance_in_one_pass),
    _one_pass("layer", _layer_in_one_pass),
    _precise(
        "softmax without subtracting the maximum",
        with_methods("softmax", forward=lambda self, x: _exponentials(self.nn, x)),
        ("softmax",),
        ("max", "overflow", "finite", "NaN"),
        "steep",
    ),
    _precise(
        "loss without subtracting the maximum",
        _entropy(lambda nn, x: x - nn.log(nn.sum(nn.exp(x), 1, keepdim=True))),
        _LOSS,
        ("max", "overflow", "finite", "NaN"),
        "steep",
    ),
    _precise(
        "logarithm of softmax",
        _entropy(lambda nn, x: nn.log(nn.softmax(x, 1))),
        _LOSS,
        ("log", "finite", "infinit", "NaN"),
        "steep",
    ),
    _precise(
        "logarithm of clipped probabilities", _entropy(_clipped), _LOSS, ("clip", "1e-07"), "steep"
    ),
    _precise(
        "logarithm of probabilities and a little",
        _entropy(_of_doubles),
        _LOSS,
        ("eps", "added", "log"),
        "steep",
    ),
    _precise("scores clipped", _entropy(_clipped_scores), _LOSS, ("clip",), "steep"),
]
