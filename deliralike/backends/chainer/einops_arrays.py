"""einops on Chainer's arrays: the file that tells einops how to move and reduce them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from deliralike.backends.chainer.arrays import Variable

_registered: list[type] = []  # einops asks those that exist


def register(nn: Any) -> None:
    """Let einops work on Chainer's arrays by the functions of the backend, where it is installed.

    einops 0.7 has dropped Chainer; it asks each subclass of its backends for the arrays it knows.
    """
    if find_spec("einops") is None:
        return
    base: Any = import_module("einops._backends").AbstractBackend

    class ChainerArrays(base):
        """The operations that einops needs."""

        framework_name = "chainer"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, Variable)

        def reshape(self, x: Any, shape: Sequence[int]) -> Any:
            return nn.reshape(x, tuple(shape))

        def transpose(self, x: Any, axes: Sequence[int]) -> Any:
            return nn.permute(x, tuple(axes))

        def reduce(self, x: Any, operation: str, axes: Sequence[int]) -> Any:
            if operation == "prod":  # of one axis
                for axis in sorted(axes, reverse=True):
                    x = nn.prod(x, axis)
                return x
            name = {"max": "amax", "min": "amin"}.get(operation, operation)
            return getattr(nn, name)(x, tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: Sequence[Any]) -> Any:
            return nn.stack(tuple(tensors), 0)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return nn.unsqueeze(x, new_position)

        def tile(self, x: Any, repeats: Sequence[int]) -> Any:
            return nn.tile(x, tuple(repeats))

        def concat(self, tensors: Sequence[Any], axis: int) -> Any:
            return nn.cat(tuple(tensors), axis)

        def is_float_type(self, x: Any) -> bool:
            return bool(x.dtype.kind == "f")

        def einsum(self, pattern: str, *x: Any) -> Any:
            return nn.einsum(pattern, *x)

    _registered.append(ChainerArrays)
