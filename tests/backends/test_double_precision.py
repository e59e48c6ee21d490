"""Attention of JAX within a comparison, against the formula in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends

jax = pytest.importorskip("jax")


def _expected(query, key, value, allowed):
    """Attention of arrays (batch, length, heads, width) by loops over samples and heads."""
    out = np.zeros_like(query)
    shared = query.shape[2] // key.shape[2]
    for sample in range(len(query)):
        for head in range(query.shape[2]):
            q, k, v = (
                query[sample, :, head],
                key[sample, :, head // shared],
                value[sample, :, head // shared],
            )
            scores = np.where(allowed[sample], q @ k.T / np.sqrt(q.shape[-1]), -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            out[sample, :, head] = weights / weights.sum(-1, keepdims=True) @ v
    return out


def _arrays(heads=3, shared=1):
    rng = np.random.default_rng(0)
    query = rng.normal(size=(2, 5, heads, 7))
    key, value = rng.normal(size=(2, 2, 5, heads // shared, 7))
    return query, key, value


@pytest.mark.parametrize("shared", [1, 2])
def test_attention_stays_in_double_precision_within_a_comparison(shared):
    query, key, value = _arrays(heads=4, shared=shared)
    allowed = np.arange(5) < np.array([5, 3])[:, None, None]
    causal = np.tril(np.ones((5, 5), bool)) & allowed
    with backends.get("jax").preserve_global_state():
        mask = jax.numpy.asarray(np.broadcast_to(allowed, (2, 5, 5))[:, None])
        found = jax.nn.dot_product_attention(
            query, key, value, mask=mask, is_causal=True
        )
        one = jax.nn.dot_product_attention(query[0], key[0], value[0])
    assert_allclose(found, _expected(query, key, value, causal), rtol=1e-13)
    every = np.ones((2, 5, 5), bool)
    assert_allclose(one, _expected(query, key, value, every)[0], rtol=1e-13)


def test_it_is_jax_s_own_afterwards_and_for_other_types():
    own = jax.nn.dot_product_attention
    query, key, value = (x.astype("float32") for x in _arrays())
    before = own(query, key, value)
    with backends.get("jax").preserve_global_state():
        within = jax.nn.dot_product_attention(query, key, value)
        cut = jax.nn.dot_product_attention(*_arrays(), local_window_size=(1, 1))
    assert jax.nn.dot_product_attention is own
    assert_array_equal(within, before)
    assert cut.dtype == np.float64  # what the formula does not know is left to JAX
