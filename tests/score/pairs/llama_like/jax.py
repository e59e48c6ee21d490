"""The language model on flax."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

WEIGHTS = "judge"
DIM, N_HEADS, N_KV = 16, 4, 2


class RMSNorm(nnx.Module):
    def __init__(self, dim, eps=1e-5):
        self.scale = nnx.Param(jnp.ones(dim))
        self.eps = eps

    def __call__(self, x):
        variance = jnp.mean(jnp.square(x), axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(variance + self.eps) * self.scale


def rope(x, theta=10000.0):
    """x is (batch, time, heads, dim)."""
    half = x.shape[-1] // 2
    inverse = theta ** (-jnp.arange(half, dtype=x.dtype) / half)
    angles = jnp.arange(x.shape[1], dtype=x.dtype)[:, None, None] * inverse
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    x1, x2 = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([x1 * cos - x2 * sin, x2 * cos + x1 * sin], axis=-1)


class Attention(nnx.Module):
    def __init__(self, rngs):
        head = DIM // N_HEADS
        self.q_proj = nnx.Linear(DIM, DIM, use_bias=False, rngs=rngs)
        self.k_proj = nnx.Linear(DIM, N_KV * head, use_bias=False, rngs=rngs)
        self.v_proj = nnx.Linear(DIM, N_KV * head, use_bias=False, rngs=rngs)
        self.o_proj = nnx.Linear(DIM, DIM, use_bias=False, rngs=rngs)

    def __call__(self, x):
        b, t, _ = x.shape
        q = rope(self.q_proj(x).reshape(b, t, N_HEADS, -1))
        k = rope(self.k_proj(x).reshape(b, t, N_KV, -1))
        v = self.v_proj(x).reshape(b, t, N_KV, -1)
        k, v = (jnp.repeat(each, N_HEADS // N_KV, axis=2) for each in (k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
        causal = jnp.tril(jnp.ones((t, t), dtype=bool))
        scores = jnp.where(causal, scores, -jnp.inf)
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return self.o_proj(out.reshape(b, t, DIM))


class SwiGLU(nnx.Module):
    def __init__(self, rngs):
        self.gate = nnx.Linear(DIM, 12, use_bias=False, rngs=rngs)
        self.up = nnx.Linear(DIM, 12, use_bias=False, rngs=rngs)
        self.down = nnx.Linear(12, DIM, use_bias=False, rngs=rngs)

    def __call__(self, x):
        return self.down(jax.nn.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nnx.Module):
    def __init__(self, rngs):
        self.input_norm = RMSNorm(DIM)
        self.self_attn = Attention(rngs)
        self.post_norm = RMSNorm(DIM)
        self.mlp = SwiGLU(rngs)

    def __call__(self, x):
        x = x + self.self_attn(self.input_norm(x))
        return x + self.mlp(self.post_norm(x))


class Model(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(17, DIM, rngs=rngs)
        self.blocks = nnx.List([DecoderLayer(rngs) for _ in range(2)])
        self.final_norm = RMSNorm(DIM)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.embed.attend(self.final_norm(x))


def loss(network, tokens, targets):
    return optax.softmax_cross_entropy_with_integer_labels(network(tokens), targets).mean()


def load_layer(block, weights):
    """Copy the weights of one block, as arrays by PyTorch's names."""
    block.input_norm.scale.set_value(weights["attention_norm.weight"])
    block.post_norm.scale.set_value(weights["ffn_norm.weight"])
    attention, mlp = block.self_attn, block.mlp
    attention.q_proj.kernel.set_value(turned(weights["attention.wq.weight"]))
    attention.k_proj.kernel.set_value(turned(weights["attention.wk.weight"]))
    attention.v_proj.kernel.set_value(turned(weights["attention.wv.weight"]))
    attention.o_proj.kernel.set_value(turned(weights["attention.wo.weight"]))
    mlp.gate.kernel.set_value(turned(weights["feed_forward.w1.weight"]))
    mlp.down.kernel.set_value(turned(weights["feed_forward.w2.weight"]))
    mlp.up.kernel.set_value(turned(weights["feed_forward.w3.weight"]))


def turned(weight):
    return jnp.swapaxes(weight, -1, -2)


def network(reference):
    model = Model(nnx.Rngs(0))
    layers = []
    for layer in reference.layers:
        named = layer.state_dict().items()
        layers.append({name: jnp.asarray(value.numpy()) for name, value in named})
    for block, weights in zip(model.blocks, layers):
        load_layer(block, weights)
    table = jnp.asarray(reference.tok_embeddings.weight.detach().numpy())
    model.embed.embedding.set_value(table)
    model.final_norm.scale.set_value(jnp.asarray(reference.norm.weight.detach().numpy()))
    return model
