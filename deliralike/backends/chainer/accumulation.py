"""Gradients that a backward pass adds to those of earlier batches, in their storage.

JAX has no such file: its gradients are results of a program.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from deliralike.backends.chainer.arrays import chainer
from deliralike.optim.accumulation import Gradients


def give(sums: Gradients, parameters: Mapping[str, chainer.Parameter]) -> set[int]:
    """Make sums the gradients of parameters, to which backward adds; of a tied one once.

    Returns:
        The identities of the parameters that have got one.
    """
    given: set[int] = set()
    for name, parameter in parameters.items():
        total, sums[name] = sums.get(name), None
        if total is None or id(parameter) in given:
            continue
        given.add(id(parameter))
        if parameter.grad is not None:  # a loss function has run backward
            total = total + parameter.grad
        parameter.grad = total
    return given


def take(
    sums: Gradients, parameters: Mapping[str, chainer.Parameter], given: Container[int]
) -> None:
    """Take the gradients of parameters as sums, an array for each name of a tied one.

    Args:
        sums: The sums, by name.
        parameters: The parameters by name.
        given: The identities of those that a sum was given to; other gradients may share arrays.
    """
    taken: dict[int, Any] = {}
    for name, parameter in parameters.items():
        is_tied = id(parameter) in taken
        gradient = taken[id(parameter)] if is_tied else parameter.grad
        if gradient is not None and (is_tied or id(parameter) not in given):
            gradient = gradient.copy()
        taken[id(parameter)] = sums[name] = gradient
        parameter.cleargrad()
