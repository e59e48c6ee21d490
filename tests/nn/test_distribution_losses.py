"""Kullback-Leibler divergences beside PyTorch's, with second derivatives."""

import numpy as np
import pytest
import torch

from deliralike.errors import ArgumentError, ShapeError
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    agree_twice,
    normal,
    reduced,
)

REDUCTIONS = ["mean", "sum", "none"]


def from_the_standard_normal(reduction):
    def by_pytorch(mu, logvar):
        mine = torch.distributions.Normal(mu, (0.5 * logvar).exp())
        return reduced(
            torch.distributions.kl_divergence(
                mine, torch.distributions.Normal(0.0, 1.0)
            ),
            reduction,
        )

    return (
        lambda nn, mu, logvar: nn.kl_gaussian(mu, logvar, reduction=reduction),
        by_pytorch,
        [normal(0, 3, 4), normal(1, 3, 4)],
    )


def test_divergences_from_the_standard_normal_agree(name):
    agree_twice(
        name,
        {reduction: from_the_standard_normal(reduction) for reduction in REDUCTIONS},
    )


def between_two_normals(reduction):
    def by_pytorch(mu, logvar, prior_mu, prior_logvar):
        mine = torch.distributions.Normal(mu, (0.5 * logvar).exp())
        prior = torch.distributions.Normal(prior_mu, (0.5 * prior_logvar).exp())
        return reduced(torch.distributions.kl_divergence(mine, prior), reduction)

    return (
        lambda nn, *numbers: nn.kl_gaussian(*numbers, reduction=reduction),
        by_pytorch,
        [normal(seed, 3, 4) for seed in range(4)],
    )


def test_divergences_between_two_normals_agree(name):
    agree_twice(
        name, {reduction: between_two_normals(reduction) for reduction in REDUCTIONS}
    )


def of_classes(dim, reduction):
    target = np.random.default_rng(0).dirichlet(np.ones(4), (3, 2))
    target[0, 0] = [0.0, 0.25, 0.75, 0.0]
    target = target if dim == -1 else np.moveaxis(target, -1, 1)

    def by_pytorch(x):
        elements = torch.nn.functional.kl_div(
            x.log_softmax(dim), torch.tensor(target), reduction="none"
        )
        return reduced(elements.sum(dim), reduction)

    def ours(nn, x):
        return nn.kl_divergence(
            nn.log_softmax(x, dim), nn.constant(target, like=x), dim, reduction
        )

    return ours, by_pytorch, [normal(1, *target.shape)]


def test_divergences_of_classes_agree_also_where_a_probability_is_zero(name):
    agree_twice(
        name,
        {
            f"{dim=} {reduction}": of_classes(dim, reduction)
            for dim in (1, -1)
            for reduction in REDUCTIONS
        },
    )


def test_targets_of_a_divergence_have_gradients(name):
    def by_pytorch(t, x):
        return torch.nn.functional.kl_div(
            x.log_softmax(1), t.softmax(1), reduction="batchmean"
        )

    def ours(nn, t, x):
        return nn.kl_divergence(nn.log_softmax(x, 1), nn.softmax(t, 1))

    agree_twice(
        name, {"of softmax": (ours, by_pytorch, [normal(0, 3, 4), normal(1, 3, 4)])}
    )


def test_the_mean_over_a_batch_takes_one_number_and_no_sample(name):
    def by_pytorch(x, t):
        return torch.nn.functional.kl_div(x, t, reduction="batchmean")

    def ours(nn, x, t):
        return nn.kl_div(x, t, "batchmean")

    number = [np.array(-1.5), np.array(0.3)]
    nothing = [np.zeros((0, 3)), np.zeros((0, 3))]
    cases = {
        "one number": FunctionCase(ours, by_pytorch, number),
        "no sample": FunctionCase(ours, by_pytorch, nothing),
    }
    agree_all(name, cases)


def test_bad_input_is_refused(network):
    x, short = network.backend.prepare((normal(0, 2, 3), normal(0, 1, 3)), network)
    with pytest.raises(ArgumentError, match="give both or none"):
        network.nn.kl_gaussian(x, x, prior_mu=x)
    with pytest.raises(ShapeError, match="kl_gaussian: shapes"):
        network.nn.kl_gaussian(x, x, short, short)
    with pytest.raises(ShapeError, match="kl_divergence: shapes"):
        network.nn.kl_divergence(x, short)
