"""Conventions of functions that move elements about: orders of axes, of channels, of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.explain import changes
from deliralike.conformance.explain.convention import (
    Arguments,
    Change,
    Convention,
    Formula,
    array,
    changing,
    factor,
    instead,
    setting,
    values,
)
from deliralike.conformance.explain.enumeration import other_orders
from deliralike.conformance.kinds import Shape
from deliralike.nn.geometry import pad_pairs

_MANY = 5  # parts, or axes, of which every order is tried


def concatenate(given: Arguments) -> list[Convention]:
    """The parts in another order, along another axis, one of them scaled."""
    arrays = given["arrays"]
    count, rank = len(arrays), arrays[0].ndim
    orders = {str(list(order)): _in_order(order) for order in other_orders(count, most=_MANY)}
    if count > _MANY:
        backwards = range(count)[::-1]
        orders = {str(list(backwards)): _in_order(backwards)}
    found = [array("order of concatenation", "arrays", orders), setting("dim", range(rank))]
    for one in range(count):
        found.append(factor(f"scale of part {one}", changing(partial(_scaled, one))))
    return found


def _in_order(order: Sequence[int]) -> Change:
    return lambda nn, arrays: [arrays[i] for i in order]


def _scaled(one: int, nn: Any, given: Arguments, value: float) -> Arguments:
    """One part times a number."""
    parts = list(given["arrays"])
    parts[one] = parts[one] * value
    return {"arrays": parts}


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


def pixel_shuffle(given: Arguments) -> list[Convention]:
    """Channels to space in another order."""
    r, (n, c, h, w) = given["upscale_factor"], given["x"].shape

    def depth_first(nn: Any, given: Arguments) -> Any:
        x = nn.reshape(given["x"], (n, r, r, c // (r * r), h, w))
        return nn.reshape(nn.permute(x, (0, 3, 4, 1, 5, 2)), (n, -1, h * r, w * r))

    words = "in DCR order (depth, column, row) instead of CRD"
    return [instead("channels to space", {words: depth_first})]


def permute(given: Arguments) -> list[Convention]:
    """Axes in another order."""
    rank = len(given["dims"])
    usual = tuple(dim % rank for dim in given["dims"])
    orders = list(permutations(range(rank)))
    return [setting("dims", orders, words="axes permuted in the order", usual=usual)]


def pad(given: Arguments) -> list[Convention]:
    """Other rules and other sides."""
    axes = np.size(given["pad"]) // 2
    pairs = pad_pairs(tuple(given["x"].shape), given["pad"])[-axes:]
    sides = {
        "before and after exchanged": [pair[::-1] for pair in pairs],
        "of the axes in reverse order": pairs[::-1],
    }
    modes = setting("mode", ("constant", "reflect", "replicate"), words="padding mode")
    return [modes, values("pad", sides, "padding")]


def reduction(name: str, given: Arguments) -> list[Convention]:
    """Sums for means, and other axes."""
    rank = len(given["x"].shape)
    ways: dict[str, Formula] = {one: partial(_reduced, one) for one in ("mean", "sum")}
    ways["maximum"] = _maximum
    ways.pop("maximum" if name == "max_along" else name)
    return [instead("reduction", ways, usual=name), setting("dim", range(rank))]


def _reduced(name: str, nn: Any, given: Arguments) -> Any:
    return getattr(nn, name)(given["x"], given["dim"], given["keepdim"])


def _maximum(nn: Any, given: Arguments) -> Any:
    """Along one axis after another, the last one first."""
    x, dims = given["x"], given["dim"]
    rank = len(x.shape)
    if dims is None:
        dims = range(rank)
    elif not isinstance(dims, Sequence):
        dims = (dims,)
    for dim in sorted((dim % rank for dim in dims), reverse=True):
        x = nn.max_along(x, dim, given["keepdim"])
    return x


def matmul(given: Arguments) -> list[Convention]:
    """Factors transposed."""
    turned = {"transposed": changes.exchanged(-1, -2)}
    return [array("first factor", "x", turned), array("second factor", "y", turned)]


def linear(given: Arguments) -> list[Convention]:
    """The weight transposed or reshaped the other way round; features in another order."""
    out, width = given["weight"].shape
    transposed = changes.exchanged(0, 1)

    def stored(nn: Any, weight: Any) -> Any:
        return nn.reshape(transposed(nn, weight), (out, width))

    def reshaped(nn: Any, weight: Any) -> Any:
        return transposed(nn, nn.reshape(weight, (width, out)))

    ways: dict[str, Change] = {
        "stored as (in, out) and read as (out, in)": stored,
        "reshaped instead of transposed": reshaped,
    }
    if out == width:
        ways = {"transposed": transposed} | ways
    orders = {}
    for split in _splits(width):
        shown = " x ".join(str(one) for one in split if one > 1)
        words = f"the first two axes of {shown} exchanged, as by flattening in another order"
        order = np.arange(width).reshape(split).swapaxes(0, 1).ravel()
        orders[words] = changes.selected(order, -1)
    return [array("weight", "weight", ways), array("features of the input:", "x", orders)]


def _splits(size: int) -> Iterator[Shape]:
    """Three factors of a number, of which the first two may be exchanged."""
    for first in range(2, size):
        for second in range(2, size // first + 1):
            if size % (first * second) == 0:
                yield first, second, size // (first * second)
