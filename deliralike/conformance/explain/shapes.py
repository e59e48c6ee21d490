"""Conventions of functions that move elements about: orders of axes, of channels, of parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.convention import (
    Arguments,
    Change,
    Convention,
    Formula,
    array,
    instead,
    setting,
)
from deliralike.conformance.explain.enumeration import other_orders

_MANY = 5  # parts, or axes, of which every order is tried


def concatenate(given: Arguments) -> list[Convention]:
    """The parts in another order, or along another axis."""
    arrays = given["arrays"]
    count, rank = len(arrays), arrays[0].ndim
    orders = {
        str(list(order)): _in_order(order) for order in other_orders(count, most=_MANY)
    }
    return [
        array("order of concatenation", "arrays", orders),
        setting("dim", range(rank)),
    ]


def _in_order(order: Sequence[int]) -> Change:
    return lambda nn, arrays: [arrays[i] for i in order]


def flatten(given: Arguments) -> list[Convention]:
    """The merged axes in another order; NHWC is the usual one."""
    rank = len(given["x"].shape)
    start, end = given["start_dim"] % rank, given["end_dim"] % rank
    before, merged, after = range(start), range(start, end + 1), range(end + 1, rank)
    orders: dict[str, Change] = {}
    if len(merged) > 1:
        last = (*before, *merged[1:], start, *after)
        orders["in NHWC order (channels last) instead of NCHW"] = changes.permuted(last)
    for order in other_orders(len(merged), most=_MANY):
        axes = tuple(merged[place] for place in order)
        whole = changes.permuted((*before, *axes, *after))
        orders[f"with its axes in the order {axes}"] = whole
    return [array("flattened", "x", orders), setting("start_dim", range(rank))]


def reduction(name: str, given: Arguments) -> list[Convention]:
    """Sums for means, and other axes."""
    rank = len(given["x"].shape)
    ways: dict[str, Formula] = {one: partial(_reduced, one) for one in ("mean", "sum")}
    ways["maximum"] = partial(_reduced, "amax")
    ways.pop("maximum" if name == "max_along" else name)
    return [instead("reduction", ways, usual=name), setting("dim", range(rank))]


def _reduced(name: str, nn: Any, given: Arguments) -> Any:
    return getattr(nn, name)(given["x"], given["dim"], given["keepdim"])


def linear(given: Arguments) -> list[Convention]:
    """Features of the input in another order, as by flattening a picture in another one."""
    width, orders = given["weight"].shape[1], {}
    for channels in range(2, width):
        size = width // channels
        if width % channels == 0 and size > 1:
            order = np.arange(width).reshape(channels, size).T.ravel()
            words = f"the axes of {channels} x {size} exchanged, as by flattening in another order"
            orders[words] = changes.selected(order, -1)
    return [array("features of the input:", "x", orders)]
