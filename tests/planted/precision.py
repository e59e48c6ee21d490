"""Mistakes of precision: short types within, and formulas that are right on paper only.

A type that is too short shows in float64 anywhere. A formula that loses digits shows where there
are some to lose: in the fixture ``"far"``, whose mean is 1e4 times its deviation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.fixtures import CLASS_WEIGHTS, IGNORED
from tests.planted.planting import Plant, with_loss, with_methods

# Short types within
# -----------------------------------------------------------------------------


def _short(nn: Any, x: Any) -> Any:
    """Rounded to a shorter type."""
    return nn.cast(nn.cast(x * 1.0, "float32"), x)


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


def _logits_in_float32(network: Any, x: Any, target: Any) -> Any:
    nn, logits = network.nn, network(x)
    short = nn.cast(logits, "float32")
    return nn.cast(
        nn.cross_entropy(short, target, nn.constant(CLASS_WEIGHTS, like=short), IGNORED), logits
    )


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
    _float32(
        "batch statistics", "norm", with_methods("norm", forward=_statistics), "convolutional"
    ),
    _float32("loss", "loss", with_loss(_logits_in_float32), "pooling", *_LOSS),
    _one_pass("batch", _batch_in_one_pass),
    _one_pass("group", _group_in_one_pass),
    _one_pass("instance", _instance_in_one_pass),
    _one_pass("layer", _layer_in_one_pass),
]
