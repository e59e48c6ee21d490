"""Mistakes of activations: approximations, slopes, limits, axes and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings


def _as(path: str, function: Callable[[Any, Any], Any]) -> Plant:
    """The block at a path computes this function of `nn` and its input."""
    return with_methods(path, forward=lambda self, x: function(self.nn, x))


def _by_steps(nn: Any, x: Any) -> Any:
    """``clip(0.2 x + 0.5)``, Keras' and Chainer's hard sigmoid."""
    return nn.clip(x * 0.2 + 0.5, 0.0, 1.0)


def _act(name: str, path: str, plant: Plant, *cause: str, fixture: str = "activations") -> Mistake:
    return Mistake(f"{path}: {name}", "activation", plant, (path,), cause, fixture)


MISTAKES = [
    _act("tanh approximation", "gelu", with_settings("gelu", approximate="tanh"), "tanh"),
    _act("slope 0.2", "leaky", with_settings("leaky", negative_slope=0.2), "slope"),
    _act(
        "slope 0.037, which no framework has",
        "leaky",
        with_settings("leaky", negative_slope=0.037),
        "slope",
    ),
    _act("clip(0.2 x + 0.5)", "hardsigmoid", _as("hardsigmoid", _by_steps), "0.2"),
]
