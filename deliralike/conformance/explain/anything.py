"""Conventions that any block may have: an input, a weight or the output is changed around it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain.activations import ACTIVATIONS
from deliralike.conformance.explain.arguments import names
from deliralike.conformance.explain.convention import (
    Alternatives,
    Arguments,
    Convention,
    Formula,
    array,
    factor,
    output,
)
from deliralike.conformance.explain.relations import TYPES, order_along, rounded
from deliralike.conformance.findings import Accused

Change = Callable[[Any, Any], Any]  # of `nn` and one array
Apply = Callable[[str, Alternatives], Convention]  # the words and the changes of one array

# Where what is done to the input may as well have been done to the weight.
_BILINEAR = ("Conv", "Linear", "conv", "linear")


def around(accused: Accused, given: Arguments) -> Iterator[Convention]:
    """Conventions for a block's own formula, the likely ones first."""
    yield from _precision(accused)
    called = [name for name in names(accused.kind) if _is_floating(given.get(name))]
    weights = [name for name in accused.reference.parameters if name in given]
    called = [name for name in called if name not in weights]
    for name in called:
        words = "input" if name == called[0] else name
        either = words == "input" and accused.kind.startswith(_BILINEAR)
        yield from _input(f"{words} (or weight)" if either else words, name, given[name])
    for name in weights:
        yield from _weight(name, given[name])
    yield from _pairs(weights, given)
    yield from _outputs(accused)


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _precision(accused: Accused) -> Iterator[Convention]:
    def short(formula: Formula, nn: Any, given: Arguments, kind: str) -> Any:
        """Everything cast to a shorter type, and the outputs back."""

        def cast(to: str) -> Callable[[Any], Any]:
            return lambda x: nn.cast(x, to) if "float" in str(getattr(x, "dtype", "")) else x

        after: dict[str, Any] = {}
        floating = {**nest.map(cast(kind), {**given, "after": {}}), "after": after}
        outputs = nest.map(cast("float64"), formula(nn, floating))
        given["after"].update(nest.map(cast("float64"), after))
        return outputs

    def alone(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
        return formula(nn, given)

    yield Convention("computed in", TYPES, short)
    if accused.reference.parameters:  # in the reference they come from all places that share one
        tied = {"this layer's own use alone: those of what is tied to it do not arrive": None}
        yield Convention("gradients of", tied, alone)


# What is done to one array
# -----------------------------------------------------------------------------


def _changes(words: str, apply: Apply, value: np.ndarray) -> Iterator[Convention]:
    """What may be done to any array; nothing but its shape counts."""
    yield apply(words, {"negated": _times(-1.0)})
    if value.size > 2:
        yield _number(f"scale of {words}", apply, _times, (0.5, 2.0, 255.0, 1.0 / 255.0), 1.0)
        yield _number(f"{words} plus", apply, _plus, (1.0, -1.0), None)
    same = _orders(value.shape, value.shape)
    orders = {f"with its axes permuted to {order}": order for order in same}
    if orders and value.ndim == 2:
        orders = {"transposed": (1, 0)}
    yield apply(words, {said: partial(_permuted, order) for said, order in orders.items()})
    reversed_ = {f"reversed along axis {axis}": axis for axis in _long_axes(value.shape)}
    yield apply(words, {said: partial(_reversed, axis) for said, axis in reversed_.items()})


def _number(
    words: str, apply: Apply, change: Callable[[float], Change], starts: Any, usual: Any
) -> Convention:
    """A change with a number that is searched for."""
    made = apply("", {})

    def at(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return made.apply(formula, nn, given, change(value))

    return factor(words, at, alternatives=starts, usual=usual)


def _short(words: str, apply: Apply, value: np.ndarray) -> Iterator[Convention]:
    """Rounding of an array, with or without its gradient, and no gradient at all."""
    kinds = {
        f"rounded to {kind}": partial(_rounded, rounded(value, kind) - value) for kind in TYPES
    }
    casts = {f"rounded to {kind}, and its gradient": partial(_cast, kind) for kind in TYPES}
    yield apply(words, kinds | casts)
    yield apply(words, {"without a gradient": lambda nn, x: nn.stop_gradient(x)})


def _input(words: str, name: str, value: np.ndarray) -> Iterator[Convention]:
    def apply(words: str, alternatives: Alternatives) -> Convention:
        return array(words, name, alternatives)

    if words == name:
        yield apply(words, {"missing (zero)": _times(0.0)})
    if value.ndim > 2 and value.shape[1] > 1:
        backwards = {"in reverse order (RGB and BGR)": partial(_reversed, 1)}
        yield apply(f"channels of the {words}", backwards)
    yield from _changes(words, apply, value)
    if value.ndim > 1 and 2 < value.shape[1] <= 4:
        orders = {str(list(order)): order for order in permutations(range(value.shape[1]))}
        known = {order: partial(_taken, some, 1) for order, some in orders.items()}
        yield apply(f"channels of the {words} in the order", known)
    yield apply(f"{words} goes through", ACTIVATIONS)
    if value.ndim > 1:
        yield apply(words, dict(_norms(value.ndim)))
    yield from _short(words, apply, value)


def _weight(name: str, value: np.ndarray) -> Iterator[Convention]:
    def apply(words: str, alternatives: Alternatives) -> Convention:
        return array(words, name, alternatives)

    yield apply(name, {"missing" if "bias" in name else "without effect": _times(0.0)})
    if value.ndim == 1:
        yield apply(name, {"added twice" if "bias" in name else "doubled": _times(2.0)})
    if name == "weight" and value.ndim == 1:
        yield apply(name, {"taken for one (no scale)": _one})
    if value.ndim > 1:
        yield apply(name, {"standardised for each output": _standardised(range(1, value.ndim))})
    yield from _changes(name, apply, value)
    yield from _short(name, apply, value)


def _pairs(weights: list[str], given: Arguments) -> Iterator[Convention]:
    """Two weights in each other's place, and neither scale nor shift."""

    def swapped(formula: Formula, nn: Any, given: Arguments, pair: tuple[str, str]) -> Any:
        first, second = pair
        return formula(nn, {**given, first: given[second], second: given[first]})

    def plain(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
        one, zero = given["weight"] * 0.0 + 1.0, given["bias"] * 0.0
        return formula(nn, {**given, "weight": one, "bias": zero})

    alike = [(a, b) for a in weights for b in weights if a < b and given[a].shape == given[b].shape]
    yield Convention("exchanged:", {f"{a} and {b}": (a, b) for a, b in alike[:12]}, swapped)
    if {"weight", "bias"} <= set(weights) and given["weight"].ndim == 1:
        yield Convention("no scale and shift", {"(weight one, bias missing)": None}, plain)


def _outputs(accused: Accused) -> Iterator[Convention]:
    """Changes of the first output."""
    outputs = [leaf for leaf in nest.leaves(accused.reference.outputs) if leaf is not None]
    wanted = [leaf for leaf in nest.leaves(accused.candidate.outputs) if leaf is not None]
    if not outputs or not wanted:
        return
    y, c = np.asarray(outputs[0]), np.asarray(wanted[0])
    first = accused.args[0] if accused.args else None
    if _is_floating(first) and first.shape == c.shape:
        yield from _beside_input()
    yield output("output", {"zero": _times(0.0)})
    yield output("output goes through", ACTIVATIONS)
    softmax = {str(axis): partial(_softmax, axis) for axis in range(y.ndim)}
    yield output("softmax of the output over axis", softmax)
    if y.ndim > 2:
        backwards = {"in reverse order": partial(_reversed, 1)}
        yield output("channels of the output", backwards)
    yield from _changes("output", output, y)
    if y.shape != c.shape:
        orders = _orders(y.shape, c.shape)
        permuted = {f"with its axes permuted to {order}": order for order in orders}
        yield output("output", {said: partial(_permuted, some) for said, some in permuted.items()})
        if y.size == c.size:
            yield output("output", {f"reshaped to {c.shape}": partial(_reshaped, c.shape)})
        return
    for axis in range(y.ndim):
        if (found := order_along(y, c, axis)) is not None:
            words = f"output channels (axis {axis})" if axis == 1 else f"output axis {axis}"
            shown = str(found[:8].tolist())
            yield output(f"{words} in the order", {shown: partial(_taken, tuple(found), axis)})
    if y.size > 2:  # bounds fit any one number
        low, high = float(c.min()), float(c.max())
        yield output("output clipped to", {f"[{low:g}, {high:g}]": partial(_clipped, low, high)})
    yield from _short("output", output, y)


def _beside_input() -> Iterator[Convention]:
    """The output as or with the input."""

    def residual(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        leaves, structure = nest.flatten(formula(nn, given))
        return nest.unflatten(structure, [leaves[0] + _x(given) * value, *leaves[1:]])

    def straight(formula: Formula, nn: Any, given: Arguments, value: bool) -> Any:
        """The outputs as they are, or the input, with the gradient of the identity."""
        x = _x(given)
        leaves, structure = nest.flatten(formula(nn, given))
        y = nn.stop_gradient(leaves[0]) + x - nn.stop_gradient(x) if value else x
        return nest.unflatten(structure, [y, *leaves[1:]])

    yield Convention("does nothing:", {"the input unchanged": False}, straight)
    yield factor("the input added to the output, times", residual, usual=None)
    yield Convention("gradient", {"of the identity (straight through)": True}, straight)


def _x(given: Arguments) -> Any:
    """The first input, whatever its name."""
    return next(given[name] for name in ("x", "query", "index", "arrays") if name in given)


def _times(by: float) -> Change:
    return lambda nn, x: x * by


def _plus(by: float) -> Change:
    return lambda nn, x: x + by


def _one(nn: Any, x: Any) -> Any:
    return x * 0.0 + 1.0


def _permuted(order: tuple[int, ...], nn: Any, x: Any) -> Any:
    return nn.permute(x, order)


def _reversed(axis: int, nn: Any, x: Any) -> Any:
    return nn.flip(x, axis)


def _taken(order: tuple[int, ...], axis: int, nn: Any, x: Any) -> Any:
    return nn.select(x, nn.constant(np.asarray(order), like=x), axis)


def _softmax(axis: int, nn: Any, x: Any) -> Any:
    return nn.softmax(x, axis)


def _reshaped(shape: tuple[int, ...], nn: Any, x: Any) -> Any:
    return nn.reshape(x, shape)


def _clipped(low: float, high: float, nn: Any, x: Any) -> Any:
    return nn.clip(x, low, high)


def _rounded(error: np.ndarray, nn: Any, x: Any) -> Any:
    """Rounding as a constant that is added, since it has the gradient of the identity."""
    return x + nn.constant(error, like=x)


def _cast(kind: str, nn: Any, x: Any) -> Any:
    return nn.cast(nn.cast(x, kind), "float64")


def _norms(rank: int) -> Iterator[tuple[str, Change]]:
    """Inputs as they are prepared outside of a network."""
    channels, samples = (0, *range(2, rank)), range(1, rank)
    for eps in (1e-5, 0.0):
        yield f"standardised for each channel (eps {eps:g})", _standardised(channels, eps)
        yield f"standardised for each sample (eps {eps:g})", _standardised(samples, eps)
        words = f"divided by its deviation for each channel (standardised in part, eps {eps:g})"
        yield words, _standardised(channels, eps, centred=False)


def _standardised(axes: Iterable[int], eps: float = 1e-5, centred: bool = True) -> Change:
    def change(nn: Any, x: Any) -> Any:
        over = tuple(axes)
        deviation = nn.sqrt(nn.var(x, over, keepdim=True) + eps)
        return (x - nn.mean(x, over, keepdim=True) if centred else x) / deviation

    return change


def _long_axes(shape: tuple[int, ...]) -> list[int]:
    return [axis for axis, size in enumerate(shape) if size > 1]


def _orders(shape: tuple[int, ...], to: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The orders of axes that make one shape of another, but the usual one."""
    if len(shape) > 4:
        return []
    _, *others = permutations(range(len(shape)))
    return [order for order in others if tuple(shape[d] for d in order) == to]
