"""Checks from tables: a function of the vocabulary beside its formula in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.suite.check import Check, register
from deliralike.conformance.suite.comparing import (
    BY_DIFFERENCES,
    against,
    agree,
    differences,
    dtype_of,
    each,
    gradients,
    native,
)


@dataclass(frozen=True)
class Case:
    """A function at some inputs, and its formula.

    Values are compared directly, gradients with finite differences.

    Attributes:
        name: How errors call it.
        call: ``call(nn, *arrays)``, an array or several.
        formula: The same of NumPy arrays.
        inputs: NumPy arrays in float64 (these are differentiated), or of whole numbers.
        differentiable: Whether gradients are compared as well.
    """

    name: str
    call: Callable[..., Any]
    formula: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]
    differentiable: bool = True

    def __call__(self, backend: Backend) -> None:
        """Compare values, then gradients."""
        results = each(self.call(backend.nn, *(native(backend, x) for x in self.inputs)))
        for index, (got, wanted) in enumerate(zip(results, self.answers, strict=True)):
            agree(self._output(index), backend.numpy(got), wanted)
        if self.differentiable:
            self._compare_gradients(backend)

    @cached_property
    def answers(self) -> tuple[np.ndarray, ...]:
        """What the formula gives."""
        return tuple(np.asarray(y) for y in each(self.formula(*self.inputs)))

    @cached_property
    def cotangents(self) -> tuple[np.ndarray, ...]:
        """What the outputs are multiplied with to make the scalar that is differentiated."""
        rng = np.random.default_rng(7)
        return tuple(rng.standard_normal(y.shape) for y in self.answers)

    @cached_property
    def slopes(self) -> tuple[np.ndarray | None, ...]:
        """The gradient with respect to each input; None for whole numbers."""
        return tuple(
            differences(self._scalar, self.inputs, which) if x.dtype.kind == "f" else None
            for which, x in enumerate(self.inputs)
        )

    def _scalar(self, *inputs: np.ndarray) -> float:
        products = zip(each(self.formula(*inputs)), self.cotangents, strict=True)
        return sum(float(np.sum(y * c)) for y, c in products)

    def _compare_gradients(self, backend: Backend) -> None:
        def scalar(nn: Any, *inputs: Any) -> Any:
            return against(nn, self.call(nn, *inputs), self.cotangents)

        found = gradients(backend, scalar, *self.inputs).inputs
        limit = BY_DIFFERENCES[dtype_of(backend)]
        for which, (got, wanted) in enumerate(zip(found, self.slopes, strict=True)):
            agree(f"{self.name}: gradient of input {which}", got, wanted, limit)

    def _output(self, index: int) -> str:
        return f"{self.name}: output" if len(self.answers) == 1 else f"{self.name}: output {index}"


def add(
    capability: str,
    name: str,
    call: Callable[..., Any],
    formula: Callable[..., Any],
    *inputs: np.ndarray,
    differentiable: bool = True,
    needs: tuple[str, ...] = (),
) -> None:
    """A check of level L1 that a function is its formula."""
    register(
        Check(capability, "L1", name, Case(name, call, formula, inputs, differentiable), needs)
    )


def add_slopes(
    capability: str, name: str, call: Callable[..., Any], x: list[float], slopes: list[float]
) -> None:
    """A check of level L7: what the derivatives are at places where conventions decide."""

    def check(backend: Backend) -> None:
        found = gradients(backend, lambda nn, at: nn.sum(call(nn, at)), np.array(x)).inputs[0]
        agree(
            f"{name}: derivatives at {x}",
            found,
            np.array(slopes),
            BY_DIFFERENCES[dtype_of(backend)],
        )

    register(Check(capability, "L7", name, check))
