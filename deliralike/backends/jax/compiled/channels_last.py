"""Traced programs with channels-last convolutions, as XLA's CPU kernels need them.

XLA's convolutions on a CPU want ``(batch, *positions, channels)`` and copy what comes in another
order, before and after each one. Here the output of a convolution keeps that order through all that
goes element by element, window by window or along an axis, up to the next convolution; a reduction
or an unknown operation ends it. Every value stays the same up to rounding, and whoever writes a
network sees ``(batch, channels, *positions)`` as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

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
_LOGIC = ("and", "eq", "ge", "gt", "is_finite", "le", "lt", "ne", "not", "or", "select_n", "xor")
_POWERS = ("cbrt", "exp", "exp2", "expm1", "log", "log1p", "rsqrt", "sqrt")
_CURVES = ("cos", "cosh", "erf", "erf_inv", "logistic", "sin", "sinh", "tan", "tanh")
_ROUNDING = ("ceil", "convert_element_type", "copy", "floor", "reduce_precision", "round")
_BY_ELEMENT = frozenset((*_ARITHMETIC, *_LOGIC, *_POWERS, *_CURVES, *_ROUNDING))


@dataclass(frozen=True)
class Last:
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
    return lambda *arguments: [_first(x) for x in _run(program, arguments)]


def _run(program: ClosedJaxpr, arguments: Sequence[Any]) -> list[Any]:
    jaxpr = program.jaxpr
    known = dict(zip(jaxpr.constvars, program.consts, strict=True)) | dict(
        zip(jaxpr.invars, arguments, strict=True)
    )

    def read(atoms: Sequence[Any]) -> list[Any]:
        return [atom.val if isinstance(atom, Literal) else known[atom] for atom in atoms]

    for equation in jaxpr.eqns:
        with equation.ctx.manager:
            found = _compute(equation, read(equation.invars))
        known.update(
            zip(
                equation.outvars,
                found if equation.primitive.multiple_results else [found],
                strict=True,
            )
        )
    return read(jaxpr.outvars)


def _compute(equation: Any, values: list[Any]) -> Any:
    name = equation.primitive.name
    if name == "jit":
        return _run(equation.params["jaxpr"], values)
    if name == "conv_general_dilated" and _is_neutral(equation.params["dimension_numbers"]):
        return Last(_convolved(equation, _last(values[0]), _first(values[1])))
    last = [isinstance(x, Last) for x in values]
    if name in _BY_ELEMENT and any(last):
        return Last(
            _bound(equation, [_last(x) if isinstance(x, Last) or np.ndim(x) else x for x in values])
        )
    if name == "concatenate" and any(last):
        axis = _places(len(equation.outvars[0].aval.shape))[equation.params["dimension"]]
        return Last(_bound(equation, [_last(x) for x in values], dimension=axis))
    if name in _RULES and last[0] and not any(last[1:]):
        return _RULES[name](equation, values[0].value, values[1:])
    return _bound(equation, [_first(x) for x in values])


def _bound(equation: Any, values: Sequence[Any], **changed: Any) -> Any:
    """What an equation's operation gives for other values, some of its parameters changed."""
    return equation.primitive.bind(
        *values, **equation.primitive.get_bind_params(equation.params | changed)
    )


# Orders of axes
# --------------------------------------------------------------------------------------------------


def _order(rank: int) -> tuple[int, ...]:
    """Which axis of the program's comes where."""
    return (0, *range(2, rank), 1)


def _places(rank: int) -> tuple[int, ...]:
    """Where each axis of the program's has gone."""
    return (0, rank - 1, *range(1, rank - 1))


def _first(x: Any) -> Any:
    return lax.transpose(x.value, _places(x.value.ndim)) if isinstance(x, Last) else x


def _last(x: Any) -> Any:
    return x.value if isinstance(x, Last) else lax.transpose(x, _order(np.ndim(x)))


# Operations on one array with its channels last
# -----------------------------------------------------------------------


def _is_neutral(numbers: Any) -> bool:
    plain = tuple(range(len(numbers.lhs_spec)))
    return len(plain) > 2 and numbers.lhs_spec == numbers.rhs_spec == numbers.out_spec == plain


def _convolved(equation: Any, x: Any, weight: Any) -> Any:
    params = equation.params
    if not _is_pointwise(params, weight):
        places = _places(x.ndim)
        return _bound(
            equation,
            [x, weight],
            dimension_numbers=params["dimension_numbers"]._replace(
                lhs_spec=places, out_spec=places
            ),
        )
    thinned = lax.slice(x, (0,) * x.ndim, x.shape, (1, *params["window_strides"], 1))
    return lax.dot_general(
        thinned,
        lax.reshape(weight, weight.shape[:2]),
        (((x.ndim - 1,), (1,)), ((), ())),
        precision=params["precision"],
        preferred_element_type=params["preferred_element_type"],
    )


def _is_pointwise(params: dict[str, Any], weight: Any) -> bool:
    """Return whether a convolution is one matrix product.

    Such a convolution needs no copy of the kernel either.
    """
    one_by_one = all(size == 1 for size in (*weight.shape[2:], *params["lhs_dilation"]))
    whole = params["feature_group_count"] == params["batch_group_count"] == 1
    return one_by_one and whole and not np.any(params["padding"])


def _reduced(equation: Any, x: Any, rest: list[Any]) -> Any:
    axes = equation.params["axes"]
    reduced = _bound(equation, [x], axes=tuple(sorted(_places(x.ndim)[axis] for axis in axes)))
    left = [axis for axis in _order(x.ndim) if axis not in axes]
    return lax.transpose(reduced, tuple(np.argsort(left)))


def _per_axis(*names: str) -> Callable[[Any, Any, list[Any]], Any]:
    """The rule of an operation with parameters of as many items as the array has axes."""

    def rule(equation: Any, x: Any, rest: list[Any]) -> Any:
        given = {name: equation.params[name] for name in names if equation.params[name] is not None}
        order = _order(x.ndim)
        return Last(
            _bound(
                equation,
                [x, *rest],
                **{name: tuple(of[i] for i in order) for name, of in given.items()},
            )
        )

    return rule


def _split(equation: Any, x: Any, rest: list[Any]) -> list[Last]:
    return [
        Last(part) for part in _bound(equation, [x], axis=_places(x.ndim)[equation.params["axis"]])
    ]


def _reversed(equation: Any, x: Any, rest: list[Any]) -> Last:
    return Last(
        _bound(
            equation,
            [x],
            dimensions=tuple(_places(x.ndim)[i] for i in equation.params["dimensions"]),
        )
    )


def _broadcast(equation: Any, x: Any, rest: list[Any]) -> Any:
    shape, dimensions = equation.params["shape"], equation.params["broadcast_dimensions"]
    if dimensions != tuple(range(len(shape))):
        return _bound(equation, [_first(Last(x)), *rest])
    return Last(_bound(equation, [x, *rest], shape=tuple(shape[i] for i in _order(x.ndim))))


_RULES: dict[str, Callable[[Any, Any, list[Any]], Any]] = {
    **dict.fromkeys(
        ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or"),
        _reduced,
    ),
    **dict.fromkeys(
        ("reduce_window_sum", "reduce_window_max", "reduce_window_min"),
        _per_axis(
            "window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation"
        ),
    ),
    "pad": _per_axis("padding_config"),
    "slice": _per_axis("start_indices", "limit_indices", "strides"),
    "split": _split,
    "rev": _reversed,
    "broadcast_in_dim": _broadcast,
}
