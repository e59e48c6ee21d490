"""Mistakes that an ordinary batch does not show, or shows only by luck: what level L7 is for."""

from __future__ import annotations

import math
from typing import Any

from tests.planted import Mistake
from tests.planted.fixtures import CLASS_WEIGHTS, CLASSES, IGNORED
from tests.planted.planting import with_loss, with_methods

# Norms
# -----------------------------------------------------------------------------


def _one_pass(nn: Any, x: Any, dims: tuple[int, ...]) -> tuple[Any, Any]:
    mean = nn.mean(x, dims, keepdim=True)
    return mean, nn.mean(x * x, dims, keepdim=True) - mean * mean


def _batch_norm(self: Any, x: Any) -> Any:
    nn = self.nn
    mean, var = _one_pass(nn, x, (0, 2, 3))
    mean, var = nn.reshape(mean, (-1,)), nn.reshape(var, (-1,))
    if self.training:
        self._update(mean, var, math.prod(x.shape) // x.shape[1])
        return nn.batch_norm(x, mean, var, self.weight, self.bias, self.eps)
    return nn.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, self.eps)


def _group_norm(self: Any, x: Any) -> Any:
    nn = self.nn
    mean, var = _one_pass(nn, x, tuple(range(1, len(x.shape))))
    y, shape = (x - mean) / nn.sqrt(var + self.eps), (1, -1, 1, 1)
    return y * nn.reshape(self.weight, shape) + nn.reshape(self.bias, shape)


def _layer_norm(self: Any, x: Any) -> Any:
    mean, var = _one_pass(self.nn, x, (2, 3))
    return (x - mean) / self.nn.sqrt(var + self.eps) * self.weight + self.bias


def _silent_norm(self: Any, x: Any) -> Any:
    """Batch norm that takes one value per channel."""
    nn = self.nn
    if not self.training:
        return nn.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, self.eps
        )
    mean, var = nn.mean(x, 0), nn.var(x, 0, correction=0)
    self._update(mean, var, max(2, x.shape[0]))
    return nn.batch_norm(x, mean, var, self.weight, self.bias, self.eps)


# Activations and windows
# -----------------------------------------------------------------------------


def _half_relu(self: Any, x: Any) -> Any:
    return 0.5 * (x + self.nn.abs(x))


def _open_relu(self: Any, x: Any) -> Any:
    return x * self.nn.cast(x >= 0.0, x)


# Indices
# -----------------------------------------------------------------------------


def _wrapping(self: Any, index: Any) -> Any:
    return self.nn.embedding(
        self.nn.where(index < 0, index + self.num_embeddings, index), self.weight
    )


def _clamping(self: Any, index: Any) -> Any:
    last = index * 0 + (self.num_embeddings - 1)
    return self.nn.embedding(self.nn.where(index >= self.num_embeddings, last, index), self.weight)


def _learning_padding(self: Any, index: Any) -> Any:
    return self.nn.embedding(index, self.weight)


# Losses
# -----------------------------------------------------------------------------


def _counted(nn: Any, logits: Any, target: Any, label: Any) -> tuple[Any, Any]:
    """The losses and weights of labels."""
    weight = nn.constant(CLASS_WEIGHTS, like=logits)
    return nn.cross_entropy(logits, label, weight, reduction="none"), nn.cast(
        target != IGNORED, logits
    )


def _zero_over_zero(network: Any, x: Any, target: Any) -> Any:
    """Divided by the weight of what counts, zero or not."""
    nn, logits = network.nn, network(x)
    label = nn.where(target == IGNORED, target * 0, target)
    losses, kept = _counted(nn, logits, target, label)
    weights = nn.select(nn.constant(CLASS_WEIGHTS, like=logits), label, 0) * kept
    return nn.sum(losses * kept) / nn.sum(weights)


def _ignored_as_last(network: Any, x: Any, target: Any) -> Any:
    """An ignored label indexes from the end."""
    nn, logits = network.nn, network(x)
    label = nn.where(target == IGNORED, target * 0 + (CLASSES - 1), target)
    return nn.cross_entropy(logits, label, nn.constant(CLASS_WEIGHTS, like=logits))


def _any_negative_ignored(network: Any, x: Any, target: Any) -> Any:
    """Every negative label counts as an ignored one."""
    nn, logits = network.nn, network(x)
    label = nn.where(target < 0, target * 0 + IGNORED, target)
    return nn.cross_entropy(logits, label, nn.constant(CLASS_WEIGHTS, like=logits))


