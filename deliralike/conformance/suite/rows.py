"""The engine of the tables: a function of the backend beside its formula in NumPy.

A row says what is called, with which arguments, and the formula that gives the answer. Values are
compared directly, gradients of parameters and inputs with finite differences of the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import Check, register
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
from deliralike.conformance.suite.nets import Anchor
from deliralike.network.base import Network

_STEP = 1e-3  # of finite differences, whose error is of the fourth order


@dataclass
class Row:
    """A network or function at some inputs, and its formula.

    Attributes:
        name: How errors call it.
        build: Makes the network of a backend.
        call: ``call(network, *inputs)`` gives an array or several.
        formula: ``formula(*inputs, *weights)`` gives the same in NumPy.
        inputs: Arrays; floating ones are differentiated.
        weights: Those of the network's parameters, by name; none are loaded if there are none.
        differentiable: Whether gradients are compared as well.
    """

    name: str
    build: Callable[[Backend], Any]
    call: Callable[..., Any]
    formula: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    weights: Mapping[str, np.ndarray]
    differentiable: bool = True

    def __call__(self, backend: Backend) -> None:
        """Compare names of parameters, outputs and their types, and gradients."""
        network, dtype = self.build(backend), dtype_of(backend)
        if self.weights:
            slots = network.neutral_slots().items()
            names = [name for name, slot in slots if slot.is_parameter]
            equal(f"{self.name}: names of parameters", names, list(self.weights))
            network.load_neutral_state(network.neutral_state() | self.weights)
        outputs = each(self.call(network, *(native(backend, x) for x in self.inputs)))
        for index, (got, wanted) in enumerate(zip(outputs, self.answers, strict=True)):
            which = "output" if len(outputs) == 1 else f"output {index}"
            agree(f"{self.name}: {which}", backend.numpy(got), wanted)
            kind = dtype if wanted.dtype.kind == "f" else str(wanted.dtype)[:3]  # of any width
            came = type_of(backend, got)
            true(f"{self.name}: {which} has the type {kind}, not {came}", came.startswith(kind))
        if not self.differentiable:
            return

        def scalar(here: Any, *inputs: Any) -> Any:
            return weighted_sum(here.nn, self.call(here, *inputs), self.cotangents)

        found = backend.gradients(scalar, network, *self.inputs)
        gradients = [*found.inputs, *(found.parameters[name] for name in self.weights)]
        names = [*(f"input {index}" for index in range(len(self.inputs))), *self.weights]
        for name, got, slope in zip(names, gradients, self.slopes, strict=True):
            agree(f"{self.name}: gradient of {name}", got, slope, BY_DIFFERENCES[dtype])

    @cached_property
    def answers(self) -> list[np.ndarray]:
        """What the formula gives."""
        return [np.asarray(y) for y in each(self.formula(*self.inputs, *self.weights.values()))]

    @cached_property
    def cotangents(self) -> list[np.ndarray]:
        """What the outputs are multiplied with to make the scalar that is differentiated."""
        rng = np.random.default_rng(7)
        return [rng.standard_normal(y.shape) for y in self.answers]

    @cached_property
    def slopes(self) -> list[np.ndarray | None]:
        """The gradient with respect to each input and weight; None for whole numbers."""
        arrays = [*self.inputs, *self.weights.values()]

        def scalar(*at: np.ndarray) -> float:
            products = zip(each(self.formula(*at)), self.cotangents, strict=True)
            return sum(float(np.sum(y * c)) for y, c in products)

        return [
            differences(scalar, arrays, which) if array.dtype.kind == "f" else None
            for which, array in enumerate(arrays)
        ]


def each(result: Any) -> tuple[Any, ...]:
    """What a function gave, as a tuple of arrays; without None, which says that there is none."""
    results = result if isinstance(result, tuple | list) else (result,)
    return tuple(array for array in results if array is not None)


def weighted_sum(nn: Any, result: Any, weights: Sequence[np.ndarray]) -> Any:
    """A scalar whose gradients with respect to the results are the weights."""
    total: Any = 0.0
    for array, weight in zip(each(result), weights, strict=True):
        total = nn.sum(array * nn.constant(weight, like=array)) + total
    return total


def fourth_order(function: Callable[[float], float], step: float) -> float:
    """Return the derivative of a function at 0, by differences whose error is of fourth order."""
    near = function(step) - function(-step)
    far = function(2.0 * step) - function(-2.0 * step)
    return (8.0 * near - far) / (12.0 * step)


def differences(
    function: Callable[..., float], inputs: Sequence[np.ndarray], which: int
) -> np.ndarray:
    """Return the gradient of a NumPy function with respect to one of its inputs."""
    found = np.zeros(inputs[which].shape)
    for place in np.ndindex(found.shape):

        def moved(by: float, place: tuple[int, ...] = place) -> float:
            changed = [np.array(x) for x in inputs]
            changed[which][place] += by
            return function(*changed)

        found[place] = fourth_order(moved, _STEP)
    return found


# The kinds of rows
# -----------------------------------------------------------------------------


def function_row(
    capability: str,
    name: str,
    formula: Callable[..., Any],
    *arguments: Any,
    call: Callable[..., Any] | None = None,
    level: str = "L1",
    needs: tuple[str, ...] = (),
    **settings: Any,
) -> None:
    """A check that a function of `nn` is its formula, at the same arguments.

    Args:
        capability: Where the check belongs.
        name: Of the check; its first word is the function's.
        formula: In NumPy, with the function's arguments.
        arguments: Arrays come first: these are given to the backend as its own.
        call: ``call(nn, *arguments)`` in place of the function that is named.
        level, needs: Of the check; gradients are compared at level L1.
        settings: Keyword arguments of both.
    """
    word = name.split()[0].rstrip(",")
    inputs = [value for value in arguments if isinstance(value, np.ndarray)]
    others = arguments[len(inputs) :]

    def called(network: Any, *arrays: Any) -> Any:
        if call is not None:
            return call(network.nn, *arrays)
        return getattr(network.nn, word)(*arrays, *others, **settings)

    def answer(*arrays: np.ndarray) -> Any:
        return formula(*arrays, *others, **settings)

    row = Row(name, _anchor, called, answer, inputs, {}, level == "L1")
    register(Check(capability, level, name, row, needs))


def network_row(
    network: str | type[Network],
    settings: tuple,
    weights: Mapping[str, tuple[int, ...]],
    formula: Callable[..., Any],
    *inputs: np.ndarray,
    title: str = "",
    call: Callable[..., Any] = lambda network, *inputs: each(network(*inputs))[0],
    capability: str = "layers",
    needs: tuple[str, ...] = (),
    **options: Any,
) -> None:
    """A check that a network has these parameters, and is its formula in training mode.

    Args:
        network: A layer of `nn` by name, or a network.
        settings, options: What it is made with.
        weights: Shapes of its parameters, in order; they are drawn at random.
        formula: ``formula(*inputs, *weights)``; of several results the first counts.
        inputs: Arrays.
        title: The name of the check, if not the layer's.
        call: ``call(network, *inputs)`` gives the output.
        capability, needs: Of the check.
    """
    drawn = {
        name: values(*shape, seed=20 + seed) for seed, (name, shape) in enumerate(weights.items())
    }
    title = title or str(network)

    def build(backend: Backend) -> Any:
        return made(backend, network, *settings, **options)

    def first(*arrays: np.ndarray) -> Any:
        return each(formula(*arrays))[0]

    row = Row(title, build, call, first, inputs, drawn)
    register(Check(capability, "L1", title, row, needs))


def slope_row(
    capability: str, name: str, call: str | Callable[..., Any], x: list[float], slopes: list[float]
) -> None:
    """A check of what the derivatives are at places where conventions decide.

    Args:
        capability, name: Of the check.
        call: A function of `nn` by name, or ``call(nn, x)``.
        x: The places.
        slopes: The derivatives of the sum of what is called.
    """

    def check(backend: Backend) -> None:
        def scalar(network: Any, at: Any) -> Any:
            nn = network.nn
            return nn.sum(getattr(nn, call)(at) if isinstance(call, str) else call(nn, at))

        found = backend.gradients(scalar, _anchor(backend), np.array(x)).inputs[0]
        limit = BY_DIFFERENCES[dtype_of(backend)]
        agree(f"{name}: derivatives at {x}", found, np.array(slopes), limit)

    register(Check(capability, "L7", name, check))


def _anchor(backend: Backend) -> Any:
    return made(backend, Anchor)
