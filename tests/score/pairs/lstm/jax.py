"""The classifier on flax, with an LSTM of its own."""

import jax
import jax.numpy as jnp
from flax import nnx

WEIGHTS = "judge"


class LSTMCell(nnx.Module):
    """One step; the gates are computed together."""

    def __init__(self, inputs, hidden, rngs):
        self.hidden = hidden
        self.ih = nnx.Linear(inputs, 4 * hidden, rngs=rngs)
        self.hh = nnx.Linear(hidden, 4 * hidden, rngs=rngs)

    def __call__(self, carry, x):
        h, c = carry
        gates = self.ih(x) + self.hh(h)
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h


class Classifier(nnx.Module):
    """Embedding, cell by cell, head."""

    def __init__(self, vocab, dim, hidden, classes, rngs):
        self.embedding = nnx.Embed(vocab, dim, rngs=rngs)
        self.cell = LSTMCell(dim, hidden, rngs)
        self.dense = nnx.Linear(hidden, 6, rngs=rngs)
        self.logits = nnx.Linear(6, classes, rngs=rngs)

    def __call__(self, tokens):
        x = self.embedding(tokens)
        h = jnp.zeros((x.shape[0], self.cell.hidden), x.dtype)
        carry = (h, h)
        for t in range(x.shape[1]):
            carry, y = self.cell(carry, x[:, t])
        return self.logits(jnp.tanh(self.dense(y)))


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


def network(reference):
    """The port with the weights of the reference."""
    model = Classifier(11, 7, 9, 4, nnx.Rngs(0))
    model.embedding.embedding.set_value(array(reference.embed.weight))
    lstm = reference.lstm
    model.cell.ih.kernel.set_value(array(lstm.weight_ih_l0).T)
    model.cell.ih.bias.set_value(array(lstm.bias_ih_l0))
    model.cell.hh.kernel.set_value(array(lstm.weight_hh_l0).T)
    model.cell.hh.bias.set_value(array(lstm.bias_hh_l0))
    for layer, name in ((model.dense, "fc"), (model.logits, "out")):
        source = getattr(reference, name)
        layer.kernel.set_value(array(source.weight).T)
        layer.bias.set_value(array(source.bias))
    return model
