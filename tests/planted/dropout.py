"""Mistakes of dropout: scale, probability, mode, and what shares a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.planted import Mistake
from tests.planted.planting import Plant, with_methods, with_settings


def _mask(layer: Any, x: Any, shape: tuple[int, ...] | None = None, p: float | None = None) -> Any:
    return layer.nn.keep_mask(
        layer, layer.mask_shape(x) if shape is None else shape, layer.p if p is None else p, x
    )


def _in_training(apply: Callable[[Any, Any], Any], path: str = "elements") -> Plant:
    """The layer does something else in training."""
    return with_methods(path, forward=lambda self, x: apply(self, x) if self.training else x)


def _unscaled(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x)


def _scaled(layer: Any, x: Any) -> Any:
    return _unscaled(layer, x) * (1.0 / (1.0 - layer.p))


def _on_in_evaluation(self, x):
    return _scaled(self, x)


def _scaled_in_evaluation(self, x):
    """Dropout as it was first published: the expectation is restored in evaluation."""
    return _unscaled(self, x) if self.training else x * (1.0 - self.p)


def _both_scaled(self, x):
    return _scaled(self, x) if self.training else x * (1.0 - self.p)


def _mask_of_one_sample(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, (1, *x.shape[1:])) * (1.0 / (1.0 - layer.p))


def _mask_of_one_channel(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, (x.shape[0], 1, *x.shape[2:])) * (1.0 / (1.0 - layer.p))


def _mask_per_channel(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, (*x.shape[:2], *(1,) * (len(x.shape) - 2))) * (1.0 / (1.0 - layer.p))


def _mask_per_element(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, tuple(x.shape)) * (1.0 / (1.0 - layer.p))


def _mask_per_sample(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, (x.shape[0], *(1,) * (len(x.shape) - 1))) * (1.0 / (1.0 - layer.p))


def _inverted(layer: Any, x: Any) -> Any:
    """What was to be dropped is kept."""
    return x * (1.0 - _mask(layer, x)) * (1.0 / (1.0 - layer.p))


def _swapped(layer: Any, x: Any) -> Any:
    return x * _mask(layer, x, p=1.0 - layer.p) * (1.0 / layer.p)


def _divided_by_p(layer: Any, x: Any) -> Any:
    return _unscaled(layer, x) * (1.0 / layer.p)


def _scaled_twice(layer: Any, x: Any) -> Any:
    return _unscaled(layer, x) * (1.0 / (1.0 - layer.p)) ** 2


def _twice(layer: Any, x: Any) -> Any:
    """Two masks, one after the other: of other samples the second time."""
    second = layer.nn.flip(_mask(layer, x), 0)
    return _scaled(layer, x) * second * (1.0 / (1.0 - layer.p))


def _scaled_by_share(layer: Any, x: Any) -> Any:
    """By how many were kept indeed, not by how many are to be expected."""
    mask = _mask(layer, x)
    return x * mask / layer.nn.mean(mask)


def _drop(name: str, plant: Plant, *cause: str, path: str = "elements") -> Mistake:
    kind = {"elements": "dropout", "channels": "dropout of channels", "path": "drop path"}[path]
    return Mistake(f"{kind}: {name}", "dropout", plant, (path,), cause, "dropping")


MISTAKES = [
    _drop("unscaled", _in_training(_unscaled), "scale"),
    _drop("p and keep swapped", _in_training(_swapped), "swapped", "p=0.7", "keep"),
    _drop("off in training", _in_training(lambda layer, x: x), "off", "p=0", "p=0.0"),
    _drop("on in evaluation", with_methods("elements", forward=_on_in_evaluation), "evaluation"),
    _drop(
        "scaled in evaluation only",
        with_methods("elements", forward=_scaled_in_evaluation),
        "scale",
        "evaluation",
    ),
    _drop(
        "scaled in training and in evaluation",
        with_methods("elements", forward=_both_scaled),
        "scale",
        "evaluation",
    ),
    _drop("p 0.5", with_settings("elements", p=0.5), "p="),
    _drop("p 0.27, near to the right one", with_settings("elements", p=0.27), "p="),
    _drop("one mask for all samples", _in_training(_mask_of_one_sample), "sample", "mask"),
    _drop("one mask for all channels", _in_training(_mask_of_one_channel), "channel", "mask"),
    _drop("of channels", _in_training(_mask_per_channel), "channel", "mask"),
    _drop("mask inverted", _in_training(_inverted), "invert", "mask"),
    _drop("divided by p", _in_training(_divided_by_p), "scale", "1/p"),
    _drop("scaled twice", _in_training(_scaled_twice), "scale", "twice"),
    _drop("applied twice", _in_training(_twice), "twice", "mask"),
    _drop("scaled by the share that was kept", _in_training(_scaled_by_share), "scale", "share"),
    _drop(
        "the stream of another layer",
        with_settings("elements", block_path="channels"),
        "stream",
        "mask",
        "key",
    ),
    _drop(
        "of elements",
        _in_training(_mask_per_element, "channels"),
        "element",
        "mask",
        path="channels",
    ),
    _drop("unscaled", _in_training(_unscaled, "channels"), "scale", path="channels"),
    _drop(
        "off in training",
        _in_training(lambda layer, x: x, "channels"),
        "off",
        "p=0",
        path="channels",
    ),
    _drop(
        "of whole samples",
        _in_training(_mask_per_sample, "channels"),
        "sample",
        "mask",
        path="channels",
    ),
    _drop("of elements", _in_training(_mask_per_element, "path"), "element", "mask", path="path"),
    _drop("unscaled", _in_training(_unscaled, "path"), "scale", path="path"),
    _drop(
        "p and keep swapped",
        _in_training(_swapped, "path"),
        "swapped",
        "keep",
        "p=0.6",
        path="path",
    ),
    _drop(
        "on in evaluation",
        with_methods("path", forward=_on_in_evaluation),
        "evaluation",
        path="path",
    ),
    _drop(
        "of the whole batch",
        _in_training(
            lambda layer, x: x * _mask(layer, x, (1, 1, 1, 1)) * (1 / (1 - layer.p)), "path"
        ),
        "batch",
        "mask",
        path="path",
    ),
]
