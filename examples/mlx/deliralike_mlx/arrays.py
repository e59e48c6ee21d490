"""MLX arrays to and from NumPy."""

from __future__ import annotations

import copyreg
from collections.abc import Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import accumulate
from typing import Any, ClassVar

import mlx.core as mx
import numpy as np

from deliralike.nest.arrays import Arrays

_TYPES = {"bool": mx.bool_}


def dtype_named(name: str) -> mx.Dtype:
    """Return MLX's type of a name such as ``"float32"``."""
    return _TYPES.get(name) or getattr(mx, name)


def name_of(dtype: mx.Dtype) -> str:
    """Return the name of one of MLX's types; the opposite of `dtype_named`."""
    return str(dtype).rpartition(".")[2].rstrip("_")


def is_floating(array: mx.array) -> bool:
    """Return whether an array has a floating type."""
    return mx.issubdtype(array.dtype, mx.floating)


def from_host(value: Any) -> mx.array:
    """Return a host value in its own type: MLX itself makes float32 of NumPy's float64."""
    array = np.array(value, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    return mx.array(array, dtype=dtype_named(array.dtype.name))


def _restored(array: np.ndarray) -> mx.array:
    return from_host(array)


def _reduced(array: mx.array) -> tuple[Any, tuple[np.ndarray]]:
    return _restored, (np.array(array),)


# MLX 0.32 pickles an array of float64 as one of float32.
copyreg.pickle(mx.array, _reduced)


class MLXArrays(Arrays):
    """The arrays of MLX, on its default device."""

    name: ClassVar[str] = "mlx"
    dtypes: ClassVar[tuple[str, ...]] = ("float32", "float64")

    def version(self) -> str:
        return f"mlx {mx.__version__}"

    def devices(self) -> list[str]:
        return [mx.default_device().type.name]

    def precision(self) -> dict[str, str]:
        return {"float64": "on", "exp, sin, cos, erf in float64": "not MLX's own"}

    def array(
        self, value: Any, dtype: str | None = None, device: str | None = None
    ) -> mx.array:
        native = mx.array(value) if isinstance(value, mx.array) else from_host(value)
        if dtype is not None:
            native = native.astype(dtype_named(dtype))
        return native

    def numpy(self, array: mx.array) -> np.ndarray:
        return np.array(array)

    def is_array(self, value: Any) -> bool:
        return isinstance(value, mx.array)

    def detached(self, value: Any) -> Any:
        return mx.stop_gradient(value) if self.is_array(value) else value

    def copied(self, array: mx.array) -> mx.array:
        return mx.array(array)

    def clipped(self, value: mx.array, bound: float) -> mx.array:
        return mx.clip(value, -bound, bound)

    def split(
        self, array: mx.array, sizes: Sequence[int], dim: int, devices: Sequence[Any]
    ) -> list[mx.array]:
        if len(sizes) == 1:
            return [array]
        return mx.split(array, list(accumulate(sizes[:-1])), axis=dim)

    def concatenate(
        self, values: Sequence[mx.array], dim: int, device: Any = None
    ) -> mx.array:
        return mx.concatenate(list(values), axis=dim)

    def stack(self, values: Sequence[mx.array], device: Any = None) -> mx.array:
        return mx.stack(list(values))

    # Random numbers

    def seed(self, seed: int) -> None:
        mx.random.seed(seed % 2**64)

    def random_state(self, network: Any) -> dict[str, Any]:
        return {"key": np.array(mx.random.state[0])}

    def load_random_state(self, network: Any, state: Any) -> None:
        high, low = (int(half) for half in state["key"])
        mx.random.seed(high << 32 | low)  # the key of a seed is its two halves

    @contextmanager
    def _unchanged_generator(self) -> Any:
        state = self.random_state(None)
        try:
            yield
        finally:
            self.load_random_state(None, state)

    def preserve_global_state(self) -> AbstractContextManager[Any]:
        return self._unchanged_generator()
