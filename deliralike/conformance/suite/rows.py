"""The engine of the tables: what a backend computes beside what it should.

A row says what is called, with which arguments, and what gives the answer: a formula in NumPy, whose
gradients are finite differences, for what each backend writes itself; and for what is written once in
`nn`, and may be replaced, that function, computed with the backend's other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.findings import is_array
from deliralike.conformance.finite_differences import differences
from deliralike.conformance.kinds import Arrays, Function
from deliralike.conformance.suite.check import check
from deliralike.conformance.suite.comparing import (
    BY_DIFFERENCES,
    LIMITS,
    agree,
    build_network,
    dtype_of,
    equal,
    native,
    true,
    type_of,
    values,
)
from deliralike.conformance.suite.layouts import agree_in_every_layout
from deliralike.conformance.suite.nets import Moved
from deliralike.nn.functional import Functions


@dataclass
class Row:
    """A function or network at some arguments, and what it should give.

    Attributes:
        name: How errors call it.
        call: ``call(network, *arguments)`` gives an array or several.
        answer: ``answer(*arguments, *weights)`` gives the same in NumPy; with `nn` before them where
            it is written `once`.
        arguments: The backend gets their arrays as its own; floating ones are differentiated.
        weights: Those of the network's parameters, by name; none are loaded if there are none.
        differentiable: Whether gradients are compared as well.
        network: What is built, with which settings.
        once: Whether the answer is written in functions of `nn`.
    """

    name: str
    call: Function
    answer: Function
    arguments: Sequence[Any]
    weights: Arrays
    differentiable: bool
    network: tuple = (Moved,)
    once: bool = False

    def __call__(self, backend: Backend) -> None:
        """Compare names of parameters, outputs and their types, and gradients; in every layout."""
        network, dtype = build_network(backend, *self.network), dtype_of(backend)
        if self.weights:
            slots = network.neutral_slots().items()
            names = [name for name, slot in slots if slot.is_parameter]
            equal(f"{self.name}: names of parameters", names, list(self.weights))
            network.load_neutral_state(self.weights, strict=False)
        answers = self._once(backend) if self.once else self.answers
        came = self.outputs(network, *(native(backend, x) for x in self.inputs))
        for index, (got, wanted) in enumerate(zip(came, answers, strict=True)):
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
        found = self._differentiated(backend, network, self.outputs, self.inputs)
        gradients = {f"input {index}": g for index, g in enumerate(found.inputs)}
        gradients |= {name: found.parameters[name] for name in self.weights}
        if self.once:
            other = build_network(backend, Moved)
            slopes = self._differentiated(
                backend, other, self._written_once, self.arrays
            ).inputs
            limit = LIMITS[dtype]
        else:
            slopes, limit = self.slopes, BY_DIFFERENCES[dtype]
        for (name, got), slope in zip(gradients.items(), slopes, strict=True):
            agree(f"{self.name}: gradient of {name}", got, slope, limit)

    def _differentiated(
        self, backend: Backend, network: Any, outputs: Any, inputs: Sequence[Any]
    ) -> Any:
        def scalar(here: Any, *given: Any) -> Any:
            return weighted_sum(here.nn, outputs(here, *given), self.cotangents)

        return backend.gradients(scalar, network, *inputs)

    def outputs(self, network: Any, *inputs: Any) -> tuple[Any, ...]:
        """What is called gives, as a tuple, with these in the places of the arrays."""
        return each(self.call(network, *self._with(inputs)))

    def _once(self, backend: Backend) -> list[np.ndarray]:
        """What the function that is written once gives on a backend."""
        given = [native(backend, array) for array in self.arrays]
        found = self._written_once(build_network(backend, Moved), *given)
        answers = [backend.numpy(y) for y in found]
        self.cotangents = _drawn(answers)
        return answers

    def _written_once(self, network: Any, *arrays: Any) -> tuple[Any, ...]:
        return self._answered(partial(self.answer, network.nn), arrays)

    def _answered(self, answer: Function, arrays: Sequence[Any]) -> tuple[Any, ...]:
        count = len(self.inputs)
        return each(answer(*self._with(arrays[:count]), *arrays[count:]))

    def _with(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """The arguments with others in the places of their arrays."""
        rest = iter(inputs)
        return nest.map_where(is_array, lambda _: next(rest), self.arguments)

    @cached_property
    def inputs(self) -> list[np.ndarray]:
        """The arrays among the arguments."""
        return [leaf for leaf in nest.leaves(self.arguments) if is_array(leaf)]

    @property
    def arrays(self) -> list[np.ndarray]:
        """The inputs and the weights."""
        return [*self.inputs, *self.weights.values()]

    @cached_property
    def answers(self) -> list[np.ndarray]:
        """What the formula gives."""
        return [np.asarray(y) for y in self._answered(self.answer, self.arrays)]

    @cached_property
    def cotangents(self) -> list[np.ndarray]:
        """What the outputs are multiplied with to make the scalar that is differentiated."""
        return _drawn(self.answers)

    @cached_property
    def slopes(self) -> list[np.ndarray | None]:
        """The gradient with respect to each input and weight; None for whole numbers."""

        def scalar(*at: np.ndarray) -> float:
            return sum(map(np.vdot, self._answered(self.answer, at), self.cotangents))

        found = []
        for which, array in enumerate(self.arrays):
            is_floating = array.dtype.kind == "f"
            found.append(
                differences(scalar, self.arrays, which) if is_floating else None
            )
        return found


def _drawn(answers: Sequence[np.ndarray]) -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    return [generator.standard_normal(y.shape) for y in answers]


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
    call: Function | None = None,
    needs: Sequence[str] = (),
) -> None:
    """Checks that functions of `nn` are their formulas, at the same arguments.

    Args:
        capability, level, needs: Of the checks; gradients are compared at level L1.
        table: ``(name, formula, *arguments)``; the name's first word is the function's. Without a
            formula it is compared with the function that is written once, by backends that replace
            that.
        call: ``call(nn, *arguments)`` in place of the function that is named.
    """
    for name, formula, *arguments in table:
        function = name.split()[0].rstrip(",")
        called = partial(_called, call or function)
        answer = formula or getattr(Functions, function)
        row = Row(name, called, answer, arguments, {}, level == "L1", once=not formula)
        run = row if formula else partial(_unless_the_same, row, function)
        check(capability, level, *needs, name=name)(run)


def _unless_the_same(row: Row, function: str, backend: Backend) -> None:
    """Run a row on a backend that replaces the function that is written once."""
    own = getattr(backend.nn, function)
    if getattr(own, "__func__", own) is not getattr(Functions, function):
        row(backend)


def _called(function: str | Function, network: Any, *given: Any) -> Any:
    """A function of `nn` by its name, or one that takes `nn` first."""
    if isinstance(function, str):
        return getattr(network.nn, function)(*given)
    return function(network.nn, *given)


def networks(
    capability: str,
    *table: tuple,
    call: Function = lambda network, *inputs: each(network(*inputs))[:1],
    needs: Sequence[str] = (),
) -> None:
    """Checks that networks have these parameters, and are their formulas in training mode.

    Args:
        capability, needs: Of the checks.
        table: ``(name, network, weights, answer, *inputs)``. The network is a tuple: a layer of
            `nn` by name or a network, and its settings. The weights are shapes: of weight and bias,
            or by name; they are drawn at random. The answer is ``answer(nn, *inputs, *weights)``;
            of several results the first counts.
        call: ``call(network, *inputs)`` gives the output.
    """
    for name, network, shapes, answer, *inputs in table:
        if isinstance(shapes, dict):
            named = shapes
        else:
            named = dict(zip(("weight", "bias"), shapes, strict=False))
        seeded = enumerate(named.items(), start=20)
        weights = {key: values(*shape, seed=seed) for seed, (key, shape) in seeded}
        first = partial(_first, answer)
        row = Row(name, call, first, inputs, weights, True, network, once=True)
        check(capability, "L1", *needs, name=name)(row)


def _first(answer: Function, *given: Any) -> tuple[Any, ...]:
    return each(answer(*given))[:1]


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

    found = backend.gradients(
        scalar, build_network(backend, Moved), np.array(x)
    ).inputs[0]
    limit = BY_DIFFERENCES[dtype_of(backend)]
    agree(f"{name}: derivatives at {x}", found, np.array(wanted), limit)
