"""Mixed precision on Chainer: products and convolutions compute in float16 and return float32.

Chainer does not add arrays of different types, so the result of a product is cast back at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.chainer.functional import ChainerFunctions
from deliralike.optim.precision import PRODUCTS, autocast

_precision: ContextVar[str | None] = ContextVar("deliralike_chainer_precision", default=None)
_CAST = ("float32", "float16")


@contextmanager
def computing_in(precision: str) -> Iterator[None]:
    """Let products compute in a shorter type for a ``with`` block."""
    token = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(token)


def cast(value: Any, dtype: str) -> Any:
    """Cast an array of float32 or float16 to the other type; return anything else as it is."""
    if not arrays.is_array(value) or value.dtype.name not in _CAST:
        return value
    if isinstance(value, Variable):
        return chainer.functions.cast(value, dtype)
    return value.astype(dtype)


for _name in PRODUCTS:
    _function = autocast(getattr(ChainerFunctions, _name), _precision.get, cast, back=True)
    setattr(ChainerFunctions, _name, _function)
