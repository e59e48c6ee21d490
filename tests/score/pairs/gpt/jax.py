"""The language model in flax; the head is the embedding, the mask is made where it is needed."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

WEIGHTS = "load"


def attention(q, k, v):
    """Causal attention; batch, time, head, features."""
    t, d = q.shape[1], q.shape[-1]
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(d)
    causal = jnp.tril(jnp.ones((t, t), bool))
    logits = jnp.where(causal, logits, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(logits, axis=-1), v)


class DecoderBlock(nnx.Module):
    def __init__(self, dim, heads, *, rngs):
        self.heads = heads
        self.norm_attn = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.norm_mlp = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)
        self.up = nnx.Linear(dim, 2 * dim, rngs=rngs)
        self.down = nnx.Linear(2 * dim, dim, rngs=rngs)

    def __call__(self, x):
        b, t, c = x.shape
        qkv = self.qkv(self.norm_attn(x)).reshape(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        x = x + self.out(attention(q, k, v).reshape(b, t, c))
        y = jax.nn.gelu(self.up(self.norm_mlp(x)))
        return x + self.down(y)


class LanguageModel(nnx.Module):
    def __init__(self, vocab=11, length=8, dim=12, *, rngs):
        self.tok = nnx.Embed(vocab, dim, rngs=rngs)
        self.pos = nnx.Embed(length, dim, rngs=rngs)
        self.blocks = nnx.List([DecoderBlock(dim, 2, rngs=rngs) for _ in range(2)])
        self.norm = nnx.LayerNorm(dim, epsilon=1e-5, rngs=rngs)

    def __call__(self, tokens):
        x = self.tok(tokens) + self.pos(jnp.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.tok.attend(self.norm(x))


def network(reference):
    return LanguageModel(rngs=nnx.Rngs(0))


def loss(network, tokens, targets):
    logits = network(tokens)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


OPTIMIZERS = {"adamw": lambda network: optax.adamw(1e-3, b1=0.9, b2=0.95, weight_decay=0.1)}
