"""Traced programs with channels-last convolutions, as XLA's CPU kernels need them.

XLA's convolutions on a CPU want ``(batch, *positions, channels)`` and copy what comes in another
order, before and after each one. Here the output of a convolution keeps that order through all that
goes element by element, window by window or along an axis, up to the next convolution; a reduction
or an unknown operation ends it. Every value stays the same up to rounding, and whoever writes a
network sees ``(batch, channels, *positions)`` as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax

from deliralike.backends.jax.unstable import ClosedJaxpr, Literal

_ARITHMETIC = (
    "abs",
    "add",
    "clamp",
    "div",
    "integer_pow",
    "max",
    "min",
    "mul",
    "neg",
    "pow",
    "rem",
    "sign",
    "square",
    "sub",
)
_LOGIC = (
    "and",
    "eq",
    "ge",
    "gt",
    "is_finite",
    "le",
    "lt",
    "ne",
    "not",
    "or",
    "select_n",
    "xor",
)
_POWERS = ("cbrt", "exp", "exp2", "expm1", "log", "log1p", "rsqrt", "sqrt")
_CURVES = ("cos", "cosh", "erf", "erf_inv", "logistic", "sin", "sinh", "tan", "tanh")
_ROUNDING = (
    "ceil",
    "convert_element_type",
    "copy",
    "floor",
    "reduce_precision",
    "round",
)
_DEPTHWISE = ("depthwise_output", "depthwise_input", "depthwise_weight")
_BY_ELEMENT = frozenset((*_ARITHMETIC, *_LOGIC, *_POWERS, *_CURVES, *_ROUNDING))


@dataclass(frozen=True)
class ChannelsLast:
    """An array ``(batch, channels, *positions)`` that is stored with its channels last.

    The program sees it with the channels in second place.
    """

    value: Any


def channels_last(program: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The function of flat arguments that a program computes, with other orders of axes within.

    Args:
        program: Traced by ``jax.make_jaxpr``. What it calls through ``jax.jit`` is gone through as
            well; loops, branches and functions with derivatives of their own are taken as they are.
    """

    def run(*arguments: Any) -> list[Any]:
        return [*map(_channels_second, _run(program, arguments))]

    return run


