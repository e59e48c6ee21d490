"""Mutants of transferred weights: layouts, orders, names, precision, ties and missing tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.planted import Mistake
from tests.planted.planting import Plant, on_copy, with_weights

Change = Callable[[np.ndarray], np.ndarray]


def _changed(name: str, change: Change) -> Plant:
    """One tensor is changed."""
    return with_weights(
        lambda state: state | {name: np.ascontiguousarray(change(state[name]))}
    )


def _blocks(*order: int) -> Change:
    """Blocks of rows in another order."""
    return lambda value: np.concatenate(
        [np.split(value, len(order))[block] for block in order]
    )


def _untied(network: Any) -> None:
    """The head's table has the same values, and is its own."""
    network.head = copy.deepcopy(network.head)


def _weight(
    name: str,
    parameter: str,
    plant: Plant,
    *cause: str,
    fixture: str,
    place: Sequence[str] = (),
) -> Mistake:
    block = parameter.rpartition(".")[0]
    return Mistake(
        f"{parameter}: {name}",
        "weights",
        plant,
        (parameter, block, *place),
        cause,
        fixture,
    )


def _one(
    name: str, parameter: str, change: Change, *cause: str, fixture: str
) -> Mistake:
    return _weight(
        name, parameter, _changed(parameter, change), *cause, fixture=fixture
    )


MISTAKES = [
    _one("transposed", "square.weight", lambda v: v.T, "transpos", fixture="tied"),
    _one(
        "columns in NHWC order",
        "fc.weight",
        lambda v: v.reshape(5, 6, 3, 2).transpose(0, 2, 3, 1).reshape(5, 36),
        "order",
        "permut",
        "NHWC",
        "columns",
        fixture="convolutional",
    ),
    _one(
        "gates i, f, o, g",
        "lstm.weight_hh_l0",
        _blocks(0, 1, 3, 2),
        "order",
        "permut",
        "gate",
        "block",
        fixture="recurrent",
    ),
    _weight(
        "untied",
        "head.weight",
        on_copy(_untied),
        "tied",
        "gradient",
        fixture="tied",
        place=("embedding",),
    ),
]
