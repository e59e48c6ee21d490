"""The engine of the tables: what a backend computes beside its formula in NumPy.

A row says what is called, with which arguments, and the formula that gives the answer. Values are
compared directly, gradients of parameters and inputs with finite differences of the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.findings import is_array
from deliralike.conformance.finite_differences import differences
from deliralike.conformance.kinds import Arrays
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    BY_DIFFERENCES,
    agree,
    dtype_of,
    equal,
    made,
    native,
    true,
    type_of,
    values,
)
from deliralike.conformance.suite.layouts import agree_in_every_layout
from deliralike.conformance.suite.nets import Moved


@dataclass
class Row:
    """A function or network at some arguments, and its formula.

    Attributes:
        name: How errors call it.
        call: ``call(network, *arguments)`` gives an array or several.
        formula: ``formula(*arguments, *weights)`` gives the same in NumPy.
        arguments: The backend gets their arrays as its own; floating ones are differentiated.
        weights: Those of the network's parameters, by name; none are loaded if there are none.
        differentiable: Whether gradients are compared as well.
        network: What is built, with which settings.
    """

    name: str
    call: Callable[..., Any]
    formula: Callable[..., Any]
    arguments: Sequence[Any]
    weights: Arrays
    differentiable: bool
    network: tuple = (Moved,)

    def __call__(self, backend: Backend) -> None:
        """Compare names of parameters, outputs and their types, and gradients; in every layout."""
        network, dtype = made(backend, *self.network), dtype_of(backend)
        if self.weights:
            slots = network.neutral_slots().items()
            names = [name for name, slot in slots if slot.is_parameter]
            equal(f"{self.name}: names of parameters", names, list(self.weights))
            network.load_neutral_state(self.weights, strict=False)
        came = self.outputs(network, *(native(backend, x) for x in self.inputs))
        for index, (got, wanted) in enumerate(zip(came, self.answers, strict=True)):
            which = f"{self.name}: output" + (f" {index}" if len(came) > 1 else "")
            agree(which, backend.numpy(got), wanted)
            # whole numbers may be of any width
            kind = dtype if wanted.dtype.kind == "f" else str(wanted.dtype)[:3]
            dtype_found = type_of(backend, got)
            true(
                f"{which} has the type {kind}, not {dtype_found}",
                dtype_found.startswith(kind),
            )
        if self.differentiable:
            self._compare_gradients(backend, network, dtype)
        agree_in_every_layout(self, backend, network)

    def _compare_gradients(self, backend: Backend, network: Any, dtype: str) -> None:
        def scalar(here: Any, *inputs: Any) -> Any:
            return weighted_sum(here.nn, self.outputs(here, *inputs), self.cotangents)

        found = backend.gradients(scalar, network, *self.inputs)
        gradients = {f"input {index}": g for index, g in enumerate(found.inputs)}
        gradients |= {name: found.parameters[name] for name in self.weights}
        for (name, got), slope in zip(gradients.items(), self.slopes, strict=True):
            agree(f"{self.name}: gradient of {name}", got, slope, BY_DIFFERENCES[dtype])

    def outputs(self, network: Any, *inputs: Any) -> tuple[Any, ...]:
        """What is called gives, as a tuple, with these in the places of the arrays."""
        return each(self.call(network, *self._with(inputs)))

    def _with(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The arguments with others in the places of their arrays."""
        rest = iter(inputs)
        return nest.map(
            lambda leaf: next(rest) if is_array(leaf) else leaf, self.arguments
        )

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        """The arrays among the arguments."""
        return [leaf for leaf in nest.leaves(self.arguments) if is_array(leaf)]

    @cached_property
    def answers(self) -> list[np.ndarray]:
        """What the formula gives."""
        return self._answers(*self.inputs, *self.weights.values())

    def _answers(self, *arrays: np.ndarray) -> list[np.ndarray]:
        count = len(self.inputs)
        found = self.formula(*self._with(arrays[:count]), *arrays[count:])
        return [np.asarray(y) for y in each(found)]

    @cached_property
    def cotangents(self) -> list[np.ndarray]:
        """What the outputs are multiplied with to make the scalar that is differentiated."""
        rng = np.random.default_rng(7)
        return [rng.standard_normal(y.shape) for y in self.answers]

    @cached_property
    def slopes(self) -> list[np.ndarray | None]:
        """The gradient with respect to each input and weight; None for whole numbers."""

        def scalar(*at: np.ndarray) -> float:
            return sum(map(np.vdot, self._answers(*at), self.cotangents))

        arrays = [*self.inputs, *self.weights.values()]
        return [
            differences(scalar, arrays, which) if array.dtype.kind == "f" else None
            for which, array in enumerate(arrays)
        ]


