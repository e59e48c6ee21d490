"""Conventions of functions that move elements about: orders of axes, of channels, of parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.explain.convention import (
    Arguments,
    Convention,
    Formula,
    array,
    factor,
    instead,
    rules,
    setting,
)

PIECES = "pieces"


def pieces(given: Arguments) -> tuple[Formula, list[Convention]]:
    """Two arrays in each other's place; or the halves of one, along its features or channels."""
    arrays, words = given["x"], given["words"]
    if len(arrays) == 2:
        ways: dict[str, Formula] = {words: lambda nn, given: given["x"][::-1]}
    else:
        rank, sizes = arrays[0].ndim, arrays[0].shape
        axes = {rank - 1, 1} if rank > 2 else {rank - 1}
        even = sorted(axis for axis in axes if sizes[axis] % 2 == 0)
        ways = {f"the halves of {words} along axis {axis}": _halves(axis) for axis in even}
    return lambda nn, given: given["x"], [instead("exchanged:", ways)]


def _halves(axis: int) -> Formula:
    def exchanged(nn: Any, given: Arguments) -> Any:
        (x,) = given["x"]
        return (nn.roll(x, x.shape[axis] // 2, axis),)

    return exchanged


def concatenate(given: Arguments) -> list[Convention]:
    """The parts in another order, along another axis, interleaved."""
    arrays, dim = given["arrays"], given["dim"]
    count, rank = len(arrays), arrays[0].ndim
    known = permutations(range(count)) if count <= 5 else [tuple(reversed(range(count)))]
    orders = {str(list(order)): _in_order(order) for order in known}
    del orders[str(list(range(count)))]
    found = [array("order of concatenation", "arrays", orders), setting("dim", range(rank))]
    if len({part.shape[dim] for part in arrays}) == 1:
        ways = {"interleaved instead of one after another": _interleaved}
        found.append(instead("parts", ways))
    for one in range(count):
        found.append(factor(f"scale of part {one}", partial(_scaled, one)))
    return found


def _in_order(order: Sequence[int]) -> Callable[[Any, Any], Any]:
    return lambda nn, arrays: [arrays[i] for i in order]


def _interleaved(nn: Any, given: Arguments) -> Any:
    joined, dim = nn.concatenate(given["arrays"], given["dim"]), given["dim"]
    order = np.arange(joined.shape[dim]).reshape(len(given["arrays"]), -1).T.ravel()
    return nn.select(joined, nn.constant(order, like=joined), dim % len(joined.shape))


def _scaled(one: int, formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
    """One part times a number."""
    parts = list(given["arrays"])
    parts[one] = parts[one] * value
    return formula(nn, {**given, "arrays": parts})


def flatten(given: Arguments) -> list[Convention]:
    """The merged axes in another order; NHWC is the usual one."""
    rank = len(given["x"].shape)
    start, end = given["start_dim"] % rank, given["end_dim"] % rank
    merged = tuple(range(start, end + 1))
    last = (*merged[1:], *merged[:1])
    orders = {"in NHWC order (channels last) instead of NCHW": last}
    if len(merged) <= 5:
        orders |= {f"with its axes in the order {order}": order for order in permutations(merged)}
    whole = {
        words: (*range(start), *order, *range(end + 1, rank))
        for words, order in orders.items()
        if order != merged
    }
    permuted = {words: _permuted(order) for words, order in whole.items()}
    return [array("flattened", "x", permuted), setting("start_dim", range(rank))]


def _permuted(order: Sequence[int]) -> Callable[[Any, Any], Any]:
    return lambda nn, x: nn.permute(x, order)


def pixel_shuffle(given: Arguments) -> list[Convention]:
    """Channels to space in another order."""
    r, (n, c, h, w) = given["upscale_factor"], given["x"].shape
    depth, column = (n, r, r, c // (r * r), h, w), (n, c // (r * r), r, r, h, w)

    def made(split: tuple[int, ...], order: tuple[int, ...]) -> Formula:
        return lambda nn, given: nn.reshape(
            nn.permute(nn.reshape(given["x"], split), order), (n, -1, h * r, w * r)
        )

    ways = {
        "in DCR order (depth, column, row) instead of CRD": made(depth, (0, 3, 4, 1, 5, 2)),
        "with height and width exchanged": made(column, (0, 1, 4, 3, 5, 2)),
    }
    return [instead("channels to space", ways)]


def permute(given: Arguments) -> list[Convention]:
    """Axes in another order."""
    usual = tuple(d % len(given["x"].shape) for d in given["dims"])
    orders = list(permutations(range(len(usual))))
    return [setting("dims", orders, words="axes permuted in the order", usual=usual)]


def pad(given: Arguments) -> list[Convention]:
    """Other rules and other sides."""
    pairs = [(p, p) if isinstance(p, int) else tuple(p) for p in given["padding"]]
    sides = {
        "before and after exchanged": {"padding": [(after, before) for before, after in pairs]},
        "of the axes in reverse order": {"padding": pairs[::-1]},
    }
    modes = setting("mode", ("constant", "reflect", "replicate"), words="padding mode")
    return [modes, rules("padding", sides), setting("value", (0.0, 1.0), free=True)]


def reduction(name: str, given: Arguments) -> list[Convention]:
    """Sums for means, and other axes."""
    rank = len(given["x"].shape)
    dims = given["dim"]
    every = range(rank) if dims is None else dims if isinstance(dims, Sequence) else (dims,)

    def largest(nn: Any, given: Arguments) -> Any:
        x = given["x"]
        for dim in sorted((dim % rank for dim in every), reverse=True):
            x = nn.max(x, dim, given["keepdim"])
        return x

    def other(function: str) -> Formula:
        return lambda nn, given: getattr(nn, function)(given["x"], given["dim"], given["keepdim"])

    ways: dict[str, Formula] = {word: other(word) for word in ("mean", "sum") if word != name}
    if name != "max":
        ways["maximum"] = largest
    return [instead("reduction", ways, usual=name), setting("dim", range(rank))]


def matmul(given: Arguments) -> list[Convention]:
    """Factors transposed or exchanged."""
    turned = {"transposed": lambda nn, x: nn.transpose(x, -1, -2)}
    swapped = {"exchanged": lambda nn, given: nn.matmul(given["y"], given["x"])}
    return [
        array("first factor", "x", turned, joins="factors"),
        array("second factor", "y", turned, joins="factors"),
        instead("factors", swapped),
    ]


def linear(given: Arguments) -> list[Convention]:
    """The weight transposed or reshaped the other way round."""
    out, width = given["weight"].shape
    transposed = {"transposed": lambda nn, w: nn.transpose(w, 0, 1)} if out == width else {}
    reshaped = {
        "stored as (in, out) and read as (out, in)": lambda nn, w: nn.reshape(
            nn.transpose(w, 0, 1), (out, width)
        ),
        "reshaped instead of transposed": lambda nn, w: nn.transpose(
            nn.reshape(w, (width, out)), 0, 1
        ),
    }
    return [array("weight", "weight", transposed | reshaped)]
