"""The transformer in flax: one projection for queries, keys and values, and attention written out."""

# ruff: noqa: E501

import math

import jax
import jax.numpy as jnp
import numpy as np
from einops import rearrange
from flax import nnx

WEIGHTS = "judge"


class Attention(nnx.Module):
    def __init__(self, dim, num_heads, *, rngs: nnx.Rngs):
        self.num_heads = num_heads
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.proj = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(x), 3, axis=-1)
        q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=self.num_heads) for t in (q, k, v))
        scale = 1 / math.sqrt(q.shape[-1])
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * scale
        probs = jax.nn.softmax(scores, axis=-1)
        out = jnp.einsum("bhqk,bhkd->bhqd", probs, v)
        return self.proj(rearrange(out, "b h n d -> b n (h d)"))


class EncoderLayer(nnx.Module):
    def __init__(self, dim, num_heads, rate, *, rngs: nnx.Rngs):
        self.ln_1 = nnx.LayerNorm(dim, rngs=rngs)
        self.ln_2 = nnx.LayerNorm(dim, rngs=rngs)
        self.attention = Attention(dim, num_heads, rngs=rngs)
        self.wi = nnx.Linear(dim, 2 * dim, rngs=rngs)
        self.wo = nnx.Linear(2 * dim, dim, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.ln_1(x))
        h = self.ln_2(x)
        h = nnx.gelu(self.wi(h), approximate=False)
        return x + self.dropout(self.wo(h))


class ViT(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        dim = 12
        self.embed = nnx.Conv(3, dim, (4, 4), strides=(4, 4), padding="VALID", rngs=rngs)
        self.cls = nnx.Param(jnp.zeros((dim,)))
        self.pos = nnx.Param(jnp.zeros((7, dim)))
        self.layers = nnx.List([EncoderLayer(dim, 3, 0.1, rngs=rngs) for _ in range(2)])
        self.final = nnx.LayerNorm(dim, rngs=rngs)
        self.classifier = nnx.Linear(dim, 4, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, images):
        x = rearrange(self.embed(images), "b h w c -> b (h w) c")
        cls = jnp.tile(self.cls[...], (x.shape[0], 1, 1))
        x = jnp.concatenate([cls, x], axis=1) + self.pos[...]
        x = self.dropout(x)
        for layer in self.layers:
            x = layer(x)
        x = self.final(x)
        return self.classifier(x[:, 0])


def copy_linear(target, weight, bias):
    target.kernel.set_value(jnp.asarray(weight.detach().numpy().T))
    target.bias.set_value(jnp.asarray(bias.detach().numpy()))


def copy_norm(target, source):
    target.scale.set_value(jnp.asarray(source.weight.detach().numpy()))
    target.bias.set_value(jnp.asarray(source.bias.detach().numpy()))


def network(reference):
    vit = ViT(rngs=nnx.Rngs(0))
    kernel = reference.patch_embed.weight.detach().numpy()
    vit.embed.kernel.set_value(jnp.asarray(kernel.transpose(2, 3, 1, 0)))
    vit.embed.bias.set_value(jnp.asarray(reference.patch_embed.bias.detach().numpy()))
    vit.cls.set_value(jnp.asarray(np.squeeze(reference.cls_token.detach().numpy())))
    vit.pos.set_value(jnp.asarray(np.squeeze(reference.pos_embed.detach().numpy())))
    for mine, theirs in zip(vit.layers, reference.blocks):
        copy_linear(mine.attention.qkv, theirs.attn.in_proj_weight, theirs.attn.in_proj_bias)
        copy_linear(mine.attention.proj, theirs.attn.out_proj.weight, theirs.attn.out_proj.bias)
        copy_linear(mine.wi, theirs.mlp.fc1.weight, theirs.mlp.fc1.bias)
        copy_linear(mine.wo, theirs.mlp.fc2.weight, theirs.mlp.fc2.bias)
        copy_norm(mine.ln_1, theirs.norm1)
        copy_norm(mine.ln_2, theirs.norm2)
    copy_norm(vit.final, reference.norm)
    copy_linear(vit.classifier, reference.head.weight, reference.head.bias)
    return vit
