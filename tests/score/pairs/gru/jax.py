"""The padded GRU in flax: plain parameters and a scan over time."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

WEIGHTS = "judge"


class GRU(nnx.Module):
    """Holds its state at padding, so that the last one is that after the last word."""

    def __init__(self, features, hidden):
        self.w_x = nnx.Param(jnp.zeros((features, 3 * hidden)))
        self.w_h = nnx.Param(jnp.zeros((hidden, 3 * hidden)))
        self.b_x = nnx.Param(jnp.zeros(3 * hidden))
        self.b_h = nnx.Param(jnp.zeros(3 * hidden))

    def __call__(self, x, mask):
        w_h, b_h = self.w_h[...], self.b_h[...]

        def step(h, inputs):
            x_t, valid = inputs
            xr, xz, xn = jnp.split(x_t, 3, axis=-1)
            hr, hz, hn = jnp.split(h @ w_h + b_h, 3, axis=-1)
            r = jax.nn.sigmoid(xr + hr)
            z = jax.nn.sigmoid(xz + hz)
            n = jnp.tanh(xn + r * hn)
            new = (1 - z) * n + z * h
            h = jnp.where(valid[:, None], new, h)
            return h, h

        projected = jnp.einsum("ntc,ck->tnk", x, self.w_x[...]) + self.b_x[...]
        start = jnp.zeros_like(projected[0, :, : w_h.shape[0]])
        final, _ = jax.lax.scan(step, start, (projected, mask.T))
        return final


class Net(nnx.Module):
    """Words, their states, and their mean."""

    def __init__(self, rngs):
        self.tokens = nnx.Embed(13, 6, rngs=rngs)
        self.rnn = GRU(6, 8)
        self.fc = nnx.Linear(14, 3, rngs=rngs)

    def __call__(self, tokens):
        mask = tokens != 0
        x = self.tokens(tokens) * mask[..., None]
        final = self.rnn(x, mask)
        mean = x.sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return self.fc(jnp.concatenate([final, mean], axis=-1))


def loss(network, tokens, labels):
    logits = network(tokens)
    targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)
    return -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1).mean()


def network(reference):
    """The port; weights are copied by hand."""
    net = Net(nnx.Rngs(0))
    weights = {name: p.detach().numpy() for name, p in reference.named_parameters()}
    net.tokens.embedding[...] = weights["embedding.weight"]
    net.rnn.w_x[...] = weights["gru.weight_ih_l0"].T
    net.rnn.w_h[...] = weights["gru.weight_hh_l0"].T
    net.rnn.b_x[...] = weights["gru.bias_ih_l0"]
    net.rnn.b_h[...] = weights["gru.bias_hh_l0"]
    net.fc.kernel[...] = weights["classifier.weight"].T
    net.fc.bias[...] = weights["classifier.bias"]
    return net
