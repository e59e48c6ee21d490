"""Mixed precision on Chainer: products and convolutions compute in float16 and return float32.

Chainer does not add arrays of different types, so the result of a product is cast back at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import wraps
from typing import Any

from deliralike.backends.chainer import arrays
from deliralike.backends.chainer.arrays import Variable, chainer
from deliralike.backends.chainer.functional import ChainerFunctions
from deliralike.context import context_value
from deliralike.nn.arguments import PRODUCTS, autocast
from deliralike.nn.functional import Functions

_precision: ContextVar[str | None] = ContextVar(
    "deliralike_chainer_precision", default=None
)
_CAST = ("float32", "float16")


def computing_in(precision: str) -> AbstractContextManager[Any]:
    """Let products compute in a shorter type for a ``with`` block."""
    return context_value(_precision, precision)


def cast(value: Any, dtype: str) -> Any:
    """Cast an array of float32 or float16 to the other type; return anything else as it is."""
    if not arrays.is_array(value) or value.dtype.name not in _CAST:
        return value
    if isinstance(value, Variable):
        return chainer.functions.cast(value, dtype)
    return value.astype(dtype)


for _name in PRODUCTS:
    _function = autocast(
        getattr(ChainerFunctions, _name), _precision.get, cast, back=True
    )
    setattr(ChainerFunctions, _name, _function)


def _composed_when_short(name: str) -> Any:
    """Return a function of one node that is composed of products where these are shortened."""
    in_one_node = getattr(ChainerFunctions, name)
    composed = getattr(Functions, name)

    @wraps(in_one_node)
    def function(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_short = _precision.get() is not None
        return (composed if is_short else in_one_node)(self, *args, **kwargs)

    return function


for _name in ("lstm", "rnn", "gru"):
    setattr(ChainerFunctions, _name, _composed_when_short(_name))
