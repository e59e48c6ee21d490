"""Ports to flax, each in the habits of another author."""

import jax
import jax.numpy as jnp
from flax import nnx


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


def copy_linear(mine, weight, bias):
    mine.kernel.set_value(array(weight).T)
    mine.bias.set_value(array(bias))


class GPT(nnx.Module):
    """Three projections, positions from a table, and the table of words once more at the end."""

    def __init__(self, rngs, width=8):
        self.wte, self.wpe = (
            nnx.Embed(13, width, rngs=rngs),
            nnx.Embed(6, width, rngs=rngs),
        )
        self.q, self.k, self.v, self.o = (
            nnx.Linear(width, width, rngs=rngs) for _ in "qkvo"
        )
        self.norms = nnx.List(
            [nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs) for _ in range(3)]
        )
        self.fc = nnx.Linear(width, 2 * width, rngs=rngs)
        self.proj = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, tokens):
        b, t = tokens.shape
        h = self.wte(tokens) + self.wpe(jnp.arange(t))[None]
        z = self.norms[0](h)
        q, k, v = (each(z).reshape(b, t, 2, -1) for each in (self.q, self.k, self.v))
        z = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        h = h + self.o(z.reshape(b, t, -1))
        h = h + self.proj(jax.nn.gelu(self.fc(self.norms[1](h))))
        return self.wte.attend(self.norms[2](h)).reshape(b * t, -1)


def gpt(reference):
    gpt = GPT(nnx.Rngs(0))
    gpt.wte.embedding.set_value(array(reference.tok.weight))
    gpt.wpe.embedding.set_value(array(reference.pos))
    attn = reference.attn
    parts = zip(attn.in_proj_weight.chunk(3), attn.in_proj_bias.chunk(3))
    for mine, part in zip((gpt.q, gpt.k, gpt.v), parts):
        copy_linear(mine, *part)
    copy_linear(gpt.o, attn.out_proj.weight, attn.out_proj.bias)
    copy_linear(gpt.fc, reference.up.weight, reference.up.bias)
    copy_linear(gpt.proj, reference.down.weight, reference.down.bias)
    for mine, theirs in zip(gpt.norms, (reference.ln1, reference.ln2, reference.norm)):
        mine.scale.set_value(array(theirs.weight))
        mine.bias.set_value(array(theirs.bias))
    return gpt


class UNet(nnx.Module):
    """Channels last; made from the end to the start."""

    def __init__(self, rngs, c=4):
        three = {"kernel_size": (3, 3), "padding": 1, "rngs": rngs}
        self.final = nnx.Conv(c, 3, (1, 1), rngs=rngs)
        self.fuse = nnx.Conv(2 * c, c, **three)
        self.deconv = nnx.ConvTranspose(
            2 * c,
            c,
            (2, 2),
            strides=(2, 2),
            padding="VALID",
            transpose_kernel=True,
            rngs=rngs,
        )
        self.enc1, self.enc0 = (
            nnx.Conv(c, 2 * c, strides=2, **three),
            nnx.Conv(2, c, **three),
        )
        self.gn1 = nnx.GroupNorm(2 * c, num_groups=2, epsilon=1e-5, rngs=rngs)
        self.gn0 = nnx.GroupNorm(c, num_groups=2, epsilon=1e-5, rngs=rngs)

    def __call__(self, img):
        skip = nnx.swish(self.gn0(self.enc0(img)))
        low = nnx.swish(self.gn1(self.enc1(skip)))
        return self.final(
            nnx.swish(self.fuse(jnp.concatenate((skip, self.deconv(low)), -1)))
        )


class TwoTowers(nnx.Module):
    """Takes texts first."""

    def __init__(self, rngs):
        self.txt, self.img = nnx.Linear(4, 7, rngs=rngs), nnx.Linear(5, 7, rngs=rngs)
        self.logit_scale = nnx.Param(jnp.zeros((), "float32"))

    def __call__(self, words, pixels):
        pixels, words = self.img(pixels), jnp.tanh(self.txt(words))
        pixels = pixels / jnp.linalg.norm(pixels, axis=1, keepdims=True)
        words = words / jnp.linalg.norm(words, axis=1, keepdims=True)
        return jnp.exp(self.logit_scale[...]) * jnp.einsum("id,jd->ij", pixels, words)


