"""Causes that any block may have: its inputs, weights or outputs are changed before or after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain import calls
from deliralike.conformance.explain.pointwise import ACTIVATIONS
from deliralike.conformance.explain.relations import order_along, rounded
from deliralike.conformance.explain.variant import Call, Formula, Variant, Variants, number
from deliralike.conformance.findings import Accused

_APPLIED = {word: function for word, function in ACTIVATIONS.items() if word != "identity"}
_BILINEAR = (
    "Conv",
    "Linear",
)  # where what is done to the input may as well have been done to the weight

Change = Callable[[Any, Any], Any]  # of `nn` and one array


def around(accused: Accused, formula: Formula) -> Variants:
    """Yield the block's own formula with changed weights, inputs or outputs, the likely ones first."""
    for kind in ("float32", "float16", "bfloat16"):
        yield Variant(f"computed in {kind}", partial(_computed_in, kind, formula))
    if (
        accused.reference.parameters
    ):  # in the reference they come from all the places that share a parameter
        yield Variant(
            "gradients of this layer's own use alone: those of what is tied to it do not arrive",
            formula,
        )
    yield from _inputs(
        accused, formula
    )  # before the weights, to which what is done to an input may be equal
    yield from _weights(accused, formula)
    yield from _outputs(accused, formula)


def _weights(accused: Accused, formula: Formula) -> Variants:
    arrays = {
        name: value for name, value in accused.state.items() if name in accused.reference.parameters
    }
    for name, value in arrays.items():
        run = partial(_with_weight, formula, name)
        yield Variant(
            f"{name} missing" if "bias" in name else f"{name} without effect",
            partial(run, _times(0.0)),
        )
        if value.ndim == 1:
            yield Variant(
                f"{name} added twice" if "bias" in name else f"{name} doubled",
                partial(run, _times(2.0)),
            )
            if name == "weight":
                yield Variant(
                    "weight taken for one (no scale)", partial(run, lambda nn, x: x * 0.0 + 1.0)
                )
                yield Variant(
                    "no scale and shift (weight one, bias missing)", partial(_plain, formula)
                )
        yield Variant(f"{name} negated", partial(run, _times(-1.0)))
        if value.size > 2:
            yield Variant(_times_cause(name), _scaling(run), (0.5, 2.0))
            yield Variant(f"{name} plus {{}}", _shifting(run), (1.0, -1.0))
        for order in _orders(value.shape):
            word = "transposed" if len(order) == 2 else f"with its axes permuted to {order}"
            yield Variant(f"{name} {word}", partial(run, _permuted(order)))
        for axis in [axis for axis in range(value.ndim) if value.shape[axis] > 1]:
            yield Variant(f"{name} reversed along axis {axis}", partial(run, _reversed(axis)))
        for kind in ("float32", "float16", "bfloat16"):
            yield Variant(f"{name} rounded to {kind}", partial(run, _rounded(value, kind)))
            yield Variant(f"{name} rounded to {kind}, and its gradient", partial(run, _cast(kind)))
        if value.ndim > 1:
            yield Variant(f"{name} standardised for each output", partial(run, _standardised))
        yield Variant(f"{name} without a gradient", partial(run, lambda nn, x: nn.stop_gradient(x)))
    pairs = [(a, b) for a in arrays for b in arrays if a < b and arrays[a].shape == arrays[b].shape]
    for first, second in pairs[:12]:
        yield Variant(
            f"{first} and {second} exchanged", partial(_exchanged, formula, first, second)
        )


def _inputs(accused: Accused, formula: Formula) -> Variants:
    names = calls.names_of(accused.kind)
    leaves = [(path, leaf) for path, leaf in nest.leaves_with_paths(tuple(accused.args), "args")]
    for position, (path, leaf) in enumerate(leaves):
        if not isinstance(leaf, np.ndarray) or leaf.dtype.kind != "f":
            continue
        name = "input" if position == 0 else names.get(path, path)
        either = (
            "input (or weight)" if position == 0 and accused.kind.startswith(_BILINEAR) else name
        )
        run = partial(_with_input, formula, position)
        if position:
            yield Variant(f"{name} missing (zero)", partial(run, _times(0.0)))
        yield Variant(_times_cause(either), _scaling(run), (0.5, 2.0, 255.0, 1.0 / 255.0))
        yield Variant(f"{name} plus {{}}", _shifting(run), (1.0, -1.0))
        for order in _orders(leaf.shape):
            yield Variant(
                f"{name} with its axes permuted to {order}", partial(run, _permuted(order))
            )
        for axis in [axis for axis in range(leaf.ndim) if leaf.shape[axis] > 1]:
            channels = f"channels of the {either} in reverse order (RGB and BGR)"
            word = (
                channels if axis == 1 and leaf.ndim > 2 else f"{either} reversed along axis {axis}"
            )
            yield Variant(word, partial(run, _reversed(axis)))
        if leaf.ndim > 1 and 2 < leaf.shape[1] <= 4:
            for order in permutations(range(leaf.shape[1])):
                yield Variant(
                    f"channels of the {either} in the order {order}", partial(run, _taken(order, 1))
                )
        for kind in ("float32", "float16", "bfloat16"):
            yield Variant(f"{name} rounded to {kind}", partial(run, _rounded(leaf, kind)))
            yield Variant(f"{name} rounded to {kind}, and its gradient", partial(run, _cast(kind)))
        for word, function in _APPLIED.items():
            yield Variant(f"{word} applied to the {name}", partial(run, function))
        if leaf.ndim > 1:
            for centred, eps in ((True, 1e-5), (True, 0.0), (False, 0.0), (False, 1e-5)):
                how = (
                    "standardised"
                    if centred
                    else "divided by its deviation, not centred (standardised in part)"
                )
                yield Variant(
                    f"{name} {how} for each channel", partial(run, _per_channel(centred, eps))
                )
            yield Variant(f"{name} standardised for each sample", partial(run, _standardised))
        yield Variant(f"{name} without a gradient", partial(run, lambda nn, x: nn.stop_gradient(x)))


