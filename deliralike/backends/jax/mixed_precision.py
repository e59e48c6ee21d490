"""Mixed precision on JAX: the functions of `nn` cast their arrays.

A compiled program is made for each precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deliralike.backends.jax.functional import JaxFunctions, value_of
from deliralike.nn.arguments import EXACT, NORMS, PRODUCTS, autocast

# A context in which the functions of `nn` compute in a shorter type. It is part of what JAX keys
# its compiled programs by, yours as well.
computing_in = jax.make_user_context(None)
_CAST = (jnp.float32, jnp.bfloat16, jnp.float16)


def cast(value: Any, dtype: str) -> Any:
    """An array of float32 or of a shorter type in another of these; anything else as it is."""
    array = value_of(value)
    if isinstance(array, jax.Array | np.ndarray) and array.dtype in _CAST:
        return jnp.asarray(array).astype(dtype)
    return value


@jax.jit
def all_finite(values: Sequence[jax.Array]) -> jax.Array:
    """Return whether no array holds a NaN or an infinity."""
    are_finite = [jnp.isfinite(value).all() for value in values]
    return jnp.all(jnp.array(are_finite))


@jax.jit
def weighted(values: list[jax.Array], weight: float) -> list[jax.Array]:
    """Return each array times a weight."""
    return [value * weight for value in values]


def _added(
    totals: list[jax.Array], values: list[jax.Array], weight: float
) -> list[jax.Array]:
    """Totals plus arrays times a weight."""
    return [total + value * weight for total, value in zip(totals, values, strict=True)]


sums = jax.jit(_added)
added = jax.jit(_added, donate_argnums=0)  # in the storage of the totals


@jax.jit
def blended(
    averages: list[jax.Array], values: list[jax.Array], weight: float
) -> list[jax.Array]:
    """Return each average, moved towards its value by a weight."""
    blends = []
    for average, value in zip(averages, values, strict=True):
        blends.append(average + (value - average) * weight)
    return blends


def _current() -> str | None:
    return computing_in.value


def _autocast(name: str, **options: Any) -> None:
    function = getattr(JaxFunctions, name)
    setattr(JaxFunctions, name, autocast(function, _current, cast, **options))


for _name in PRODUCTS:
    _autocast(_name)
for _name in EXACT:
    _autocast(_name, dtype="float32", back=False)
for _name in NORMS:
    _autocast(_name, dtype="float32", back=True)
