"""Conventions that any block may have: an input, a weight or the output is changed around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain import changes
from deliralike.conformance.explain.activations import ACTIVATIONS
from deliralike.conformance.explain.arguments import names
from deliralike.conformance.explain.convention import (
    Arguments,
    Change,
    Convention,
    Formula,
    array,
    factor,
    output,
    rules,
    with_first,
)
from deliralike.conformance.explain.enumeration import other_axes
from deliralike.conformance.findings import FailingBlock, is_floating
from deliralike.conformance.kinds import Shape

Apply = Callable[..., Convention]  # the words and the changes of one array

# Where what is done to the input may as well have been done to the weight.
_BILINEAR = ("Conv", "Linear", "conv", "linear")


def generic_conventions(
    accused: FailingBlock, given: Arguments
) -> Iterator[Convention]:
    """Conventions for a block's own formula, the likely ones first."""
    if (
        accused.reference.parameters
    ):  # in the reference they come from all places that share one
        words = "this layer's own use alone: those of what is tied to it do not arrive"
        yield rules("gradients of", {words: {}})
    weights = [name for name in accused.reference.parameters if name in given]
    for name in weights:
        missing = "missing" if "bias" in name else "without effect"
        yield array(name, name, {missing: changes.times(0.0)})
    inputs = [name for name in names(accused.kind) if name not in weights]
    for place, name in enumerate([*inputs, *weights]):
        if is_floating(given.get(name)):
            words = name
            if not place:
                is_bilinear = accused.kind.startswith(_BILINEAR)
                words = "input (or weight)" if is_bilinear else "input"
            yield from _changes(
                words,
                lambda words, ways, at=name: array(words, at, ways),
                given[name],
                place,
            )
    yield from _outputs(accused)


def _outputs(accused: FailingBlock) -> Iterator[Convention]:
    """Changes of the first output."""
    sides = (accused.reference, accused.candidate)
    own, other = (next(iter(nest.leaves(side.outputs)), None) for side in sides)
    if own is None:
        return
    y = np.asarray(own)
    c = (
        y if other is None else np.asarray(other)
    )  # what follows from an output may be known alone
    first: Any = next(iter(accused.args), None)
    if is_floating(first) and first.shape == c.shape:
        yield Convention("does nothing:", {"the input unchanged": None}, _unchanged)
    yield from _changes("output", output, y)
    if y.shape != c.shape:
        yield output("output", dict(_permuted(y.shape, c.shape)))
        yield output("output", {f"reshaped to {c.shape}": changes.reshaped(c.shape)})
        return


# What may be done to any array
# -----------------------------------------------------------------------------


def _changes(
    words: str, apply: Apply, value: np.ndarray, later: int = 0
) -> Iterator[Convention]:
    """Changes of one array; of another one than the first also that it is missing."""
    ways = {"negated": changes.times(-1.0)}
    if later:
        ways["missing (zero)"] = changes.times(0.0)
    yield apply(words, ways)
    if value.ndim > 2 and value.shape[1] > 1:
        backwards = {"in reverse order (RGB and BGR)": changes.flipped(1)}
        yield apply(f"channels of the {words}", backwards)
    if value.size > 2:
        starts = (0.5, 2.0, 255.0, 1.0 / 255.0)
        yield _number(f"scale of {words}", apply, changes.times, starts, 1.0)
        yield _number(f"{words} plus", apply, changes.plus, (1.0, -1.0), None)
    moved = dict(_permuted(value.shape, value.shape))
    for axis, size in enumerate(value.shape):
        if size > 1:
            moved[f"reversed along axis {axis}"] = changes.flipped(axis)
    moved["without a gradient"] = changes.without_gradient
    yield apply(words, moved)
    yield apply(f"{words} goes through", ACTIVATIONS)


def _number(
    words: str, apply: Apply, change: Any, starts: Any, usual: Any
) -> Convention:
    """A change with a number that is searched for."""
    execute = apply("", {}).apply

    def at(formula: Formula, nn: Any, given: Arguments, value: float) -> Any:
        return execute(formula, nn, given, change(value))

    return factor(words, at, alternatives=starts, usual=usual)


def _permuted(shape: Shape, to: Shape) -> Iterator[tuple[str, Change]]:
    """The orders of axes that make one shape of another, but the usual one."""
    for order in other_axes(shape, most=4):
        if tuple(shape[axis] for axis in order) == to:
            if len(order) == 2:
                words = "transposed"
            else:
                words = f"with its axes permuted to {order}"
            yield words, changes.permuted(order)


# What is done to the whole formula
# -----------------------------------------------------------------------------


def _unchanged(formula: Formula, nn: Any, given: Arguments, value: None) -> Any:
    """The input in the place of the first output."""
    return with_first(formula(nn, given), lambda y: _x(given))


def _x(given: Arguments) -> Any:
    return next(given[name] for name in ("x", "query", "logits") if name in given)
