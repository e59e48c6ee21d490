"""Check one operation of `nn` on all backends that have it: values, and gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import LIMIT, has_floats, is_floating
from deliralike.conformance.finite_differences import differences
from deliralike.errors import CapabilityError, ProofFailed, UnknownOperation
from deliralike.network.base import Network
from deliralike.nn.operations import registered

_SHAPE = (3, 5, 7)  # of arguments that are not given
_STEP = 1e-5  # of finite differences
_OF_GRADIENTS = 1e-6  # the limit where these are the answer
_MEANT = (
    ": the finite differences of its own results. Where it is meant to be another gradient than the "
    "derivative, such as straight-through, say which: gradient=lambda cotangent, *inputs: ..."
)


@dataclass(frozen=True)
class OperationCheck:
    """The result of a check that has passed.

    Attributes:
        name: The operation's name.
        values: The largest relative difference (L2) of a backend's results to the reference, by
            backend. The first backend is the reference where no other was given.
        gradients: The largest relative difference (L2) of a backend's gradients to those of
            `gradient`, or else to finite differences of its own results, by backend; nothing where
            no result is floating.
    """

    name: str
    values: dict[str, float]
    gradients: dict[str, float]

    def __str__(self) -> str:
        """Return a line for each backend."""
        lines = [f"{self.name}: relative differences in float64"]
        for backend, value in self.values.items():
            line = f"  {backend}: values {value:.1e}"
            if backend in self.gradients:
                line += f", gradients {self.gradients[backend]:.1e}"
            lines.append(line)
        return "\n".join(lines)


class _Call(Network):
    """The operation as a network."""

    def __init__(self, operation: str, settings: dict[str, Any]) -> None:
        super().__init__()
        self.operation = operation
        self.settings = settings

    def forward(self, *inputs: Any) -> Any:
        return getattr(self.nn, self.operation)(*inputs, **self.settings)


def check_operation(
    name: str,
    *inputs: Any,
    reference: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    on: Sequence[str] | None = None,
    **settings: Any,
) -> OperationCheck:
    """Check an operation of `nn` in float64 on every backend that has it.

    The results of all backends must agree to 1e-10 (relative, L2), gradients with respect to
    floating arrays must agree with finite differences to 1e-6, and no argument may be changed. At a
    kink, such as that of ReLU at 0, finite differences say nothing: give inputs away from it.

    Args:
        name: The name in `nn`: an operation of `deliralike.nn.register`, or any other function.
        inputs: The arguments by position: NumPy arrays, nests of them, and anything else. Normal
            arrays of shape (3, 5, 7) for all that are required when none are given.
        reference: A function of the same arguments in NumPy, for an independent answer; the first
            backend when None.
        gradient: Of an operation whose gradient is meant to be another than its derivative, such as
            straight-through: ``gradient(cotangent, *inputs)`` in NumPy gives the gradient with
            respect to each argument (the gradient itself where there is one argument) for that of
            the result. Gradients must agree with it to 1e-10.
        on: The names of backends; all that are installed and have the operation when None.
        settings: The arguments by name.

    Raises:
        ProofFailed: Results or gradients differ, or an argument was changed; names the backend and
            the array.
        UnknownOperation: `nn` has no such name.
        CapabilityError: A backend that is named does not have the operation, or none has it.

    Example:
        >>> from deliralike import nn
        >>> operation = nn.register("cube", torch=lambda x: x**3, jax=lambda x: x * x * x)
        >>> list(check_operation("cube").values)
        ['torch', 'jax']
        >>> slope = lambda cotangent, x: cotangent * 3 * x**2
        >>> list(check_operation("cube", gradient=slope).gradients)
        ['torch', 'jax']
    """
    names = list(on or _backends_with(name))
    if not names:
        raise CapabilityError(
            f"no backend that is installed here has the operation {name!r}"
        )
    inputs = inputs or _drawn(getattr(backends.get(names[0]).nn, name))
    wanted = None
    if reference is not None:
        wanted = reference(*inputs, **settings)
    values, gradients = {}, {}
    for backend_name in names:
        network = _Call.on(backend_name, dtype="float64")(name, settings)
        results = _results(network, inputs)
        if wanted is None:
            wanted = results
        values[backend_name] = _require(network, "result", wanted, results, LIMIT)
        if any(is_floating(leaf) for leaf in nest.leaves(results)):
            found = network.backend.gradients(_loss, network, *inputs).inputs
            if gradient is None:
                expected, limit = _finite_differences(network, inputs), _OF_GRADIENTS
            else:
                expected, limit = (
                    gradient(_cotangents(results), *inputs, **settings),
                    LIMIT,
                )
                expected = (expected,) if len(inputs) == 1 else tuple(expected)
            gradients[backend_name] = _require(
                network, "gradient", expected, found, limit
            )
    return OperationCheck(name, values, gradients)


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


def _drawn(function: Callable[..., Any]) -> tuple[np.ndarray, ...]:
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


def _results(network: Any, inputs: Sequence[Any]) -> Any:
    """Return the results for host arrays, as host arrays.

    Raises:
        ProofFailed: An argument is another one afterwards.
    """
    backend = network.backend
    with backend.evaluating():
        native = backend.prepare(tuple(inputs), network)
        before = backend.to_numpy(native)
        results = network(*native)
    _require(network, "after the call, argument", before, backend.to_numpy(native), 0.0)
    return backend.to_numpy(results)


def _loss(network: Any, *inputs: Any) -> Any:
    """The floating results, each times normal numbers of its own, added up."""
    nn, results = network.backend.nn, network(*inputs)
    pairs = zip(nest.leaves(results), nest.leaves(_cotangents(results)), strict=True)
    return sum(
        nn.sum(one * nn.constant(weight, one))
        for one, weight in pairs
        if has_floats(one)
    )


def _cotangents(results: Any) -> Any:
    """The gradient of that loss with respect to each result; None for one that is not floating."""
    generator = np.random.default_rng(0)
    draw = generator.standard_normal
    return nest.map(
        lambda one: draw(tuple(one.shape)) if has_floats(one) else None, results
    )


def _finite_differences(network: Any, inputs: Sequence[Any]) -> Any:
    """Return the finite differences of the loss: a nest like the arguments.

    None stands for what is no floating array.
    """
    leaves, structure = nest.flatten(tuple(inputs))

    backend = network.backend

    def loss(*changed: Any) -> float:
        with backend.evaluating():
            native = backend.prepare(nest.unflatten(structure, changed), network)
            return backend.number(_loss(network, *native))

    gradients: list[Any] = [None] * len(leaves)
    for position, leaf in enumerate(leaves):
        if is_floating(leaf):
            gradients[position] = differences(loss, leaves, position, _STEP)
    return nest.unflatten(structure, gradients)


def _require(network: Any, what: str, wanted: Any, found: Any, limit: float) -> float:
    """Return the largest relative difference of two nests of arrays.

    Raises:
        ProofFailed: They have other structures, or one is larger than the limit.
    """
    where = f"{network.operation} on {network.backend.name}"
    expected = nest.leaves_with_paths(wanted, what)
    came = dict(nest.leaves_with_paths(found, what))
    if [path for path, _ in expected] != list(came):
        raise ProofFailed(
            f"{where}: {what} is {nest.described(found)}, wanted {nest.described(wanted)}"
        )
    largest = 0.0
    for path, array in expected:
        if not isinstance(array, np.ndarray | np.generic | float | int):
            continue
        difference = relative_difference(array, came[path])
        if difference > limit:
            raise ProofFailed(
                f"{where}: {path} of shape {np.shape(came[path])} differs by {difference:.1e} "
                f"(L2, relative) from the expected one of shape {np.shape(array)}, limit {limit:g}"
                f"{_MEANT if limit == _OF_GRADIENTS else ''}"
            )
        largest = max(largest, difference)
    return largest
