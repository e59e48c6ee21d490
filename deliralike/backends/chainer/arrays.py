"""Arrays: to and from NumPy, devices, types, and the settings that decide their precision."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from deliralike.backends.chainer.bridge import install

install()  # before the first import of Chainer anywhere in this package

import chainer  # noqa: E402
from chainer import Variable  # noqa: E402
from chainer.backends import cuda  # noqa: E402

from deliralike.errors import DtypeError, suggestion  # noqa: E402

DTYPES = ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")
HOST = "@numpy"


def dtype(name: str) -> np.dtype:
    """The NumPy type of a name."""
    if name not in DTYPES:
        raise DtypeError(f"backend 'chainer' has no type {name!r}. {suggestion(name, DTYPES)}")
    return np.dtype(name)


def raw(x: Any) -> Any:
    """The NumPy or CuPy array of a variable; an array as it is, and a NumPy scalar as an array without axes."""
    x = x.array if isinstance(x, Variable) else x
    return np.asarray(x) if isinstance(x, np.generic) else x


def array_module(x: Any) -> Any:
    """`numpy` or `cupy`, whichever holds a variable or array."""
    return np if isinstance(x.array if isinstance(x, Variable) else x, np.ndarray | np.generic) else cuda.cupy


def is_array(value: Any) -> bool:
    """Whether a value is a variable, or an array that Chainer computes on."""
    return isinstance(value, Variable | np.ndarray) or (cuda.available and isinstance(value, cuda.ndarray))


def array(value: Any, name: str | None = None, device: str | None = None) -> Any:
    """An array that owns its storage, on a device (the one where it is, or the host, when not given)."""
    value = raw(value) if is_array(value) or isinstance(value, np.generic) else np.asarray(value)
    value = value.astype(value.dtype if name is None else dtype(name), copy=True, order="C")
    return value if device is None else chainer.get_device(device).send(value)


def numpy(value: Any) -> np.ndarray:
    """A NumPy array that owns its storage."""
    value = raw(value)
    return np.array(value, order="C") if isinstance(value, np.ndarray) else cuda.to_cpu(value)


def devices() -> list[str]:
    """``"@numpy"``, then every GPU that CuPy can use."""
    return [HOST, *(f"@cupy:{index}" for index in range(_gpus()))]


def precision() -> dict[str, str]:
    """What decides the precision of float32 results."""
    settings = {"float64": "on", "chainer.config.dtype": str(np.dtype(chainer.config.dtype))}
    if _gpus():
        settings |= {
            "TF32 products": "on" if os.environ.get("CUPY_TF32", "0") not in ("", "0") else "off",
            "cuDNN": "on" if cuda.cudnn_enabled else "off",
        }
    return settings


def _gpus() -> int:
    # With CuPy installed and no GPU present, chainer.backends.cuda.available is True all the same.
    if not cuda.available or not cuda.cupy.is_available():
        return 0
    return cuda.cupy.cuda.runtime.getDeviceCount()


def _comparison(name: str) -> Any:
    def compare(self: Variable, other: Any) -> Any:
        return array_module(self).asarray(getattr(self.array, name)(raw(other)))

    compare.__name__, compare.__doc__ = name, "Compare element by element; the result is an array of truth values."
    return compare


# Chainer raises TypeError when a variable is compared. Networks that are written once compare arrays, so here
# the values are compared, and the result is a plain array. Nothing that worked before changes.
for _name in ("__lt__", "__le__", "__eq__", "__ne__", "__gt__", "__ge__"):
    setattr(Variable, _name, _comparison(_name))