def _outputs(accused: Accused, formula: Formula) -> Variants:
    outputs = [leaf for leaf in nest.leaves(accused.reference.outputs) if leaf is not None]
    wanted = [leaf for leaf in nest.leaves(accused.candidate.outputs) if leaf is not None]
    if not outputs or not wanted:
        return
    y, c = np.asarray(outputs[0]), np.asarray(wanted[0])
    run = partial(_with_output, formula)
    first = accused.args[0] if accused.args else None
    if isinstance(first, np.ndarray) and first.shape == c.shape and first.dtype.kind == "f":
        yield Variant(
            "does nothing: the input unchanged",
            lambda call: _first_replaced(formula(call), call.args[0]),
        )
        yield Variant(
            "the input added to the output times {}",
            lambda call, value: _first_replaced(
                (done := formula(call)), _first(done) + call.args[0] * value
            ),
            (1.0, -1.0),
        )
        yield Variant(
            "gradient of the identity (straight through)", partial(_straight_through, formula)
        )
    yield Variant("output zero", partial(run, _times(0.0)))
    if y.size > 2:
        yield Variant(_times_cause("output"), _scaling(run), (0.5, 2.0, -1.0))
        yield Variant("output plus {}", _shifting(run), (1.0, -1.0))
    for word, function in _APPLIED.items():
        yield Variant(f"{word} applied to the output", partial(run, function))
    for axis in range(y.ndim):
        yield Variant(
            f"softmax over axis {axis} applied to the output", partial(run, _softmaxed(axis))
        )
        if y.shape[axis] > 1:
            channels = (
                "output channels in reverse order"
                if axis == 1
                else f"output reversed along axis {axis}"
            )
            yield Variant(channels, partial(run, _reversed(axis)))
    for order in permutations(range(y.ndim)) if y.ndim <= 4 else ():
        if order != tuple(range(y.ndim)) and tuple(y.shape[d] for d in order) == c.shape:
            yield Variant(
                f"output with its axes permuted to {order}", partial(run, _permuted(order))
            )
    if y.shape != c.shape:
        if y.size == c.size:
            yield Variant(
                f"output reshaped to {c.shape}", partial(run, lambda nn, x: nn.reshape(x, c.shape))
            )
        return
    for axis in range(y.ndim):
        if (found := order_along(y, c, axis)) is not None:
            shown = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
            word = f"output channels (axis {axis})" if axis == 1 else f"output with axis {axis}"
            yield Variant(
                f"{word} in the order [{shown}]", partial(run, _taken(tuple(found), axis))
            )
    low, high = float(c.min()), float(c.max())
    if y.size > 2:  # bounds fit any one number
        yield Variant(
            f"output clipped to [{low:g}, {high:g}]",
            partial(run, lambda nn, x: nn.clip(x, low, high)),
        )
    for kind in ("float32", "float16", "bfloat16"):
        yield Variant(f"output rounded to {kind}", partial(run, _rounded(y, kind)))
        yield Variant(f"output rounded to {kind}, and its gradient", partial(run, _cast(kind)))
    yield Variant("output without a gradient", partial(run, lambda nn, x: nn.stop_gradient(x)))


def _times_cause(name: str) -> Callable[[float], str]:
    return lambda value: (
        f"{name} negated"
        if value == -1.0
        else f"{name} scaled: times {number(value)}{_named(value)}"
    )


