"""The network on flax as it is deployed: everything that can be fused is."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

WEIGHTS = "judge"


class Attention(nnx.Module):
    def __init__(self, dim, heads, rngs):
        self.heads = heads
        self.qkv = nnx.Linear(dim, 3 * dim, rngs=rngs)
        self.out = nnx.Linear(dim, dim, rngs=rngs)

    def __call__(self, x):
        n, t, c = x.shape
        qkv = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / jnp.sqrt(q.shape[-1]).astype(x.dtype)
        weights = jax.nn.softmax(scores, axis=-1)
        mixed = jnp.einsum("nhqk,nkhd->nqhd", weights, v)
        return self.out(mixed.reshape(n, t, c))


class Deployed(nnx.Module):
    def __init__(self, rngs):
        self.conv1 = nnx.Conv(3, 6, (3, 3), padding=1, rngs=rngs)
        self.conv2 = nnx.Conv(6, 8, (3, 3), strides=2, padding=1, rngs=rngs)
        self.attn = Attention(8, 2, rngs)
        self.classifier = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv1(x))
        x = nnx.relu(self.conv2(x))
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        x = x + self.attn(x)
        return self.classifier(x.mean(axis=1))


def network(reference):
    w = {name: value.numpy() for name, value in reference.state_dict().items()}
    net = Deployed(nnx.Rngs(0))
    scale = w["bn.weight"] / np.sqrt(w["bn.running_var"])
    folded = w["conv.weight"] * scale[:, None, None, None]
    net.conv1.kernel[...] = folded.transpose(2, 3, 1, 0)
    net.conv1.bias[...] = w["bn.bias"] - w["bn.running_mean"] * scale
    both = w["block.wide.weight"] + np.pad(
        w["block.narrow.weight"], ((0, 0), (0, 0), (1, 1), (1, 1))
    )
    net.conv2.kernel[...] = both.transpose(2, 3, 1, 0)
    net.conv2.bias[...] = w["block.wide.bias"] + w["block.narrow.bias"]
    parts = [f"attention.{name}" for name in ("query", "key", "value")]
    net.attn.qkv.kernel[...] = np.concatenate([w[f"{part}.weight"] for part in parts]).T
    net.attn.qkv.bias[...] = np.concatenate([w[f"{part}.bias"] for part in parts])
    net.attn.out.kernel[...] = w["attention.proj.weight"].T
    net.attn.out.bias[...] = w["attention.proj.bias"]
    net.classifier.kernel[...] = w["head.weight"].T
    net.classifier.bias[...] = w["head.bias"]
    return net