class GRU(nnx.Module):
    """A loop over the words."""

    def __init__(self, rngs):
        self.table = nnx.Embed(13, 6, rngs=rngs)
        self.w, self.u = nnx.Linear(6, 15, rngs=rngs), nnx.Linear(5, 15, rngs=rngs)
        self.cls = nnx.Linear(5, 4, rngs=rngs)

    def __call__(self, ids):
        e = self.table(ids)
        e = jnp.where((ids == 0)[..., None], jax.lax.stop_gradient(e), e)
        h, total = jnp.zeros((len(ids), 5), e.dtype), 0
        for x in jnp.unstack(e, axis=1):
            r, z, n = jnp.split(self.w(x), 3, -1)
            r2, z2, n2 = jnp.split(self.u(h), 3, -1)
            n = jnp.tanh(n + nnx.sigmoid(r + r2) * n2)
            h = n + nnx.sigmoid(z + z2) * (h - n)
            total = total + h
        return self.cls(total / ids.shape[1])


def gru(reference):
    gru, theirs = GRU(nnx.Rngs(0)), reference.gru
    gru.table.embedding.set_value(array(reference.emb.weight))
    copy_linear(gru.w, theirs.weight_ih_l0, theirs.bias_ih_l0)
    copy_linear(gru.u, theirs.weight_hh_l0, theirs.bias_hh_l0)
    copy_linear(gru.cls, reference.out.weight, reference.out.bias)
    return gru


class BN(nnx.Module):
    """A batch norm that keeps the running variance as PyTorch does."""

    def __init__(self, n):
        self.g, self.b = nnx.Param(jnp.ones(n)), nnx.Param(jnp.zeros(n))
        self.mu, self.var = nnx.BatchStat(jnp.zeros(n)), nnx.BatchStat(jnp.ones(n))
        self.use_running_average = False

    def __call__(self, x):
        mu, var = self.mu[...], self.var[...]
        if not self.use_running_average:
            mu, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            n = x[..., 0].size
            self.mu[...] = 0.9 * self.mu[...] + 0.1 * mu
            self.var[...] = 0.9 * self.var[...] + 0.1 * var * n / (n - 1)
        return self.b[...] + (x - mu) / jnp.sqrt(var + 1e-5) * self.g[...]


class ResNet(nnx.Module):
    """Flattens with the channels last, so that the rows of the head are in another order."""

    def __init__(self, rngs):
        self.stem = nnx.Conv(3, 5, (5, 5), 2, padding=2, use_bias=False, rngs=rngs)
        self.conv = nnx.Conv(5, 5, (3, 3), use_bias=False, rngs=rngs)
        self.head = nnx.Linear(60, 4, rngs=rngs)
        self.norms = nnx.List([BN(5), BN(5)])

    def __call__(self, x):
        x = nnx.relu(self.norms[0](self.stem(x)))
        x = nnx.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
        x = nnx.relu(self.norms[1](self.conv(x)) + x)
        return self.head(x.reshape(len(x), -1))


def resnet(reference):
    resnet = ResNet(nnx.Rngs(0))
    for mine, theirs in ((resnet.stem, reference.c0), (resnet.conv, reference.c1)):
        mine.kernel.set_value(array(theirs.weight).transpose(2, 3, 1, 0))
    for mine, theirs in zip(resnet.norms, (reference.b0, reference.b1)):
        mine.g.set_value(array(theirs.weight))
        mine.b.set_value(array(theirs.bias))
        mine.mu.set_value(array(theirs.running_mean))
        mine.var.set_value(array(theirs.running_var))
    weight = array(reference.fc.weight).reshape(4, 5, 3, 4).transpose(0, 2, 3, 1)
    resnet.head.kernel.set_value(weight.reshape(4, -1).T)
    resnet.head.bias.set_value(array(reference.fc.bias))
    return resnet


ARGUMENTS = (nnx.Rngs(0),)
PORTS = {
    "language model, tied": ("language model", gpt),
    "u-net, channels last": ("u-net", UNet),
    "pair, texts first": ("pair", TwoTowers, (1, 0)),
    "recurrent, written out": ("recurrent", gru),
    "residual, loaded": ("residual", ResNet),
    "residual, copied": ("residual", resnet),
}
