"""Conventions of functions that move elements about: orders of axes, of channels, of parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.explain.activations import ACTIVATIONS
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
TENSOR = "tensor"
_FEW = 4  # columns of which every order is tried


def pieces(given: Arguments) -> tuple[Formula, list[Convention]]:
    """What is made of the outputs of layers, read in another order.

    Two arrays come in each other's place, or the halves of one; the features that arrays have
    together are taken for the product of other axes; or the pixels of pictures are.
    """
    arrays, words, together = given["x"], given["words"], given["together"]
    rank, sizes = arrays[0].ndim, arrays[0].shape
    axes = sorted({rank - 1, 1}) if rank > 2 else [rank - 1]
    ways: dict[str, Formula] = {}
    if len(arrays) == 2 and together:
        ways[words] = lambda nn, given: given["x"][::-1]
    elif len(arrays) == 1:
        for axis in (axis for axis in axes if sizes[axis] % 2 == 0):
            ways[f"the halves of {words} along axis {axis}"] = _halves(axis)
    count = len(arrays) if together else 1
    turned: dict[str, Formula] = {}
    for axis in axes:
        for split in _splits(sizes[axis] * count):
            shown = " x ".join(str(size) for size in split if size > 1)
            name = f"the first two of {shown} features (axis {axis}) of {words}"
            turned[name] = _regrouped(axis, split, together)
    if rank == 4:
        turned[f"height and width (axes 2 and 3) of {words}"] = _mirrored
    conventions = [instead("exchanged:", ways), instead("read with axes exchanged:", turned)]
    return lambda nn, given: given["x"], conventions


def _halves(axis: int) -> Formula:
    def exchanged(nn: Any, given: Arguments) -> Any:
        (x,) = given["x"]
        return (nn.roll(x, x.shape[axis] // 2, axis),)

    return exchanged


def _splits(size: int) -> Iterator[tuple[int, int, int]]:
    """Three factors of a number, of which the first two may be exchanged."""
    for first in range(2, size):
        for second in range(2, size // first + 1):
            if size % (first * second) == 0:
                yield first, second, size // (first * second)


def _regrouped(axis: int, split: tuple[int, int, int], together: bool) -> Formula:
    """Features in the order of `split` with its first two axes exchanged."""
    order = np.arange(math.prod(split)).reshape(split).swapaxes(0, 1).ravel()

    def one(nn: Any, x: Any) -> Any:
        return nn.select(x, nn.constant(order, like=x), axis)

    def regrouped(nn: Any, given: Arguments) -> Any:
        arrays = given["x"]
        if not together:
            return tuple(one(nn, x) for x in arrays)
        size = arrays[0].shape[axis]
        joined = one(nn, nn.concatenate(list(arrays), axis))
        places = (np.arange(size) + size * place for place in range(len(arrays)))
        return tuple(nn.select(joined, nn.constant(at, like=joined), axis) for at in places)

    return regrouped


def _mirrored(nn: Any, given: Arguments) -> Any:
    return tuple(nn.transpose(x, 2, 3) for x in given["x"])


def tensor(given: Arguments) -> tuple[Formula, list[Convention]]:
    """A parameter or buffer that a block makes use of itself; ``others`` may stand for it."""
    value, words = given["x"], given["words"]
    last = value.ndim - 1
    columns = range(value.shape[last] if value.shape[last] <= _FEW else 0)
    found = _of_variance(words) if words.endswith("var") else []
    found += [
        array(words, "x", {"left out (taken for one)": lambda nn, x: x * 0.0 + 1.0}),
        array(words, "x", {"with the wrong sign": lambda nn, x: -x}),
        array(words, "x", {"with one added": lambda nn, x: x + 1.0}),
        array(words, "x", {f"reversed along axis {axis}": _flip(axis) for axis in range(last + 1)}),
        array(words, "x", {name: _of(name) for name in ("square", "sqrt", "exp", "inverse")}),
    ]
    if value.ndim == 2 and value.shape[0] == value.shape[1]:
        found.append(array(words, "x", {"transposed": lambda nn, x: nn.transpose(x, 0, 1)}))
    orders = list(permutations(columns))[1:]
    chosen = {str(order): _columns(order) for order in orders}
    found.append(array(f"{words} with its last axis in the order", "x", chosen))
    other = {_told(value, one): _other(one) for one in given["others"]}
    found.append(array(words, "x", other))
    return lambda nn, given: given["x"], found


def _of_variance(words: str) -> list[Convention]:
    """What is done to a stored variance before it is divided by its root."""

    def added(formula: Formula, nn: Any, given: Arguments, eps: float) -> Any:
        return formula(nn, {**given, "x": given["x"] + eps})

    squared = {"divided by, instead of by its root": lambda nn, x: x * x}
    return [
        factor(f"eps added to {words}", added, alternatives=(1e-5, 1e-3), usual=None),
        array(words, "x", squared),
    ]


def _flip(axis: int) -> Callable[[Any, Any], Any]:
    return lambda nn, x: nn.flip(x, axis)


def _of(name: str) -> Callable[[Any, Any], Any]:
    return ACTIVATIONS[name]


def _columns(order: Sequence[int]) -> Callable[[Any, Any], Any]:
    return lambda nn, x: nn.select(x, nn.constant(np.asarray(order), like=x), x.ndim - 1)


def _other(value: np.ndarray) -> Callable[[Any, Any], Any]:
    return lambda nn, x: nn.constant(value, like=x)


def _told(mine: np.ndarray, theirs: np.ndarray) -> str:
    """How an array that a candidate makes differs from the one that it stands for."""
    apart = np.argwhere(~np.isclose(mine, theirs, rtol=1e-12, atol=0.0))
    first = tuple(map(int, apart[0]))
    shown = f"{list(first)} is {theirs[first]:.6g} instead of {mine[first]:.6g}"
    return f"with other numbers, in {len(apart)} of {mine.size} places: {shown}"


def concatenate(given: Arguments) -> list[Convention]:
    """The parts in another order, along another axis, one of them scaled."""
    arrays = given["arrays"]
    count, rank = len(arrays), arrays[0].ndim
    known = permutations(range(count)) if count <= 5 else [tuple(reversed(range(count)))]
    orders = {str(list(order)): _in_order(order) for order in known}
    del orders[str(list(range(count)))]
    found = [array("order of concatenation", "arrays", orders), setting("dim", range(rank))]
    for one in range(count):
        found.append(factor(f"scale of part {one}", partial(_scaled, one)))
    return found


def _in_order(order: Sequence[int]) -> Callable[[Any, Any], Any]:
    return lambda nn, arrays: [arrays[i] for i in order]


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
            x = nn.max_along(x, dim, given["keepdim"])
        return x

    def other(function: str) -> Formula:
        return lambda nn, given: getattr(nn, function)(given["x"], given["dim"], given["keepdim"])

    ways: dict[str, Formula] = {word: other(word) for word in ("mean", "sum") if word != name}
    if name != "max_along":
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
