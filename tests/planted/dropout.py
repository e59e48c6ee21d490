"""Mistakes of dropout: scale, probability, mode, and what shares a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods


def _mask(
    layer: Any, x: Any, shape: tuple[int, ...] | None = None, p: float | None = None
) -> Any:
    return layer.nn.keep_mask(
        layer,
        layer.mask_shape(x) if shape is None else shape,
        layer.p if p is None else p,
        x,
    )


def _in_training(apply: Callable[[Any, Any], Any], path: str = "elements") -> Plant:
    """The layer does something else in training."""
    return with_methods(
        path, forward=lambda self, x: apply(self, x) if self.training else x
    )


def _unscaled(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x)


def _scaled(layer: Any, x: Any) -> Any:
    return _unscaled(layer, x) * (1.0 / (1.0 - layer.p))


def _on_in_evaluation(self, x):
    return _scaled(self, x)


def _swapped(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, p=1.0 - layer.p) * (1.0 / layer.p)


def _drop(name: str, plant: Plant, *cause: str, path: str = "elements") -> Mistake:
    kind = {
        "elements": "dropout",
        "channels": "dropout of channels",
        "path": "drop path",
    }[path]
    return Mistake(f"{kind}: {name}", "dropout", plant, (path,), cause, "dropping")


MISTAKES = [
    _drop("p and keep swapped", _in_training(_swapped), "swapped", "p=0.7", "keep"),
    _drop(
        "on in evaluation",
        with_methods("elements", forward=_on_in_evaluation),
        "evaluation",
    ),
]