def _run(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    jaxpr = program.jaxpr
    known = dict(zip(jaxpr.constvars, program.consts, strict=True))
    known.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [
            atom.val if isinstance(atom, Literal) else known[atom] for atom in atoms
        ]

    for equation in jaxpr.eqns:
        with equation.ctx.manager:
            results = _compute(equation, read(equation.invars))
        if not equation.primitive.multiple_results:
            results = [results]
        known.update(zip(equation.outvars, results, strict=True))
    return read(jaxpr.outvars)


def _compute(equation: Any, values: list[Any]) -> Any:
    name = equation.primitive.name
    if name == "jit":
        return _run(equation.params["jaxpr"], values)
    if name == "conv_general_dilated" and _is_neutral(
        equation.params["dimension_numbers"]
    ):
        x, weight = _channels_last(values[0]), _channels_second(values[1])
        return ChannelsLast(_convolve(equation, x, weight))
    are_last = [isinstance(x, ChannelsLast) for x in values]
    if name in _DEPTHWISE and any(are_last):
        return _convolve_depthwise(equation, values)
    if name == "transpose":
        return _transpose(equation, values[0])
    if name in _BY_ELEMENT and any(are_last):
        return ChannelsLast(_bind(equation, [*map(_channels_last_or_scalar, values)]))
    if name == "concatenate" and any(are_last):
        rank = len(equation.outvars[0].aval.shape)
        axis = _places(rank)[equation.params["dimension"]]
        return ChannelsLast(
            _bind(equation, [*map(_channels_last, values)], dimension=axis)
        )
    if name in _RULES and are_last[0] and not any(are_last[1:]):
        return _RULES[name](equation, values[0].value, values[1:])
    return _bind(equation, [*map(_channels_second, values)])


def _bind(equation: Any, values: Sequence[Any], **changed: Any) -> Any:
    """The outputs of an equation's operation for other values, some of its parameters changed."""
    params = equation.primitive.get_bind_params(equation.params | changed)
    return equation.primitive.bind(*values, **params)


# Orders of axes
# --------------------------------------------------------------------------------------------------


def _order(rank: int) -> tuple[int, ...]:
    """The program's axes in the order in which they are stored."""
    return (0, *range(2, rank), 1)


def _places(rank: int) -> tuple[int, ...]:
    """The place in storage of each of the program's axes."""
    return (0, rank - 1, *range(1, rank - 1))


def _in_order(items: Sequence[Any]) -> tuple[Any, ...]:
    """Items, one for each of the program's axes, in the order in which the axes are stored."""
    return tuple(items[axis] for axis in _order(len(items)))


def _channels_second(x: Any) -> Any:
    if isinstance(x, ChannelsLast):
        return lax.transpose(x.value, _places(x.value.ndim))
    return x


def _channels_last(x: Any) -> Any:
    if isinstance(x, ChannelsLast):
        return x.value
    return lax.transpose(x, _order(np.ndim(x)))


def _channels_last_or_scalar(x: Any) -> Any:
    if isinstance(x, ChannelsLast) or np.ndim(x):
        return _channels_last(x)
    return x


# Operations on one array with its channels last
# --------------------------------------------------------------------------------------------------


def _is_neutral(numbers: Any) -> bool:
    plain = tuple(range(len(numbers.lhs_spec)))
    return (
        len(plain) > 2
        and numbers.lhs_spec == numbers.rhs_spec == numbers.out_spec == plain
    )


def _convolve(equation: Any, x: Any, weight: Any) -> Any:
    params = equation.params
    if not _is_pointwise(params, weight):
        places = _places(x.ndim)
        numbers = params["dimension_numbers"]._replace(lhs_spec=places, out_spec=places)
        return _bind(equation, [x, weight], dimension_numbers=numbers)
    strides = (1, *params["window_strides"], 1)
    strided = lax.slice(x, (0,) * x.ndim, x.shape, strides)
    return lax.dot_general(
        strided,
        lax.reshape(weight, weight.shape[:2]),
        (((x.ndim - 1,), (1,)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )


def _is_pointwise(params: dict[str, Any], weight: Any) -> bool:
    """Return whether a convolution is one matrix product.

    Such a convolution needs no copy of the kernel either.
    """
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        return False
    sizes = {*weight.shape[2:], *params["lhs_dilation"]}
    return sizes == {1} and not np.any(params["padding"])


def _convolve_depthwise(equation: Any, values: list[Any]) -> Any:
    windows = replace(equation.params["windows"], channels_last=True)
    kernel_rank = len(windows.kernel) + 1
    stored = []
    for variable, x in zip(equation.invars, values, strict=True):
        is_kernel = len(variable.aval.shape) == kernel_rank
        stored.append(_channels_second(x) if is_kernel else _channels_last(x))
    result = _bind(equation, stored, windows=windows)
    return result if result.ndim == kernel_rank else ChannelsLast(result)


def _transpose(equation: Any, x: Any) -> Any:
    """Transpose by taking the array as it is stored for one in another order, where that does."""
    order = equation.params["permutation"]
    if isinstance(x, ChannelsLast):
        if order == _order(len(order)):
            return x.value
    elif len(order) > 3 and order == _places(len(order)):
        return ChannelsLast(x)
    return _bind(equation, [_channels_second(x)])


def _reduce(equation: Any, x: Any, rest: list[Any]) -> Any:
    axes = equation.params["axes"]
    places = _places(x.ndim)
    stored_axes = sorted(places[axis] for axis in axes)
    reduced = _bind(equation, [x], axes=tuple(stored_axes))
    left = [axis for axis in _order(x.ndim) if axis not in axes]
    return lax.transpose(reduced, tuple(np.argsort(left)))


def _per_axis(*names: str) -> Callable[[Any, Any, list[Any]], Any]:
    """The rule of an operation with parameters of as many items as the array has axes."""

    def rule(equation: Any, x: Any, rest: list[Any]) -> Any:
        changed = {}
        for name in names:
            if equation.params[name] is not None:
                changed[name] = _in_order(equation.params[name])
        return ChannelsLast(_bind(equation, [x, *rest], **changed))

    return rule


def _split(equation: Any, x: Any, rest: list[Any]) -> list[ChannelsLast]:
    axis = _places(x.ndim)[equation.params["axis"]]
    return [*map(ChannelsLast, _bind(equation, [x], axis=axis))]


def _reverse(equation: Any, x: Any, rest: list[Any]) -> ChannelsLast:
    places = _places(x.ndim)
    dimensions = tuple(places[axis] for axis in equation.params["dimensions"])
    return ChannelsLast(_bind(equation, [x], dimensions=dimensions))


def _broadcast(equation: Any, x: Any, rest: list[Any]) -> Any:
    shape, dimensions = (
        equation.params["shape"],
        equation.params["broadcast_dimensions"],
    )
    if dimensions != tuple(range(len(shape))):
        return _bind(equation, [_channels_second(ChannelsLast(x)), *rest])
    return ChannelsLast(_bind(equation, [x, *rest], shape=_in_order(shape)))


_RULES: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    **dict.fromkeys(
        (
            "reduce_sum",
            "reduce_max",
            "reduce_min",
            "reduce_prod",
            "reduce_and",
            "reduce_or",
        ),
        _reduce,
    ),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"),
        _per_axis(
            "window_dimensions",
            "window_strides",
            "padding",
            "base_dilation",
            "window_dilation",
        ),
    ),
    "pad": _per_axis("padding_config"),
    "slice": _per_axis("start_indices", "limit_indices", "strides"),
    "split": _split,
    "rev": _reverse,
    "broadcast_in_dim": _broadcast,
}
