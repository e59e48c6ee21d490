"""Both networks on flax, channels last."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

WEIGHTS = "judge"


class G(nnx.Module):
    def __init__(self, rngs):
        self.project = nnx.Linear(7, 30, rngs=rngs)
        self.deconv = nnx.ConvTranspose(5, 4, (4, 4), strides=(2, 2), padding="SAME", rngs=rngs)
        self.rgb = nnx.Conv(4, 2, (3, 3), padding="SAME", rngs=rngs)

    def __call__(self, z):
        x = nnx.relu(self.project(z)).reshape(-1, 5, 3, 2)
        x = jnp.transpose(x, (0, 2, 3, 1))
        x = nnx.relu(self.deconv(x))
        return jnp.tanh(self.rgb(x))


class D(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(2, 5, (3, 3), strides=(2, 2), padding=1, rngs=rngs)
        self.score = nnx.Linear(30, 1, rngs=rngs)

    def __call__(self, x):
        x = nnx.leaky_relu(self.conv(x), 0.2)
        x = jnp.transpose(x, (0, 3, 1, 2)).reshape(x.shape[0], -1)
        return self.score(x)[:, 0]


class Both(nnx.Module):
    def __init__(self, rngs):
        self.g, self.d = G(rngs), D(rngs)

    def __call__(self, z, real):
        fake = self.g(z)
        constant = jax.lax.stop_gradient(fake)
        return {
            "image": fake,
            "real": self.d(real),
            "fake": self.d(constant),
            "fooled": self.d(fake),
        }


def loss(network, z, real, target):
    out = network(z, real)
    bce = optax.sigmoid_binary_cross_entropy
    d_loss = jnp.mean(bce(out["real"], target)) + jnp.mean(bce(out["fake"], jnp.zeros_like(target)))
    g_loss = jnp.mean(bce(out["fooled"], jnp.ones_like(target)))
    return 0.5 * d_loss + g_loss


def network(reference):
    both = Both(nnx.Rngs(0))
    w = {name: value.numpy() for name, value in reference.state_dict().items()}
    both.g.project.kernel[...] = w["generator.fc.weight"].T
    both.g.project.bias[...] = w["generator.fc.bias"]
    flipped = np.flip(w["generator.up.weight"], (2, 3))
    both.g.deconv.kernel[...] = flipped.transpose(2, 3, 0, 1)
    both.g.deconv.bias[...] = w["generator.up.bias"]
    both.g.rgb.kernel[...] = w["generator.to_image.weight"].transpose(2, 3, 1, 0)
    both.g.rgb.bias[...] = w["generator.to_image.bias"]
    both.d.conv.kernel[...] = w["discriminator.conv.weight"].transpose(2, 3, 1, 0)
    both.d.conv.bias[...] = w["discriminator.conv.bias"]
    both.d.score.kernel[...] = w["discriminator.fc.weight"].T
    both.d.score.bias[...] = w["discriminator.fc.bias"]
    return both
