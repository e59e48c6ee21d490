"""A generator and a discriminator in one module, on PyTorch."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Generator(nn.Module):
    def __init__(self, latent=7):
        super().__init__()
        self.fc = nn.Linear(latent, 5 * 3 * 2)
        self.up = nn.ConvTranspose2d(5, 4, 4, stride=2, padding=1)
        self.to_image = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, z):
        x = F.relu(self.fc(z)).view(-1, 5, 3, 2)
        return torch.tanh(self.to_image(F.relu(self.up(x))))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 5, 3, stride=2, padding=1)
        self.fc = nn.Linear(5 * 3 * 2, 1)

    def forward(self, x):
        x = F.leaky_relu(self.conv(x), 0.2)
        return self.fc(x.flatten(1)).squeeze(1)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.discriminator = Discriminator()

    def forward(self, z, real):
        fake = self.generator(z)
        return {
            "image": fake,
            "real": self.discriminator(real),
            "fake": self.discriminator(fake.detach()),
            "fooled": self.discriminator(fake),
        }


def network():
    torch.manual_seed(17)
    gan = GAN()
    for p in gan.parameters():
        p.data += 0.2 * torch.randn_like(p)
    return gan


def batch():
    """Latent vectors, real images, and how real they are said to be."""
    rng = np.random.default_rng(12)
    z, real = rng.normal(size=(3, 7)), np.tanh(rng.normal(size=(3, 2, 6, 4)))
    return z.astype("float32"), real.astype("float32"), np.array([0.9, 1.0, 0.8], "float32")


def loss(network, z, real, target):
    scores = network(z, real)
    bce = F.binary_cross_entropy_with_logits
    of_discriminator = bce(scores["real"], target)
    of_discriminator = of_discriminator + bce(scores["fake"], torch.zeros_like(target))
    of_generator = bce(scores["fooled"], torch.ones_like(target))
    return 0.5 * of_discriminator + of_generator
