"""The classifier in JAX: a tree of parameters and pure functions."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax import lax

WEIGHTS = "judge"


def layer_norm(x, scale, shift, eps=1e-5):
    x = jax.nn.standardize(x, axis=-1, epsilon=eps)
    return x * scale + shift


def rms_norm(x, scale, eps=1e-6):
    ms = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
    return scale * x / jnp.sqrt(ms + eps)


def unit(x):
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def banded_attention(p, x, window=2):
    q = jnp.dot(x, p["q"])
    k = jnp.dot(x, p["k"])
    v = jnp.dot(x, p["v"])
    logits = jnp.einsum("bqd,bkd->bqk", q, k) * q.shape[-1] ** -0.5
    row = lax.broadcasted_iota(jnp.int32, logits.shape, 1)
    column = lax.broadcasted_iota(jnp.int32, logits.shape, 2)
    allowed = (column <= row) & (column >= row - window)
    logits = jnp.where(allowed, logits, -jnp.inf)
    weights = jax.nn.softmax(logits, axis=-1)
    return jnp.einsum("bqk,bkd->bqd", weights, v)


def apply(p, x):
    h = jax.nn.gelu(jnp.dot(x, p["embed"]["w"]) + p["embed"]["b"], approximate=False)
    h = layer_norm(h, p["norm"]["scale"], p["norm"]["shift"])
    h = h + banded_attention(p["attention"], h)
    y = rms_norm(h, p["rms"])
    y = jax.nn.silu(y @ p["mlp"]["gate"]) * (y @ p["mlp"]["up"])
    h = h + y @ p["mlp"]["down"]
    h = lax.conv_general_dilated(
        h, p["filters"], (1,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC")
    )
    h = jax.nn.elu(h)
    h = lax.reduce_window(h, 0.0, lax.add, (1, 3, 1), (1, 2, 1), "VALID") / 3
    h = jax.nn.softplus(h.max(axis=1))
    return p["temperature"] * unit(h) @ unit(p["prototypes"]).T


class Classifier(nnx.Module):
    """A holder of the parameters."""

    def __init__(self, params):
        self.params = nnx.data(jax.tree.map(nnx.Param, params))

    def __call__(self, x):
        return apply(
            jax.tree.map(lambda p: p[...], self.params, is_leaf=lambda p: isinstance(p, nnx.Param)),
            x,
        )


def convert(sd):
    """The tree of parameters from a state dict."""
    t = {name: jnp.asarray(value.numpy()) for name, value in sd.items()}
    return {
        "embed": {"w": t["w_in"], "b": t["b_in"]},
        "norm": {"scale": t["norm_scale"], "shift": t["norm_shift"]},
        "attention": {"q": t["wq"], "k": t["wk"], "v": t["wv"]},
        "rms": t["rms"],
        "mlp": {"gate": t["w_gate"], "up": t["w_up"], "down": t["w_down"]},
        "filters": jnp.transpose(t["filters"], (2, 1, 0)),
        "prototypes": t["prototypes"],
        "temperature": t["temperature"],
    }


def network(reference):
    return Classifier(convert(reference.state_dict()))


def loss(network, x, y):
    logits = network(x)
    ce = optax.losses.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    z = jax.scipy.special.logsumexp(logits, axis=-1)
    return ce + 1e-2 * jnp.mean(z**2)


OPTIMIZERS = {"momentum": lambda network: optax.sgd(0.02, momentum=0.9, nesterov=True)}