def _with_epsilon(network: Any, x: Any, target: Any) -> Any:
    """The logarithm of a probability and an epsilon."""
    nn, logits = network.nn, network(x)
    right = nn.one_hot(target, CLASSES, like=logits)
    return -nn.mean(nn.sum(right * nn.log(nn.softmax(logits, 1) + 1e-13), 1))


def _overflowing(network: Any, x: Any, target: Any) -> Any:
    """The logarithm of a sum of exponentials as it is written."""
    nn, logits = network.nn, network(x)
    right = nn.one_hot(target, CLASSES, like=logits)
    return nn.mean(nn.log(nn.sum(nn.exp(logits), 1)) - nn.sum(right * logits, 1))


def _open_absolute(network: Any, x: Any, numbers: Any, flags: Any) -> Any:
    """|d| as d where d is not negative, so that its derivative at zero is one."""
    nn, y = network.nn, network(x)
    d = y[:, 1:3] - numbers
    absolute = d * (2.0 * nn.cast(d >= 0.0, d) - 1.0)
    regression = nn.mse_loss(y[:, :2], numbers) + nn.mean(absolute)
    return (
        regression + nn.bce_with_logits(y[:, 2:5], flags) + nn.binary_focal_loss(y[:, 3:6], flags)
    )


_FAR, _ONE_PASS = ("mean of 1e4",), ("one-pass",)

MISTAKES = (
    Mistake(
        "probe: one-pass variance of a batch norm",
        "probes",
        with_methods("batch", forward=_batch_norm),
        _FAR,
        _ONE_PASS,
        "far",
    ),
    Mistake(
        "probe: one-pass variance of a group norm",
        "probes",
        with_methods("group", forward=_group_norm),
        _FAR,
        _ONE_PASS,
        "far",
    ),
    Mistake(
        "probe: one-pass variance of a layer norm",
        "probes",
        with_methods("layer", forward=_layer_norm),
        _FAR,
        _ONE_PASS,
        "far",
    ),
    Mistake(
        "probe: one value per channel taken",
        "probes",
        with_methods("norm", forward=_silent_norm),
        ("batch of one",),
        ("no error",),
        "vectors",
    ),
    Mistake(
        "probe: relu'(0) = 1/2",
        "probes",
        with_methods("block1.relu", forward=_half_relu),
        ("zeros", "outputs"),
        ("relu'(0) = 0.5",),
        "residual",
    ),
    Mistake(
        "probe: relu'(0) = 1",
        "probes",
        with_methods("relu", forward=_open_relu),
        ("zeros",),
        ("relu'(0) = 1",),
        "vectors",
    ),
    Mistake(
        "probe: abs'(0) = 1",
        "probes",
        with_loss(_open_absolute),
        ("zeros",),
        ("abs'(0) = 1",),
        "tasks",
    ),
    Mistake(
        "probe: index -1 wraps",
        "probes",
        with_methods("embedding", forward=_wrapping),
        ("index -1",),
        ("no error",),
        "recurrent",
    ),
    Mistake(
        "probe: an index too large is clamped",
        "probes",
        with_methods("embedding", forward=_clamping),
        ("index 1000000",),
        ("no error",),
        "recurrent",
    ),
    Mistake(
        "probe: the padding token learns",
        "probes",
        with_methods("embedding", forward=_learning_padding),
        ("padding",),
        ("padding token gets",),
        "recurrent",
    ),
    Mistake(
        "probe: nothing but ignored labels is NaN",
        "probes",
        with_loss(_zero_over_zero),
        ("all labels ignored",),
        ("NaN",),
        "convolutional",
    ),
    Mistake(
        "probe: ignored labels are the last class",
        "probes",
        with_loss(_ignored_as_last),
        ("all labels ignored",),
        ("class 4",),
        "convolutional",
    ),
    Mistake(
        "probe: every negative label is ignored",
        "probes",
        with_loss(_any_negative_ignored),
        ("label -",),
        ("no error",),
        "convolutional",
    ),
    Mistake(
        "probe: log(p + epsilon)",
        "probes",
        with_loss(_with_epsilon),
        ("outputs of 1e4",),
        ("log(p + epsilon)",),
        "resizing",
    ),
    Mistake(
        "probe: exponentials overflow in the loss",
        "probes",
        with_loss(_overflowing),
        ("outputs of 1e4",),
        ("overflow",),
        "resizing",
    ),
)
