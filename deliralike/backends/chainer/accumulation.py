"""Gradients that a backward pass adds to those of earlier batches, in their storage.

JAX has no such file: its gradients are results of a program.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from deliralike.backends.chainer.arrays import chainer
from deliralike.optim.accumulation import Gradients


def give(sums: Gradients, parameters: Mapping[str, chainer.Parameter]) -> set[int]:
    """Make sums the gradients of parameters, to which backward adds.

    Returns:
        The identities of the parameters that have got one.
    """
    given: set[int] = set()
    for name, parameter in parameters.items():
        total, sums[name] = sums.get(name), None
        if total is None:
            continue
        given.add(id(parameter))
        if parameter.grad is not None:  # a loss function has run backward
            total = total + parameter.grad
        parameter.grad = total
    return given


def take(
    sums: Gradients, parameters: Mapping[str, chainer.Parameter], given: Container[int]
) -> None:
    """Take the gradients of parameters as sums.

    Args:
        sums: The sums, by name.
        parameters: The parameters by name.
        given: The identities of those that a sum was given to; other gradients may share arrays.
    """
    for name, parameter in parameters.items():
        gradient = parameter.grad
        if gradient is not None and id(parameter) not in given:
            gradient = gradient.copy()
        sums[name] = gradient
        parameter.cleargrad()
