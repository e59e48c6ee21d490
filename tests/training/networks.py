"""A layer alone; and networks with steps of their own: a GAN and a VAE, each with two optimizers,
their noise part of the batch."""

import numpy as np

from deliralike import Network, in_replicas


class Linear(Network):
    """One linear layer."""

    def __init__(self, inputs=4, outputs=3):
        super().__init__()
        self.fc = self.nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.fc(x)


def batch_of_noise(samples, seed=7):
    """Vectors of three numbers, and two normal numbers for each of them."""
    rng = np.random.default_rng(seed)
    return {
        "data": rng.normal(size=(samples, 3)),
        "noise": rng.normal(size=(samples, 2)),
    }


def _values(network, batch, losses):
    """Each loss in evaluation mode."""
    backend = network.backend
    with network.training_mode(False), backend.evaluating():
        return {
            name: loss(network, *backend.prepare(arrays, network))
            for name, (loss, arrays) in losses(batch).items()
        }


class Gan(Network):
    """A generator of vectors from noise, and a critic that tells them from real ones."""

    def __init__(self, width=5):
        super().__init__()
        nn = self.nn
        self.generator = nn.Sequential(
            nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 3)
        )
        self.critic = nn.Sequential(
            nn.Linear(3, width), nn.LeakyReLU(0.2), nn.Linear(width, 1)
        )

    def forward(self, noise):
        return self.generator(noise)

    def train_step(self, batch, optimizers):
        real, noise = batch["data"], batch["noise"]
        critic = optimizers["critic"].update(CRITIC, real, noise)
        return {
            "critic": critic,
            "generator": optimizers["generator"].update(GENERATOR, noise),
        }

    def val_step(self, batch):
        return _values(
            self,
            batch,
            lambda batch: {
                "critic": (CRITIC, (batch["data"], batch["noise"])),
                "generator": (GENERATOR, (batch["noise"],)),
            },
        )


def _taken_for(network, scores, real):
    nn = network.nn
    return nn.bce_with_logits(scores, nn.zeros(scores.shape, scores) + float(real))


def critic_loss(network, real, noise):
    made = network.nn.stop_gradient(network.generator(noise))
    return _taken_for(network, network.critic(real), True) + _taken_for(
        network, network.critic(made), False
    )


def generator_loss(network, noise):
    return _taken_for(network, network.critic(network.generator(noise)), True)


class Vae(Network):
    """An encoder to two means and logarithms of variances, and a decoder; the encoder is updated
    first."""

    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = self.nn.Linear(3, 4), self.nn.Linear(2, 3)

    def forward(self, x, noise):
        nn = self.nn
        mean, log_var = nn.split(self.encoder(x), 2, dim=-1)
        return self.decoder(mean + nn.exp(0.5 * log_var) * noise), mean, log_var

    def train_step(self, batch, optimizers):
        arrays = batch["data"], batch["noise"]
        first = optimizers["encoder"].update(ELBO, *arrays)
        return {
            "encoder": first,
            "decoder": optimizers["decoder"].update(ELBO, *arrays),
        }

    def val_step(self, batch):
        return _values(
            self, batch, lambda batch: {"elbo": (ELBO, (batch["data"], batch["noise"]))}
        )


def negative_elbo(network, x, noise):
    nn = network.nn
    made, mean, log_var = network(x, noise)
    divergence = -0.5 * nn.mean(
        nn.sum(1.0 + log_var - mean * mean - nn.exp(log_var), 1)
    )
    return nn.mse_loss(made, x) + divergence


CRITIC, GENERATOR, ELBO = map(in_replicas, (critic_loss, generator_loss, negative_elbo))
