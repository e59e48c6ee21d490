"""Check one operation of `nn` on all backends that have it: values, and gradients."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance.findings import is_array
from deliralike.conformance.kinds import Function
from deliralike.conformance.observe.raised import in_words
from deliralike.conformance.suite.comparing import Disagreement, native
from deliralike.conformance.suite.rows import Row
from deliralike.errors import CapabilityError, ProofFailed, UnknownOperation
from deliralike.nn.operations import registered

_SHAPE = (3, 5, 7)  # of arguments that are not given
_MEANT = (
    " Where the gradient is meant to be another than the derivative, such as straight-through, say "
    "which: gradient=lambda cotangent, *inputs: ..."
)


def check_operation(
    name: str,
    *inputs: Any,
    reference: Function | None = None,
    gradient: Function | None = None,
    on: Sequence[str] | None = None,
    **settings: Any,
) -> tuple[str, ...]:
    """Check an operation of `nn` in float64 on every backend that has it.

    The results of all backends must agree to 1e-10 (relative, L2), gradients with respect to
    floating arrays must agree with finite differences to 1e-7, in whatever way arrays lie in memory,
    and no argument may be changed. At a kink, such as that of ReLU at 0, finite differences say
    nothing: give inputs away from it.

    Args:
        name: The name in `nn`: an operation of `deliralike.nn.register`, or any other function
            that gives an array or several.
        inputs: The arguments by position: NumPy arrays, nests of them, and anything else. Normal
            arrays of shape (3, 5, 7) for all that are required when none are given.
        reference: A function of the same arguments in NumPy, for an independent answer; the first
            backend when None.
        gradient: Of an operation whose gradient is meant to be another than its derivative, such as
            straight-through: ``gradient(cotangent, *inputs)`` in NumPy gives the gradient with
            respect to each argument (the gradient itself where there is one argument) for that of
            the result.
        on: The names of backends; all that are installed and have the operation when None.
        settings: The arguments by name.

    Returns:
        The names of the backends.

    Raises:
        ProofFailed: Results or gradients differ, or an argument was changed; names the backend and
            the array.
        UnknownOperation: `nn` has no such name.
        CapabilityError: A backend that is named does not have the operation, or none has it.

    Example:
        >>> from deliralike import nn
        >>> operation = nn.register("cube", torch=lambda x: x**3, jax=lambda x: x * x * x)
        >>> check_operation("cube")
        ('torch', 'jax')
        >>> slope = lambda cotangent, x: cotangent * 3 * x**2
        >>> check_operation("cube", gradient=slope)
        ('torch', 'jax')
    """
    names = tuple(on or _backends_with(name))
    if not names:
        raise CapabilityError(
            f"no backend that is installed here has the operation {name!r}"
        )
    inputs = inputs or _drawn(getattr(backends.get(names[0]).nn, name))

    def call(network: Any, *arguments: Any) -> Any:
        return getattr(network.nn, name)(*arguments, **settings)

    def answer(*arguments: Any) -> Any:
        if reference is not None:
            return reference(*arguments, **settings)
        return _on_host(backends.get(names[0]), call, arguments)

    row = Row(name, call, answer, inputs, {}, differentiable=False)
    row.differentiable = all(y.dtype.kind == "f" for y in row.answers)
    if gradient is not None:
        slopes = gradient(*row.cotangents, *inputs, **settings)
        row.slopes = nest.leaves((slopes,) if len(inputs) == 1 else tuple(slopes))
    for backend_name in names:
        try:
            row(backends.get(backend_name))
        except Exception as error:
            text = str(error) if isinstance(error, Disagreement) else in_words(error)
            meant = _MEANT if "gradient of" in text and gradient is None else ""
            raise ProofFailed(f"{name} on {backend_name}: {text}.{meant}") from error
    return names


def _on_host(backend: Any, call: Function, arguments: Sequence[Any]) -> Any:
    """What a backend gives for host arrays, as host arrays."""
    given = nest.map_where(is_array, partial(native, backend), arguments)
    with backend.evaluating():
        return backend.to_numpy(call(backend, *given))


def _backends_with(name: str) -> list[str]:
    """Return the names of the installed backends that have an operation.

    Raises:
        UnknownOperation: `nn` has no such name.
    """
    operation = registered(name)
    names = []
    for backend_name in backends.available():
        backend = backends.get(backend_name)
        if operation is None and name not in dir(backend.nn):
            raise UnknownOperation(
                f"nn has no {name!r}: register it, deliralike.nn.register"
            )
        if name not in backend.lacks and (
            operation is None or operation.has(backend_name)
        ):
            names.append(backend_name)
    return names


def _drawn(function: Function) -> tuple[np.ndarray, ...]:
    """Return a normal array for each argument that a function requires."""
    generator = np.random.default_rng(0)
    arrays = []
    for parameter in inspect.signature(function).parameters.values():
        is_positional = parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        )
        if is_positional and parameter.default is parameter.empty:
            arrays.append(generator.standard_normal(_SHAPE))
    return tuple(arrays)
