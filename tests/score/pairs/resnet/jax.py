"""The residual network in flax with a batch norm of its own."""

import jax
import jax.numpy as jnp
from flax import nnx

WEIGHTS = "load"


class BN(nnx.Module):
    def __init__(self, c, eps=1e-5, m=0.1):
        self.gamma = nnx.Param(jnp.ones(c))
        self.beta = nnx.Param(jnp.zeros(c))
        self.running_mean = nnx.BatchStat(jnp.zeros(c))
        self.running_var = nnx.BatchStat(jnp.ones(c))
        self.eps, self.m = eps, m
        self.use_running_average = False

    def __call__(self, x):
        if self.use_running_average:
            mean, var = self.running_mean[...], self.running_var[...]
        else:
            mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
            n = x.size // x.shape[-1]
            self._update(mean, var * (n / (n - 1)))
        inv = jax.lax.rsqrt(var + self.eps)
        return (x - mean) * inv * self.gamma[...] + self.beta[...]

    def _update(self, mean, var):
        m = self.m
        self.running_mean.set_value((1 - m) * self.running_mean[...] + m * mean)
        self.running_var.set_value((1 - m) * self.running_var[...] + m * var)


def conv(cin, cout, k, stride=1, *, rngs):
    pad = k // 2
    return nnx.Conv(
        cin,
        cout,
        (k, k),
        strides=stride,
        padding=((pad, pad), (pad, pad)),
        use_bias=False,
        rngs=rngs,
    )


class Block(nnx.Module):
    def __init__(self, cin, cout, stride, *, rngs):
        if stride > 1 or cin != cout:
            self.proj = conv(cin, cout, 1, stride, rngs=rngs)
            self.proj_norm = BN(cout)
        else:
            self.proj = None
        self.conv_1 = conv(cin, cout, 3, stride, rngs=rngs)
        self.norm_1 = BN(cout)
        self.conv_2 = conv(cout, cout, 3, rngs=rngs)
        self.norm_2 = BN(cout)

    def __call__(self, x):
        shortcut = x
        if self.proj is not None:
            shortcut = self.proj_norm(self.proj(x))
        y = nnx.relu(self.norm_1(self.conv_1(x)))
        y = self.norm_2(self.conv_2(y))
        return nnx.relu(y + shortcut)


class ResNet(nnx.Module):
    def __init__(self, *, rngs):
        self.stem = conv(3, 4, 3, rngs=rngs)
        self.stem_norm = BN(4)
        plan = [(4, 4, 1), (4, 4, 1), (4, 8, 2), (8, 8, 1)]
        self.blocks = nnx.List([Block(*shape, rngs=rngs) for shape in plan])
        self.head = nnx.Linear(8, 6, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem_norm(self.stem(x)))
        for block in self.blocks:
            x = block(x)
        x = jnp.mean(x, axis=(1, 2))
        return self.head(x)


def network(reference):
    return ResNet(rngs=nnx.Rngs(params=1))
