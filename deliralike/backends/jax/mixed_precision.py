"""Mixed precision on JAX: the functions of `nn` cast their arrays.

A compiled program is made for each precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deliralike.backends.jax.functional import JaxFunctions, value_of
from deliralike.optim.precision import EXACT, NORMS, PRODUCTS, autocast

_precision = jax.make_user_context(
    None
)  # part of what JAX keys its compiled programs by, yours as well
_CAST = (jnp.float32, jnp.bfloat16, jnp.float16)


def computing_in(precision: str) -> AbstractContextManager[Any]:
    """A context in which the functions of `nn` compute in a shorter type."""
    return _precision(precision)


def cast(value: Any, dtype: str) -> Any:
    """An array of float32 or of a shorter type in another of these; anything else as it is."""
    array = value_of(value)
    known = isinstance(array, jax.Array | np.ndarray) and array.dtype in _CAST
    return jnp.asarray(array).astype(dtype) if known else value


@jax.jit
def all_finite(values: Sequence[jax.Array]) -> jax.Array:
    """Whether no array holds a NaN or an infinity."""
    return jnp.all(jnp.array([jnp.isfinite(value).all() for value in values]))


@jax.jit
def weighted(
    values: list[jax.Array], weight: float, totals: list[jax.Array] | None
) -> list[jax.Array]:
    """Arrays times a weight, added to totals if there are any."""
    products = [value * weight for value in values]
    return (
        products
        if totals is None
        else [total + new for total, new in zip(totals, products, strict=True)]
    )


@jax.jit
def blended(averages: list[jax.Array], values: list[jax.Array], weight: float) -> list[jax.Array]:
    """Each average moved towards its value by a weight."""
    return [
        average + (value - average) * weight
        for average, value in zip(averages, values, strict=True)
    ]


def _current() -> str | None:
    return _precision.value


for _name in (*PRODUCTS, *EXACT, *NORMS):
    _options: dict[str, Any] = (
        {} if _name in PRODUCTS else {"dtype": "float32", "back": _name in NORMS}
    )
    setattr(JaxFunctions, _name, autocast(getattr(JaxFunctions, _name), _current, cast, **_options))
