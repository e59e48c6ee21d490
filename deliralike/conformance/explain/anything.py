"""Conventions that any block may have: an input, a weight or the output is changed around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations, permutations
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain.activations import ACTIVATIONS
from deliralike.conformance.explain.arguments import names
from deliralike.conformance.explain.convention import (
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
Apply = Callable[..., Convention]  # the words and the changes of one array

# Where what is done to the input may as well have been done to the weight.
_BILINEAR = ("Conv", "Linear", "conv", "linear")


def around(accused: Accused, given: Arguments) -> Iterator[Convention]:
    """Conventions for a block's own formula, the likely ones first."""
    if accused.reference.parameters:  # in the reference they come from all places that share one
        words = "this layer's own use alone: those of what is tied to it do not arrive"
        yield Convention("gradients of", {words: None}, _alone)
    weights = [name for name in accused.reference.parameters if name in given]
    for name in weights:
        missing = {"missing" if "bias" in name else "without effect": _times(0.0)}
        twice = {"added twice": _times(2.0), "taken for one (no scale)": _one}
        yield array(name, name, missing | twice if given[name].ndim == 1 else missing)
    yield Convention("computed in", TYPES, _computed_in)
    for place, name in enumerate(name for name in names(accused.kind) if name not in weights):
        if _is_floating(given.get(name)):
            words = "input (or weight)" if accused.kind.startswith(_BILINEAR) else "input"
            yield from _changes(name if place else words, partial(_at, name), given[name], place)
    for name in weights:
        yield from _changes(name, partial(_at, name), given[name], 1)
    alike = (pair for pair in combinations(weights, 2) if _are_alike(given, *pair))
    yield Convention("exchanged:", {" and ".join(pair): pair for pair in alike}, _exchanged)
    yield from _outputs(accused)


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _are_alike(given: Arguments, first: str, second: str) -> bool:
    return given[first].shape == given[second].shape


def _at(name: str, words: str, alternatives: Any) -> Convention:
    return array(words, name, alternatives)


def _outputs(accused: Accused) -> Iterator[Convention]:
    """Changes of the first output."""
    sides = [nest.leaves(side.outputs) for side in (accused.reference, accused.candidate)]
    own, other = (side[0] if side else None for side in sides)
    if own is None:
        return
    y = np.asarray(own)
    c = y if other is None else np.asarray(other)  # what follows from an output may be known alone
    first = accused.args[0] if accused.args else None
    if isinstance(first, np.ndarray) and _is_floating(first) and first.shape == c.shape:
        yield Convention("does nothing:", {"the input unchanged": None}, _unchanged)
        yield factor("the input added to the output, times", _residual, usual=None)
    yield from _changes("output", output, y)
    if other is None:
        return
    if y.shape != c.shape:
        yield output("output", dict(_permuted(y.shape, c.shape)))
        yield output("output", {f"reshaped to {c.shape}": partial(_reshaped, c.shape)})
        return
    for axis in range(y.ndim):
        if (found := order_along(y, c, axis)) is not None:
            words = f"output channels (axis {axis})" if axis == 1 else f"output axis {axis}"
            shown = str(found[:8].tolist())
            yield output(f"{words} in the order", {shown: partial(_taken, tuple(found), axis)})


# What may be done to any array
# -----------------------------------------------------------------------------


def _changes(words: str, apply: Apply, value: np.ndarray, later: int = 0) -> Iterator[Convention]:
    """Changes of one array; of another one than the first also that it is missing."""
    yield apply(
        words, {"negated": _times(-1.0)} | ({"missing (zero)": _times(0.0)} if later else {})
    )
    if value.ndim > 2 and value.shape[1] > 1:
        backwards = {"in reverse order (RGB and BGR)": partial(_reversed, 1)}
        yield apply(f"channels of the {words}", backwards)
    if value.size > 2:
        yield _number(f"scale of {words}", apply, _times, (0.5, 2.0, 255.0, 1.0 / 255.0), 1.0)
        yield _number(f"{words} plus", apply, _plus, (1.0, -1.0), None)
    yield apply(words, dict(_permuted(value.shape, value.shape)))
    axes = [axis for axis, size in enumerate(value.shape) if size > 1]
    yield apply(words, {f"reversed along axis {axis}": partial(_reversed, axis) for axis in axes})
    yield apply(f"{words} goes through", ACTIVATIONS)
    for kind in TYPES:
        error = rounded(value, kind) - value
        yield apply(words, {f"rounded to {kind}": partial(_added, error)})
    yield apply(words, {"without a gradient": lambda nn, x: nn.stop_gradient(x)})


def _number(words: str, apply: Apply, change: Any, starts: Any, usual: Any) -> Convention:
    """A change with a number that is searched for."""
    made = apply("", {})

    def at(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return made.apply(formula, nn, given, change(value))

    return factor(words, at, alternatives=starts, usual=usual)


def _permuted(shape: tuple[int, ...], to: tuple[int, ...]) -> Iterator[tuple[str, Change]]:
    """The orders of axes that make one shape of another, but the usual one."""
    for order in list(permutations(range(len(shape))))[1:] if len(shape) <= 4 else ():
        if tuple(shape[d] for d in order) == to:
            words = "transposed" if len(order) == 2 else f"with its axes permuted to {order}"
            yield words, partial(_in_order, order)


def _times(by: float) -> Change:
    return lambda nn, x: x * by


def _plus(by: float) -> Change:
    return lambda nn, x: x + by


def _added(error: np.ndarray, nn: Any, x: Any) -> Any:
    return x + nn.constant(error, like=x)


def _one(nn: Any, x: Any) -> Any:
    return x * 0.0 + 1.0


def _in_order(order: Sequence[int], nn: Any, x: Any) -> Any:
    return nn.permute(x, order)


def _reversed(axis: int, nn: Any, x: Any) -> Any:
    return nn.flip(x, axis)


def _taken(order: Sequence[int], axis: int, nn: Any, x: Any) -> Any:
    return nn.select(x, nn.constant(np.asarray(order), like=x), axis)


def _reshaped(shape: tuple[int, ...], nn: Any, x: Any) -> Any:
    return nn.reshape(x, shape)


# What is done to the whole formula
# -----------------------------------------------------------------------------


def _computed_in(formula: Formula, nn: Any, given: Arguments, kind: str) -> Any:
    """Everything cast to a shorter type, and the outputs back."""

    def cast(to: str) -> Callable[[Any], Any]:
        return lambda x: nn.cast(x, to) if "float" in str(getattr(x, "dtype", "")) else x

    after: dict[str, Any] = {}
    short = {**nest.map(cast(kind), {**given, "after": {}}), "after": after}
    outputs = nest.map(cast("float64"), formula(nn, short))
    given["after"].update(nest.map(cast("float64"), after))
    return outputs


def _alone(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
    return formula(nn, given)


def _exchanged(formula: Formula, nn: Any, given: Arguments, pair: Sequence[str]) -> Any:
    first, second = pair
    return formula(nn, {**given, first: given[second], second: given[first]})


def _residual(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
    leaves, structure = nest.flatten(formula(nn, given))
    return nest.unflatten(structure, [leaves[0] + _x(given) * value, *leaves[1:]])


def _unchanged(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
    """The input in the place of the first output."""
    leaves, structure = nest.flatten(formula(nn, given))
    return nest.unflatten(structure, [_x(given), *leaves[1:]])


def _x(given: Arguments) -> Any:
    return next(given[name] for name in ("x", "query", "logits") if name in given)
