"""A variational autoencoder; its noise comes with the batch, and it gives back a dictionary."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LATENT = 5
BETA = 0.25


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 4, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4, 6, 3, stride=2, padding=1),
            nn.LeakyReLU(0.2),
        )
        self.fc_mu = nn.Linear(6 * 2 * 3, LATENT)
        self.fc_logvar = nn.Linear(6 * 2 * 3, LATENT)
        self.decoder_input = nn.Linear(LATENT, 6 * 2 * 3)
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(6, 4, 4, stride=2, padding=1),
            nn.Tanh(),
            nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def encode(self, x):
        h = self.encoder(x).flatten(1)
        return self.fc_mu(h), self.fc_logvar(h)

    def forward(self, x, noise):
        mean, logvar = self.encode(x)
        z = mean + torch.exp(0.5 * logvar) * noise
        h = F.relu(self.decoder_input(z)).view(-1, 6, 2, 3)
        return {"reconstruction": self.decoder(h), "mean": mean, "logvar": logvar}


def network():
    torch.manual_seed(33)
    net = VAE()
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(1.6)
    return net


def batch():
    rng = np.random.default_rng(14)
    x = rng.uniform(size=(4, 1, 8, 12)).astype(np.float32)
    noise = rng.normal(size=(4, LATENT)).astype(np.float32)
    return x, noise, (x > 0.5).astype(np.float32)


def loss(network, x, noise, target):
    out = network(x, noise)
    mean, logvar = out["mean"], out["logvar"]
    reconstruction = F.binary_cross_entropy(out["reconstruction"], target, reduction="sum")
    kl = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
    return (reconstruction + BETA * kl) / x.shape[0]


OPTIMIZERS = {
    "rmsprop": lambda network: torch.optim.RMSprop(network.parameters(), lr=1e-3, alpha=0.9)
}