def each(result: Any) -> tuple[Any, ...]:
    """What a function gave, as a tuple of arrays; without None, which says that there is none."""
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(array for array in results if array is not None)


def weighted_sum(nn: Any, arrays: Sequence[Any], weights: Sequence[np.ndarray]) -> Any:
    """A scalar whose gradients with respect to the arrays are the weights."""
    total: Any = 0.0
    for array, weight in zip(arrays, weights, strict=True):
        total = nn.sum(array * nn.constant(weight, like=array)) + total
    return total


# The kinds of rows
# -----------------------------------------------------------------------------


def functions(
    capability: str,
    level: str,
    *table: tuple,
    call: Callable[..., Any] | None = None,
    needs: Sequence[str] = (),
) -> None:
    """Checks that functions of `nn` are their formulas, at the same arguments.

    Args:
        capability, level, needs: Of the checks; gradients are compared at level L1.
        table: ``(name, formula, *arguments)``; the name's first word is the function's.
        call: ``call(nn, *arguments)`` in place of the function that is named.
    """
    for name, formula, *arguments in table:
        called = partial(_called, call or name.split()[0].rstrip(","))
        row = Row(name, called, formula, arguments, {}, level == "L1")
        check(capability, level, *needs, name=name)(row)


def _called(function: str | Callable[..., Any], network: Any, *given: Any) -> Any:
    """A function of `nn` by its name, or one that takes `nn` first."""
    if isinstance(function, str):
        return getattr(network.nn, function)(*given)
    return function(network.nn, *given)


def networks(
    capability: str,
    *table: tuple,
    call: Callable[..., Any] = lambda network, *inputs: each(network(*inputs))[:1],
    needs: Sequence[str] = (),
) -> None:
    """Checks that networks have these parameters, and are their formulas in training mode.

    Args:
        capability, needs: Of the checks.
        table: ``(name, network, weights, formula, *inputs)``. The network is a tuple: a layer of
            `nn` by name or a network, and its settings. The weights are shapes: of weight and bias,
            or by name; they are drawn at random. Of several results of the formula the first counts.
        call: ``call(network, *inputs)`` gives the output.
    """
    for name, network, shapes, formula, *inputs in table:
        named = (
            shapes
            if isinstance(shapes, dict)
            else dict(zip(("weight", "bias"), shapes, strict=False))
        )
        seeded = enumerate(named.items(), start=20)
        weights = {key: values(*shape, seed=seed) for seed, (key, shape) in seeded}
        row = Row(name, call, partial(_first, formula), inputs, weights, True, network)
        check(capability, "L1", *needs, name=name)(row)


def _first(formula: Callable[..., Any], *arrays: Any) -> tuple[Any, ...]:
    return each(formula(*arrays))[:1]


def slopes(capability: str, *table: tuple) -> None:
    """Checks of what the derivatives are at places where conventions decide.

    Args:
        capability: Of the checks.
        table: ``(name, call, x, slopes)``: a function of `nn` by name, or ``call(nn, x)``; and the
            derivatives of its sum at each place.
    """
    for row in table:
        check(capability, "L7", name=row[0])(partial(_derivatives, *row))


def _derivatives(name: str, call: Any, x: Any, wanted: Any, backend: Backend) -> None:
    def scalar(network: Any, at: Any) -> Any:
        return network.nn.sum(_called(call, network, at))

    found = backend.gradients(scalar, made(backend, Moved), np.array(x)).inputs[0]
    limit = BY_DIFFERENCES[dtype_of(backend)]
    agree(f"{name}: derivatives at {x}", found, np.array(wanted), limit)
