"""A GAN of two optimizers as MMEngine's tutorial of training one has it."""

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

# was: from mmengine.model import BaseModel
# was: from mmengine.optim import OptimWrapper, OptimWrapperDict
import deliralike
from deliralike import OptimWrapperDict


class GAN(torch.nn.Module):  # was: BaseModel
    def __init__(self, noise_size=6):
        super().__init__()
        self.noise_size = noise_size
        layers = (
            torch.nn.Linear(noise_size, 24),
            torch.nn.LeakyReLU(0.2),
            torch.nn.Linear(24, 64),
            torch.nn.Sigmoid(),
        )
        self.generator = torch.nn.Sequential(*layers)
        layers = (
            torch.nn.Linear(64, 24),
            torch.nn.LeakyReLU(0.2),
            torch.nn.Linear(24, 1),
        )
        self.discriminator = torch.nn.Sequential(*layers)

    def train_step(self, data, optim_wrapper):
        real, noise = data
        disc_loss = optim_wrapper["discriminator"].update(disc_loss_of, real, noise)
        gen_loss = optim_wrapper["generator"].update(gen_loss_of, noise)
        return {"loss_disc": disc_loss, "loss_gen": gen_loss}

    def test_step(self, data):
        return self.generator(data)


def disc_loss_of(
    model, real, noise
):  # was: a method, and optim_wrapper.update_params(its loss)
    with torch.no_grad():
        fake = model.generator(noise)
    on_real, on_fake = model.discriminator(real), model.discriminator(fake)
    real_loss = F.binary_cross_entropy_with_logits(on_real, torch.ones_like(on_real))
    return real_loss + F.binary_cross_entropy_with_logits(
        on_fake, torch.zeros_like(on_fake)
    )


def gen_loss_of(model, noise):
    scores = model.discriminator(model.generator(noise))
    return F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores))


def batches(model, count=5, size=25):
    pixels, rng = load_digits().data / 16, np.random.default_rng(0)
    return [
        (pixels[begin : begin + size], rng.normal(size=(size, model.noise_size)))
        for begin in range(0, count * size, size)
    ]


def main():
    torch.manual_seed(4)
    native = GAN().double()
    model = deliralike.wrap(native)
    wrapped = {  # was: OptimWrapper(torch.optim.Adam(…))
        name: model.backend.wrap_optimizer(
            torch.optim.Adam(getattr(native, name).parameters(), lr=0.01), model
        )
        for name in ("generator", "discriminator")
    }
    optimizers = OptimWrapperDict(**wrapped)
    losses = [model.train_step(data, optimizers) for data in batches(native)]
    return model, losses


if __name__ == "__main__":
    print(
        [
            {name: round(float(value), 4) for name, value in each.items()}
            for each in main()[1]
        ]
    )
