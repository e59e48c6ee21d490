"""Second derivatives, as gradient penalties need them, beside PyTorch's of exact formulas."""

import numpy as np
import torch

from tests.nn.agreement import agree_twice, normal

F = torch.nn.functional
EQUAL = np.array([[0.0, 1.5], [-2.0, 0.25]])


def test_losses_that_are_square_near_zero_are_curved_at_zero(name):
    cases = {
        "smooth_l1": (
            lambda nn, x, t: nn.smooth_l1_loss(x, t, beta=0.5),
            lambda x, t: F.mse_loss(x, t) / (2.0 * 0.5),
            [EQUAL, EQUAL],
        ),
        "huber": (
            lambda nn, x, t: nn.huber_loss(x, t, delta=0.5),
            lambda x, t: F.mse_loss(x, t) / 2.0,
            [EQUAL, EQUAL],
        ),
    }
    agree_twice(name, cases)


def test_softplus_far_from_zero_has_no_curvature(name):
    far = np.array([-800.0, -100.0, 100.0, 800.0])

    def straight(x):
        return torch.relu(x) + 0.0 * x * x

    agree_twice(name, {"far": (lambda nn, x: nn.exact_softplus(x), straight, [far])})


def test_cumulative_logarithms_of_sums_are_curved_as_the_sums_are(name):
    def by_sums(x):
        parts = [torch.logsumexp(x[:, : end + 1], 1) for end in range(x.shape[1])]
        return torch.stack(parts, 1)

    x = [normal(0, 3, 5)]
    agree_twice(name, {"rows": (lambda nn, x: nn.logcumsumexp(x, 1), by_sums, x)})
