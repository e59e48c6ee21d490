"""Conventions of embeddings: the padding row, its gradient, and the scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deliralike.conformance.explain.variant import Call, Variant


def rows(call: Call, padding: int | None, zero: bool = False, shift: int = 0) -> Any:
    """The looked-up rows, without a gradient at the padding's; zero there on demand."""
    nn, index, weight = call.nn, call.args[0], call.weights["weight"]
    found = nn.select(weight, (index + shift) % weight.shape[0], 0)
    if padding is None:
        return found
    here = nn.broadcast_to(nn.expand_dims(index == padding, -1), found.shape)
    return nn.where(here, found * 0.0 if zero else nn.stop_gradient(found), found)


def embedding(
    settings: Mapping[str, Any], index: np.ndarray, weight: np.ndarray
) -> Iterator[Variant]:
    """Everything that is known to go wrong in an embedding."""
    index = index.astype(np.int64)
    padding, (count, width) = settings.get("padding_idx"), weight.shape
    padding = None if padding is None else padding % count
    if padding is not None:
        yield Variant("gradient of the padding row is not zero", lambda call: rows(call, None))
        yield Variant(
            "output of the padding row is zero instead of the stored row",
            lambda call: rows(call, padding, zero=True),
        )
    root = math.sqrt(width)
    yield Variant(f"scaled by sqrt({width})", lambda call: rows(call, padding) * root)
    yield Variant(f"divided by sqrt({width})", lambda call: rows(call, padding) * (1.0 / root))
    for shift in (1, -1):
        yield Variant(
            f"index off by {shift:+d}", lambda call, shift=shift: rows(call, padding, shift=shift)
        )
    for other in np.unique(index):
        if other != padding:
            yield Variant(
                f"padding_idx={other} instead of {padding} (no gradient)",
                lambda call, other=int(other): rows(call, other),
            )
            yield Variant(
                f"padding_idx={other} instead of {padding}, output zero there",
                lambda call, other=int(other): rows(call, other, zero=True),
            )
    for most in range(int(index.max())):
        yield Variant(
            f"index clamped to {most} (out of range above it)",
            lambda call, most=most: _clamped(call, padding, most),
        )
    yield Variant("every row normalised to length one", lambda call: _unit(call, padding))
    yield Variant(
        "rows longer than {} shortened to it, with a gradient through their length",
        lambda call, value: _unit(call, padding, value),
        (1.0, 2.0),
        0.0,
    )
    counts = np.bincount(index.ravel(), minlength=count)
    yield Variant(
        "gradient of each row divided by how often it occurs",
        lambda call: _by_frequency(call, padding, counts[index]),
    )
    norms = np.sqrt(np.square(weight).sum(axis=1, keepdims=True))
    yield Variant(
        "rows normalised to length {}",
        lambda call, value: _renormed(call, padding, norms, value),
        (1.0, 2.0),
        0.0,
    )


def _by_frequency(call: Call, padding: int | None, often: np.ndarray) -> Any:
    nn = call.nn
    found = rows(call, padding)
    share = nn.constant(1.0 / often[..., None], like=found)
    return found * share + nn.stop_gradient(found) * (1.0 - share)


def _clamped(call: Call, padding: int | None, most: int) -> Any:
    index = call.args[0]
    return rows(call.but(args=(call.nn.where(index > most, index * 0 + most, index),)), padding)


def _unit(call: Call, padding: int | None, most: float | None = None) -> Any:
    """Rows divided by their length, or those that are longer than a number alone."""
    nn, weight = call.nn, call.weights["weight"]
    squares = nn.sum(weight * weight, 1, keepdim=True)
    length = nn.sqrt(nn.where(squares > 0, squares, squares * 0.0 + 1.0))
    if most is not None:
        length = nn.where(length > most, length * (1.0 / most), length * 0.0 + 1.0)
    return rows(call.but(weights={**call.weights, "weight": weight / length}), padding)


def _renormed(call: Call, padding: int | None, norms: np.ndarray, most: float) -> Any:
    """Rows longer than a number shortened to it."""
    factor = np.minimum(1.0, most / np.maximum(norms, 1e-30))
    weight = call.weights["weight"]
    scaled = weight * call.nn.constant(factor, like=weight)
    return rows(call.but(weights={**call.weights, "weight": scaled}), padding)