def _named(value: float) -> str:
    """What a factor may stand for."""
    known = {
        "1/log(2), a logarithm to base 2": 1.0 / np.log(2.0),
        "log(2)": np.log(2.0),
        "1/sqrt(2)": 0.5**0.5,
        "sqrt(2)": 2.0**0.5,
        "6": 6.0,
        "1/log(10), a logarithm to base 10": 1.0 / np.log(10.0),
    }
    return next(
        (f" ({word})" for word, exact in known.items() if abs(value / exact - 1.0) < 1e-9), ""
    )


# Running the formula with one thing changed
# -----------------------------------------------------------------------------


def _with_weight(formula: Formula, name: str, change: Change, call: Call) -> Any:
    return formula(call.but(weights={**call.weights, name: change(call.nn, call.weights[name])}))


def _plain(formula: Formula, call: Call) -> Any:
    """Without what is learned by channel."""
    w = call.weights
    weights = {
        name: w[name] * 0.0 + float(name == "weight") for name in ("weight", "bias") if name in w
    }
    return formula(call.but(weights={**w, **weights}))


def _exchanged(formula: Formula, first: str, second: str, call: Call) -> Any:
    w = call.weights
    return formula(call.but(weights={**w, first: w[second], second: w[first]}))


def _with_input(formula: Formula, position: int, change: Change, call: Call) -> Any:
    leaves, structure = nest.flatten(call.args)
    old, leaves = leaves[position], list(leaves)
    new = change(call.nn, old)
    leaves = [
        new if leaf is old else leaf for leaf in leaves
    ]  # the same array may come several times
    return formula(call.but(args=nest.unflatten(structure, leaves)))


def _with_output(formula: Formula, change: Change, call: Call) -> Any:
    outputs = formula(call)
    return _first_replaced(outputs, change(call.nn, _first(outputs)))


def _straight_through(formula: Formula, call: Call) -> Any:
    outputs, x = formula(call), call.args[0]
    return _first_replaced(
        outputs, call.nn.stop_gradient(_first(outputs)) + x - call.nn.stop_gradient(x)
    )


def _first(outputs: Any) -> Any:
    return nest.leaves(outputs)[0]


def _first_replaced(outputs: Any, by: Any) -> Any:
    leaves, structure = nest.flatten(outputs)
    return nest.unflatten(structure, [by, *leaves[1:]])


# What is done to one array
# -----------------------------------------------------------------------------


def _scaling(run: Callable[..., Any]) -> Formula:
    return lambda call, value: run(_times(value), call)


def _shifting(run: Callable[..., Any]) -> Formula:
    return lambda call, value: run(lambda nn, x: x + value, call)


def _times(by: float) -> Change:
    return lambda nn, x: x * by


def _permuted(order: tuple[int, ...]) -> Change:
    return lambda nn, x: nn.permute(x, order)


def _reversed(axis: int) -> Change:
    return lambda nn, x: nn.flip(x, axis)


def _taken(order: tuple[int, ...], axis: int) -> Change:
    return lambda nn, x: nn.select(x, nn.constant(np.asarray(order), like=x), axis)


def _softmaxed(axis: int) -> Change:
    return lambda nn, x: nn.softmax(x, axis)


def _rounded(value: np.ndarray, kind: str) -> Change:
    """Rounding as a constant that is added, since it has the gradient of the identity."""
    error = rounded(value, kind) - value
    return lambda nn, x: x + nn.constant(error, like=x)


def _cast(kind: str) -> Change:
    return lambda nn, x: nn.cast(nn.cast(x, kind), "float64")


def _computed_in(kind: str, formula: Formula, call: Call) -> Any:
    """Everything cast to a shorter type, and the outputs back."""

    def cast(x: Any, to: str) -> Any:
        return call.nn.cast(x, to) if "float" in str(getattr(x, "dtype", "")) else x

    weights, args, kwargs = nest.map(
        lambda x: cast(x, kind), (dict(call.weights), call.args, dict(call.kwargs))
    )
    outputs = formula(call.but(weights=weights, args=args, kwargs=kwargs))
    call.after.update({name: cast(value, "float64") for name, value in call.after.items()})
    return nest.map(lambda x: cast(x, "float64"), outputs)


def _standardised(nn: Any, x: Any) -> Any:
    dims = tuple(range(1, len(x.shape)))
    return (x - nn.mean(x, dims, keepdim=True)) / nn.sqrt(nn.var(x, dims, keepdim=True) + 1e-5)


def _per_channel(centred: bool, eps: float) -> Change:
    def change(nn: Any, x: Any) -> Any:
        dims = (0, *range(2, len(x.shape)))
        deviation = nn.sqrt(nn.var(x, dims, keepdim=True) + eps)
        return (x - nn.mean(x, dims, keepdim=True) if centred else x) / deviation

    return change


def _orders(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The orders of axes that leave a shape as it is."""
    if len(shape) <= 4:
        for order in permutations(range(len(shape))):
            if order != tuple(range(len(shape))) and tuple(shape[d] for d in order) == shape:
                yield order
