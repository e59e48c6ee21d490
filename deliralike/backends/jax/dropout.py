"""JAX's and flax's own dropout by given factors in the place of masks, for comparisons."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike.backends.replaced_functions import wrapped_by_name

_Factors = Callable[..., np.ndarray]


def override_dropout_masks(factors: _Factors) -> AbstractContextManager[None]:
    """Let flax's own dropout multiply by given factors; see `Backend`.

    Masks that are drawn by `jax.random.bernoulli`, as those of weights of attention, keep what
    these factors keep; `jax.random.normal` gives the noise of the factors.
    """
    return wrapped_by_name(
        {
            (nnx.Dropout, "__call__"): partial(_dropout, factors),
            (jax.random, "bernoulli"): partial(_bernoulli, factors),
            (jax.random, "normal"): partial(_normal, factors),
        }
    )


def _dropout(
    factors: _Factors, original: Any, layer: nnx.Dropout, inputs: Any, **keywords: Any
) -> Any:
    given = keywords.get("deterministic")
    if layer.rate == 0.0 or (layer.deterministic if given is None else given):
        return original(layer, inputs, **keywords)
    shape = list(inputs.shape)
    for dim in layer.broadcast_dims:
        shape[dim] = 1
    return inputs * jnp.asarray(factors(tuple(shape), layer.rate), inputs.dtype)


def _bernoulli(
    factors: _Factors,
    original: Any,
    key: Any,
    p: Any = 0.5,
    shape: Any = None,
    **keywords: Any,
) -> Any:
    if shape is None or not isinstance(p, float):
        return original(key, p, shape, **keywords)
    return jnp.asarray(factors(tuple(shape), round(1.0 - p, 12)) > 0)


def _normal(
    factors: _Factors,
    original: Any,
    key: Any,
    shape: Any = (),
    dtype: Any = float,
    **keywords: Any,
) -> Any:
    return jnp.asarray(factors(tuple(shape), None, "normal"), dtype)
