"""Adversarial losses and penalties on gradients beside their formulas in PyTorch, with second
derivatives."""

import numpy as np
import pytest
import torch

from deliralike.errors import SettingError, ShapeError
from tests.nn.agreement import agree_function, agree_twice, normal

F = torch.nn.functional


def binary(scores, label):
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, label))


DISCRIMINATOR = {
    "non-saturating": lambda real, fake: binary(real, 1.0) + binary(fake, 0.0),
    "least-squares": lambda real, fake: (
        0.5 * ((real - 1.0) ** 2).mean() + 0.5 * (fake**2).mean()
    ),
    "hinge": lambda real, fake: (
        (1.0 - real).clamp(min=0.0).mean() + (1.0 + fake).clamp(min=0.0).mean()
    ),
    "wasserstein": lambda real, fake: fake.mean() - real.mean() + 0.0 * (real**2).sum(),
}
GENERATOR = {
    "non-saturating": lambda fake: binary(fake, 1.0),
    "least-squares": lambda fake: 0.5 * ((fake - 1.0) ** 2).mean(),
    "hinge": lambda fake: -fake.mean() + 0.0 * (fake**2).sum(),
    "wasserstein": lambda fake: -fake.mean() + 0.0 * (fake**2).sum(),
}


def of_the_discriminator(kind):
    return (
        lambda nn, real, fake: nn.discriminator_loss(real, fake, kind),
        DISCRIMINATOR[kind],
        [normal(0, 5, scale=2.0), normal(1, 4, 2, scale=2.0)],
    )


def of_the_generator(kind):
    return (
        lambda nn, fake: nn.generator_loss(fake, kind),
        GENERATOR[kind],
        [normal(0, 5, scale=2.0)],
    )


def test_losses_of_the_discriminator_and_the_generator_agree(name):
    agree_twice(
        name,
        {f"discriminator, {kind}": of_the_discriminator(kind) for kind in DISCRIMINATOR}
        | {f"generator, {kind}": of_the_generator(kind) for kind in GENERATOR},
    )


def our_critic(nn, x, weight, bias):
    return nn.softplus(nn.linear(nn.flatten(x), weight, bias) * 2.0)


def their_critic(x, weight, bias):
    return torch.logaddexp(
        F.linear(x.flatten(1), weight, bias) * 2.0, torch.zeros((), dtype=x.dtype)
    )


CRITIC = [normal(2, 3, 12), normal(3, 3)]


def penalty(target):
    """As in Gulrajani 2017, algorithm 1; with the gradients of samples, places between them, and
    the critic."""

    def by_pytorch(real, fake, mix, *critic):
        between = mix[:, None, None] * real + (1.0 - mix[:, None, None]) * fake
        (gradient,) = torch.autograd.grad(
            their_critic(between, *critic).sum(), between, create_graph=True
        )
        return ((gradient.flatten(1).norm(dim=1) - target) ** 2).mean()

    def ours(nn, real, fake, mix, *critic):
        return nn.gradient_penalty(
            lambda x: our_critic(nn, x, *critic), real, fake, mix, target
        )

    inputs = [
        normal(0, 4, 3, 4),
        normal(1, 4, 3, 4),
        np.random.default_rng(0).random(4),
        *CRITIC,
    ]
    return ours, by_pytorch, inputs


def r1_penalty():
    def by_pytorch(real, *critic):
        (gradient,) = torch.autograd.grad(
            their_critic(real, *critic).sum(), real, create_graph=True
        )
        return 0.5 * (gradient**2).sum((1, 2)).mean()

    return (
        lambda nn, real, *critic: nn.r1_penalty(
            lambda x: our_critic(nn, x, *critic), real
        ),
        by_pytorch,
        [normal(0, 4, 3, 4), *CRITIC],
    )


def test_gradient_penalties_and_r1_penalties_agree(name):
    agree_twice(
        name,
        {f"{target=}": penalty(target) for target in (1.0, 0.0)} | {"R1": r1_penalty()},
    )


def test_a_critic_without_slope_has_a_finite_penalty(name):
    inputs = [normal(0, 4, 3), normal(1, 4, 3), np.full(4, 0.5), normal(2, 3)]

    def ours(nn, real, fake, mix, weight):
        return nn.gradient_penalty(
            lambda x: nn.sum(x * (weight * 0.0), 1), real, fake, mix
        )

    agree_function(
        name, ours, lambda real, fake, mix, weight: 1.0 + 0.0 * weight.sum(), inputs
    )


def test_bad_input_is_refused(network):
    nn = network.nn
    x, mix = network.backend.prepare((normal(0, 2, 3), normal(0, 2, 1)), network)
    with pytest.raises(
        SettingError,
        match="discriminator_loss: there is no kind='hinges'. Did you mean 'hinge'",
    ):
        nn.discriminator_loss(x, x, "hinges")
    with pytest.raises(SettingError, match="generator_loss: there is no kind='wgan'"):
        nn.generator_loss(x, "wgan")
    with pytest.raises(ShapeError, match="gradient_penalty: shapes"):
        nn.gradient_penalty(nn.sum, x, x[:1], mix)
    with pytest.raises(
        ShapeError, match=r"gradient_penalty: mix has shape \(2, 1\), wanted \(2,\)"
    ):
        nn.gradient_penalty(nn.sum, x, x, mix)
