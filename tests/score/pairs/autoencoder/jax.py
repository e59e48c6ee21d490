"""The autoencoder in flax."""

import jax.numpy as jnp
import optax
from flax import nnx
from jax import nn

WEIGHTS = "load"


class Encoder(nnx.Module):
    def __init__(self, latent, rngs):
        self.conv1 = nnx.Conv(1, 4, (3, 3), strides=2, padding=1, rngs=rngs)
        self.conv2 = nnx.Conv(4, 6, (3, 3), strides=2, padding=1, rngs=rngs)
        self.mu = nnx.Linear(36, latent, rngs=rngs)
        self.logvar = nnx.Linear(36, latent, rngs=rngs)

    def __call__(self, x):
        x = nn.leaky_relu(self.conv1(x), negative_slope=0.2)
        x = nn.leaky_relu(self.conv2(x), negative_slope=0.2)
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        return self.mu(x), self.logvar(x)


class Decoder(nnx.Module):
    def __init__(self, latent, rngs):
        self.dense = nnx.Linear(latent, 36, rngs=rngs)
        self.up1 = nnx.ConvTranspose(6, 4, (4, 4), strides=(2, 2), padding="SAME", rngs=rngs)
        self.up2 = nnx.ConvTranspose(4, 1, (4, 4), strides=(2, 2), padding="SAME", rngs=rngs)

    def __call__(self, z):
        h = nn.relu(self.dense(z))
        h = h.reshape(-1, 6, 2, 3).transpose(0, 2, 3, 1)
        h = jnp.tanh(self.up1(h))
        return nn.sigmoid(self.up2(h))


def reparameterize(mu, logvar, eps):
    std = jnp.exp(0.5 * logvar)
    return mu + std * eps


class VAE(nnx.Module):
    def __init__(self, rngs, latent=5):
        self.encoder = Encoder(latent, rngs)
        self.decoder = Decoder(latent, rngs)

    def __call__(self, x, eps):
        mu, logvar = self.encoder(x)
        z = reparameterize(mu, logvar, eps)
        recon = self.decoder(z)
        return {"recon": recon, "mu": mu, "logvar": logvar}


def network(reference):
    return VAE(nnx.Rngs(0))


def kl_divergence(mu, logvar):
    return -0.5 * jnp.sum(1 + logvar - jnp.square(mu) - jnp.exp(logvar), axis=-1)


def loss(network, x, eps, target):
    out = network(x, eps)
    y = out["recon"].reshape(len(eps), -1)
    t = target.reshape(len(eps), -1)
    bce = -jnp.sum(t * jnp.log(y) + (1 - t) * jnp.log(1 - y), axis=-1)
    return jnp.mean(bce + 0.25 * kl_divergence(out["mu"], out["logvar"]))


OPTIMIZERS = {
    "rmsprop": lambda network: optax.rmsprop(1e-3, decay=0.9, eps=1e-8, eps_in_sqrt=False),
}
