"""The autoencoder on flax."""

import jax
import jax.numpy as jnp
from flax import nnx

WEIGHTS = "load"


class Autoencoder(nnx.Module):
    def __init__(self, rngs):
        self.down1 = nnx.Linear(9, 6, rngs=rngs)
        self.down2 = nnx.Linear(6, 4, rngs=rngs)
        self.mixing = nnx.Linear(4, 4, rngs=rngs)
        self.shared = nnx.Linear(4, 4, rngs=rngs)
        self.bias_up2 = nnx.Param(jnp.zeros(6))
        self.bias_up1 = nnx.Param(jnp.zeros(9))

    def __call__(self, x):
        h = jax.nn.leaky_relu(self.down1(x), 0.2)
        h = jax.nn.leaky_relu(self.down2(h), 0.2)
        z = self.mixing(h)
        for _ in range(2):
            z = z + jnp.tanh(self.shared(z))
        h = z @ self.mixing.kernel.T
        h = jax.nn.leaky_relu(h @ self.down2.kernel.T + self.bias_up2, 0.2)
        return h @ self.down1.kernel.T + self.bias_up1


def loss(network, x, target):
    return jnp.mean((network(x) - target) ** 2)


def network(reference):
    """The port; comparing copies the weights again."""
    weights = {name: p.detach().numpy() for name, p in reference.named_parameters()}
    net = Autoencoder(nnx.Rngs(0))
    pairs = {"down1": "enc1", "down2": "enc2", "mixing": "mix", "shared": "refine"}
    for ours, theirs in pairs.items():
        layer = getattr(net, ours)
        layer.kernel[...] = weights[f"{theirs}.weight"].T
        layer.bias[...] = weights[f"{theirs}.bias"]
    net.bias_up2[...] = weights["dec_bias2"]
    net.bias_up1[...] = weights["dec_bias1"]
    return net
