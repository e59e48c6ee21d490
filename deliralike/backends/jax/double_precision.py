"""Functions of JAX that leave double precision, as they are in double precision.

`jax.nn.dot_product_attention`, which attention of flax calls, computes its softmax in float32
whatever it is given. In float32, in which networks run, that is no rounding of its own; in float64,
in which they are compared, it would hide everything below 1e-7.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from deliralike.backends import replaced_functions

SINGLE = jax.nn.dot_product_attention
_MASKED = -0.7 * float(
    jnp.finfo(jnp.float32).max
)  # what JAX takes for a score that is masked


@contextmanager
def preserve() -> Iterator[None]:
    """Keep double precision in those functions, in a ``with`` block."""
    known = {id(SINGLE): (SINGLE, attention)}
    with replaced_functions.replaced(known, (), [jax.nn]):
        yield


@functools.wraps(SINGLE)
def attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    **others: Any,
) -> Any:
    """Do as `jax.nn.dot_product_attention`; arrays of float64 stay so.

    With arguments that are rarer than these it is JAX's own.
    """
    settings = {name: one for name, one in others.items() if one is not None}
    if settings.pop("implementation", "xla") != "xla" or any(settings.values()):
        is_wide = False
    else:
        is_wide = jnp.result_type(query) == jnp.float64
    if not is_wide:
        how = {"scale": scale, "is_causal": is_causal, **others}
        return SINGLE(query, key, value, bias, mask, **how)
    query, key, value = (jnp.asarray(one) for one in (query, key, value))
    if query.ndim == 3:
        query, key, value = query[None], key[None], value[None]
        return _attention(query, key, value, bias, mask, scale, is_causal)[0]
    return _attention(query, key, value, bias, mask, scale, is_causal)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any,
    mask: Any,
    scale: float | None,
    is_causal: bool,
) -> Any:
    """Return the attention of arrays ``(batch, length, heads, width)``.

    Several heads of the queries may share one head of keys and values.
    """
    shared = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(one, shared, axis=2) for one in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * jnp.einsum("bqhd,bkhd->bhqk", query, key)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = jnp.where(mask, scores, _MASKED)
    if is_causal:
        visible = jnp.tri(scores.shape[2], scores.shape[3], dtype=bool)
        scores = jnp.where(visible, scores, _MASKED)
    weights = jax.nn.softmax(scores, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, value)
