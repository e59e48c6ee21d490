"""The same in flax, channels last throughout."""

import jax.numpy as jnp
from flax import nnx
from jax.nn import gelu, log_softmax, one_hot

WEIGHTS = "load"


def layer_norm(dim, rngs):
    return nnx.LayerNorm(dim, epsilon=1e-6, use_fast_variance=False, rngs=rngs)


class Stage(nnx.Module):
    """A block of a depthwise convolution and a perceptron of its pixels."""

    def __init__(self, dim, rngs):
        self.depthwise = nnx.Conv(dim, dim, (5, 5), feature_group_count=dim, rngs=rngs)
        self.ln = layer_norm(dim, rngs)
        self.expand = nnx.Linear(dim, 4 * dim, rngs=rngs)
        self.project = nnx.Linear(4 * dim, dim, rngs=rngs)
        self.layer_scale = nnx.Param(jnp.full((dim,), 1e-6))

    def __call__(self, x):
        y = self.ln(self.depthwise(x))
        y = self.expand(y)
        y = gelu(y, approximate=False)
        y = self.project(y)
        return x + self.layer_scale[...] * y


class ConvNeXt(nnx.Module):
    def __init__(self, rngs, dims=(6, 10)):
        self.stem = nnx.Conv(3, dims[0], (2, 2), strides=2, padding="VALID", rngs=rngs)
        self.stem_ln = layer_norm(dims[0], rngs)
        self.body = Stage(dims[0], rngs)
        self.down_ln = layer_norm(dims[0], rngs)
        self.down = nnx.Conv(dims[0], dims[1], (2, 2), strides=2, padding="VALID", rngs=rngs)
        self.tail = Stage(dims[1], rngs)
        self.head_ln = layer_norm(dims[1], rngs)
        self.head = nnx.Linear(dims[1], 5, rngs=rngs)

    def __call__(self, x):
        x = self.stem_ln(self.stem(x))
        x = self.body(x)
        x = self.down(self.down_ln(x))
        x = self.tail(x)
        x = jnp.mean(x, axis=(1, 2))
        return self.head(self.head_ln(x))


def network(reference):
    return ConvNeXt(nnx.Rngs(3))


def loss(network, x, y):
    weight = jnp.array([0.5, 1.0, 2.0, 1.0, 1.5])[y]
    nll = -jnp.sum(one_hot(y, 5) * log_softmax(network(x)), axis=-1)
    return jnp.sum(weight * nll) / jnp.sum(weight)
