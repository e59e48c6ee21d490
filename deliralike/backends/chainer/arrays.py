"""Arrays: to and from NumPy, devices, types, and the settings that decide their precision."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from deliralike.backends.chainer_bridge import install

install()  # before the first import of Chainer anywhere in this package

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainermn  # noqa: E402
from chainer import Variable  # noqa: E402
from chainer.backends import cuda  # noqa: E402

from deliralike.errors import DtypeError, suggestion  # noqa: E402
from deliralike.parallel.batches.gather import concatenate_on_host  # noqa: E402

__all__ = [
    "DTYPES",
    "HOST",
    "F",
    "Variable",
    "add",
    "array",
    "array_module",
    "chainer",
    "chainermn",
    "concatenate",
    "cuda",
    "devices",
    "find_dtype",
    "gradients_through",
    "is_array",
    "moved",
    "numpy",
    "precision",
    "raw",
    "split",
    "stack",
]

DTYPES = (
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
HOST = "@numpy"


dtype_name = cache(str)  # NumPy takes 3 µs for the name of a type


def find_dtype(name: str) -> np.dtype:
    """Return the NumPy type of a name."""
    if name not in DTYPES:
        raise DtypeError(
            f"backend 'chainer' has no type {name!r}. {suggestion(name, DTYPES)}"
        )
    return np.dtype(name)


def raw(x: Any) -> Any:
    """Return the NumPy or CuPy array of a variable.

    An array is returned as it is, and a NumPy scalar as an array without axes.
    """
    x = x.array if isinstance(x, Variable) else x
    return np.asarray(x) if isinstance(x, np.generic) else x


def array_module(x: Any) -> Any:
    """Return `numpy` or `cupy`, whichever holds a variable or array."""
    if isinstance(x, Variable):
        x = x.array
    return np if isinstance(x, np.ndarray | np.generic) else cuda.cupy


def is_array(value: Any) -> bool:
    """Return whether a value is a variable, or an array that Chainer computes on."""
    if isinstance(value, Variable | np.ndarray):
        return True
    return cuda.available and isinstance(value, cuda.ndarray)


def array(value: Any, dtype: str | None = None, device: str | None = None) -> Any:
    """Return a new array that owns its storage.

    Args:
        dtype: The type; that of the value when None.
        device: The device; where the value is, or the host, when None.
    """
    if is_array(value) or isinstance(value, np.generic):
        value = raw(value)
    else:
        value = np.asarray(value)
    wanted = value.dtype if dtype is None else find_dtype(dtype)
    value = value.astype(wanted, copy=True, order="C")
    is_there = device is None or (device == HOST and isinstance(value, np.ndarray))
    return value if is_there else chainer.get_device(device).send(value)


def numpy(array: Any) -> np.ndarray:
    """Return a NumPy array that owns its storage."""
    array = raw(array)
    if isinstance(array, np.ndarray):
        return np.array(array, order="C")
    return cuda.to_cpu(array)


def split(
    array: Any, sizes: Sequence[int], dim: int, devices: Sequence[Any]
) -> list[Any]:
    """Split an array into pieces; those of a variable are variables in its graph."""
    if len(sizes) == 1:
        pieces = [array]
    elif isinstance(array, Variable):
        pieces = F.split_axis(array, list(accumulate(sizes[:-1])), dim % array.ndim)
    else:
        lead = (slice(None),) * (dim % array.ndim)
        ranges = zip(sizes, accumulate(sizes), strict=True)
        pieces = [array[(*lead, slice(stop - size, stop))] for size, stop in ranges]
    return [
        moved(piece, device) for piece, device in zip(pieces, devices, strict=False)
    ]


def add(total: Any, addition: Any, device: str) -> Any:
    """Return a sum on a device.

    It is not made in place, as Chainer may give two parameters one array as their gradient.
    """
    addition = moved(addition, device)
    return addition.copy() if total is None else raw(total + addition)


def concatenate(values: Sequence[Any], dim: int, device: Any = None) -> Any:
    """Join arrays one after another; the result is a variable where one of them is.

    One array alone is returned as it is.
    """
    values = _on_one_device(values, device)
    if len(values) == 1:
        return values[0]
    if any(isinstance(value, Variable) for value in values):
        return F.concat(values, dim % values[0].ndim)
    xp = array_module(values[0])
    return concatenate_on_host(values, dim) if xp is np else xp.concatenate(values, dim)


def stack(values: Sequence[Any], device: Any = None) -> Any:
    """Stack arrays along a new first axis; the result is a variable where one of them is."""
    values = _on_one_device(values, device)
    if any(isinstance(value, Variable) for value in values):
        return F.stack(values)
    return array_module(values[0]).stack(values)


def moved(value: Any, device: Any) -> Any:
    """Return an array on a device; a variable stays in its graph and is never moved in place.

    An array that is on the device already is returned itself.
    """
    device = _device(device)
    if isinstance(value, Variable):
        return value if value.device == device else F.copy(value, device)
    if device.xp is np and isinstance(value, np.ndarray | np.generic):
        return value
    if raw(value).dtype.kind not in "biufc":
        return value
    return device.send(value)


def _on_one_device(values: Sequence[Any], device: Any) -> list[Any]:
    """Move arrays to a device; to that of the first one when None."""
    if device is None:
        device = chainer.backend.get_device_from_array(raw(values[0]))
    return [moved(value, device) for value in values]


_device = cache(chainer.get_device)


def gradients_through(
    outputs: Sequence[Variable],
    gradients: Sequence[Any],
    inputs: Sequence[Variable],
    **options: Any,
) -> list[Any]:
    """Return the gradients of inputs from those of outputs, of which some may be None.

    Args:
        options: Those of ``chainer.grad``.
    """
    starts = []
    present = []
    for output, gradient in zip(outputs, gradients, strict=True):
        if gradient is not None and output.requires_grad:
            starts.append(output)
            present.append(gradient)
    return chainer.grad(starts, inputs, present, **options)


def devices() -> list[str]:
    """Return ``"@numpy"``, then every GPU that CuPy can use."""
    return [HOST, *(f"@cupy:{index}" for index in range(_gpus()))]


def precision() -> dict[str, str]:
    """Return the settings that decide the precision of float32 results."""
    settings = {
        "float64": "on",
        "chainer.config.dtype": str(np.dtype(chainer.config.dtype)),
    }
    if _gpus():
        uses_tf32 = os.environ.get("CUPY_TF32", "0") not in ("", "0")
        settings["TF32 products"] = "on" if uses_tf32 else "off"
        settings["cuDNN"] = "on" if cuda.cudnn_enabled else "off"
    return settings


def _gpus() -> int:
    # With CuPy installed and no GPU present, chainer.backends.cuda.available is True all the same.
    if not cuda.available or not cuda.cupy.is_available():
        return 0
    return cuda.cupy.cuda.runtime.getDeviceCount()


def _comparison(name: str) -> Any:
    def compare(self: Variable, other: Any) -> Any:
        return array_module(self).asarray(getattr(self.array, name)(raw(other)))

    compare.__name__ = name
    compare.__doc__ = (
        "Compare element by element; the result is an array of truth values."
    )
    return compare


# Chainer raises TypeError when a variable is compared. Networks that are written once compare
# arrays, so here the values are compared, and the result is a plain array. Nothing that worked
# before changes.
for _name in ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"):
    setattr(Variable, _name, _comparison(_name))
