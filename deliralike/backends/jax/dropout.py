"""JAX's and flax's own dropout by given factors in the place of masks, for comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from deliralike.backends.replaced_functions import replaced_by_name

_Factors = Callable[..., np.ndarray]


@contextmanager
def override_dropout_masks(factors: _Factors) -> Iterator[None]:
    """Let flax's own dropout multiply by given factors; see `Backend`.

    Masks that are drawn by `jax.random.bernoulli`, as those of weights of attention, keep what
    these factors keep; `jax.random.normal` gives the noise of the factors.
    """
    replacements = {
        (nnx.Dropout, "__call__"): _dropout(nnx.Dropout.__call__, factors),
        (jax.random, "bernoulli"): _bernoulli(jax.random.bernoulli, factors),
        (jax.random, "normal"): _normal(factors),
    }
    with replaced_by_name(replacements):
        yield


def _dropout(original: Callable[..., Any], factors: _Factors) -> Callable[..., Any]:
    def dropout(layer: nnx.Dropout, inputs: Any, **keywords: Any) -> Any:
        given = keywords.get("deterministic")
        if layer.rate == 0.0 or (layer.deterministic if given is None else given):
            return original(layer, inputs, **keywords)
        shape = list(inputs.shape)
        for dim in layer.broadcast_dims:
            shape[dim] = 1
        return inputs * jnp.asarray(factors(tuple(shape), layer.rate), inputs.dtype)

    return dropout


def _bernoulli(original: Callable[..., Any], factors: _Factors) -> Callable[..., Any]:
    def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, **keywords: Any) -> Any:
        if shape is None or not isinstance(p, float):
            return original(key, p, shape, **keywords)
        return jnp.asarray(factors(tuple(shape), round(1.0 - p, 12)) > 0)

    return bernoulli


def _normal(factors: _Factors) -> Callable[..., Any]:
    def normal(key: Any, shape: Any = (), dtype: Any = float, **keywords: Any) -> Any:
        return jnp.asarray(factors(tuple(shape), None, "normal"), dtype)

    return normal
