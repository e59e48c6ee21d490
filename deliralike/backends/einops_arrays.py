"""einops on the arrays of a backend: the file that tells einops how to move and reduce them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_registered: list[type] = []  # einops asks those that exist


def register(framework: str, is_array: Callable[[Any], bool], nn: Any) -> None:
    """Let einops work on arrays by the functions of a backend, where einops is installed.

    einops has dropped Chainer, and does not know flax's parameters; it asks each subclass of its
    backends for the arrays that it takes.

    Args:
        framework: The module that has these arrays.
        is_array: Whether a value is one.
        nn: The functions of the backend.
    """
    if find_spec("einops") is None:
        return
    base: Any = import_module("einops._backends").AbstractBackend

    class Arrays(base):
        """The operations that einops needs."""

        framework_name = framework

        def is_appropriate_type(self, tensor: Any) -> bool:
            return is_array(tensor)

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
            return "float" in str(x.dtype)

        def einsum(self, pattern: str, *x: Any) -> Any:
            return nn.einsum(pattern, *x)

    _registered.append(Arrays)
