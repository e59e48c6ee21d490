"""Backward passes in a loop of the user's own, which would leave the gradients of one process."""

from __future__ import annotations

from typing import Any, NoReturn

from deliralike import nest
from deliralike.backends.chainer.arrays import chainer
from deliralike.errors import CapabilityError
from deliralike.parallel.processes.network import BY_AN_OPTIMIZER


def without_backward(outputs: Any) -> Any:
    """Return outputs from which a backward pass raises an error."""
    return nest.map(_refusing, outputs)


def _refusing(leaf: Any) -> Any:
    is_array = isinstance(leaf, (chainer.Variable, *chainer.get_array_types()))
    if is_array and leaf.dtype.kind == "f":
        return _RefuseBackward().apply((chainer.as_variable(leaf),))[0]
    return leaf


class _RefuseBackward(chainer.FunctionNode):
    """The identity, without a gradient."""

    def forward(self, inputs: tuple) -> tuple:
        """Return the inputs as they are."""
        return inputs

    def backward(self, indexes: tuple[int, ...], gradients: tuple) -> NoReturn:
        """Raise an error."""
        raise CapabilityError(
            "a backward pass of your own, whose gradients are those of one process: "
            f"{BY_AN_OPTIMIZER}"
        )
