"""Networks of flax in the habits of real code."""

import jax.numpy as jnp
from flax import nnx

from deliralike import backends
from tests.strangers.case import NOT_KEPT, TEXTS, Case, X, Y


def mse(network, x, y):
    return ((network(x) - y) ** 2).mean()


def in_dict(network, inputs, y):
    return ((network(inputs)["out"] - y) ** 2).mean()


def linear(inputs, outputs):
    return nnx.Linear(inputs, outputs, param_dtype=jnp.float64, rngs=nnx.Rngs(3))


class Linear(nnx.Module):
    """The base of most: one linear layer."""

    def __init__(self):
        self.layer = linear(4, 2)

    def __call__(self, x):
        return self.layer(x)


class Named(Linear):
    def __init__(self):
        super().__init__()
        self.backend, self.root, self.native = "gloo", "here", 1
        self.start_values, self.training = None, "always"


class OfDict(Linear):
    def __call__(self, inputs):
        return {"out": self.layer(inputs["a"] + inputs["b"]), "in": inputs["a"]}


class OwnMode(Linear):
    """A mode of its own, which `train` and `eval` set."""

    def __init__(self):
        super().__init__()
        self.is_training = True

    def train(self, **attributes):
        super().train(**attributes)
        self.is_training = True

    def eval(self, **attributes):
        super().eval(**attributes)
        self.is_training = False

    def __call__(self, x):
        return self.layer(x) * (2.0 if self.is_training else 1.0)


class Clipped(Linear):
    """A parameter that forward sets, as the first WGAN's."""

    def __call__(self, x):
        kernel = self.layer.kernel
        kernel[...] = jnp.clip(kernel[...], -0.2, 0.2)
        return self.layer(x)


class Counting(Linear):
    """A counter of Python's, which changes what is computed."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return self.layer(x) / (1 + self.calls)


class Cached(Linear):
    """State in an `nnx.Cache`, and in a buffer of a kind of its own."""

    def __init__(self):
        super().__init__()
        self.seen = nnx.Cache(jnp.zeros((), jnp.float64))
        self.mean = nnx.BatchStat(jnp.zeros(4, jnp.float64))

    def __call__(self, x):
        self.seen[...] += 1.0
        self.mean[...] = 0.9 * self.mean[...] + 0.1 * self.layer.kernel[...][:, 0]
        return self.layer(x - self.mean[...]) / self.seen[...]


class Spectral(nnx.Module):
    def __init__(self):
        self.norm = nnx.SpectralNorm(
            linear(4, 5), param_dtype=jnp.float64, rngs=nnx.Rngs(1)
        )
        self.out = linear(5, 2)

    def __call__(self, x):
        return self.out(jnp.tanh(self.norm(x)))


class Tied(nnx.Module):
    """One variable under two names, and one layer called twice."""

    def __init__(self):
        self.there, self.back = linear(4, 4), linear(4, 4)
        self.back.kernel = self.there.kernel
        self.out = linear(4, 2)

    def __call__(self, x):
        return self.out(self.back(jnp.tanh(self.there(x)))) + self.out(x)


class Stacked(nnx.Module):
    """Layers made by `nnx.vmap` and run by `nnx.scan`."""

    def __init__(self):
        @nnx.split_rngs(splits=3)
        @nnx.vmap
        def make(rngs):
            return nnx.Linear(4, 4, param_dtype=jnp.float64, rngs=rngs)

        self.layers = make(nnx.Rngs(3))
        self.out = linear(4, 2)

    def __call__(self, x):
        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def forward(x, layer):
            return jnp.tanh(layer(x))

        return self.out(forward(x, self.layers))


class Texts(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(3)
        types = {"param_dtype": jnp.float64, "rngs": rngs}
        self.embed = nnx.Embed(9, 8, **types)
        self.attend = nnx.MultiHeadAttention(2, 8, decode=False, **types)
        self.norm = nnx.LayerNorm(8, **types)
        self.out = nnx.Linear(8, 2, **types)

    def __call__(self, ids):
        hidden = self.embed(ids)
        is_word = (ids != 0)[:, None, None]
        hidden = self.norm(hidden + self.attend(hidden, mask=is_word))
        return self.out(hidden[:, 0])


def in_float64(make):
    def build():
        backends.get("jax").check_dtype("float64")
        return make()

    return build


def case(make, loss=mse, batch=(X, Y), **options):
    return Case(in_float64(make), loss, batch, **options)


NETWORKS = {
    "attributes of our names": case(Named),
    "a dict of inputs": case(OfDict, in_dict, ({"a": X, "b": 2 * X}, Y)),
    "a train and eval of its own": case(OwnMode),
    "a parameter that forward sets": case(Clipped),
    "a counter of Python": case(Counting, refused={"resume": NOT_KEPT}),
    "a cache and a buffer": case(Cached),
    "spectral norm": case(Spectral),
    "tied and shared": case(Tied),
    "layers by vmap and scan": case(Stacked),
    "padded texts": case(Texts, batch=(TEXTS, Y)),
}
