"""Losses, every argument, with gradients."""

import numpy as np
import pytest
import torch

from deliralike.errors import BatchError
from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    agree_all,
    agree_function,
    get,
    hold,
    normal,
)

F = torch.nn.functional


@pytest.mark.parametrize("name", NAMES)
def test_cross_entropy_of_large_scores_does_not_overflow(name):
    x, labels = normal(0, 5, 4, scale=1000.0), np.array([0, 1, 2, 3, 0])
    agree_function(
        name, lambda nn, x, y: nn.cross_entropy(x, y), F.cross_entropy, [x, labels]
    )


@pytest.mark.parametrize("count", [2, 0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_when_every_label_is_ignored_the_loss_is_zero_with_a_warning(
    name, smoothing, count
):
    backend, network = get(name), hold(name)
    batch = normal(0, count, 3), np.full(count, -100)
    logits, labels = backend.prepare(batch, network)
    with pytest.warns(UserWarning, match="every label is ignored, the loss is 0"):
        loss = network.nn.cross_entropy(logits, labels, label_smoothing=smoothing)
    assert float(backend.numpy(loss)) == 0.0


@pytest.mark.filterwarnings("ignore:cross_entropy. every label is ignored")
@pytest.mark.parametrize("name", NAMES)
def test_when_every_label_is_ignored_the_gradient_is_zero(name):
    agree_function(
        name,
        lambda nn, x, y: nn.cross_entropy(x, y),
        lambda x, y: (x * 0.0).sum(),
        [normal(0, 2, 3), np.full(2, -100)],
    )


@pytest.mark.parametrize("name", NAMES)
def test_scores_in_the_place_of_probabilities_are_refused(name):
    backend, nn = get(name), hold(name).nn
    x, target = (backend.array(np.array(row)) for row in ([0.1, 1.2], [0.0, 1.0]))
    with pytest.raises(BatchError, match=r"scores\), got numbers from 0\.1 to 1\.2"):
        nn.binary_cross_entropy(x, target)
    with pytest.raises(BatchError, match="not negative, got numbers from -0.1 to 0.9"):
        nn.gaussian_nll_loss(x, target, target - 0.1)


def test_scores_in_the_place_of_probabilities_give_nan_in_a_compiled_program():
    import jax

    nn = get("jax").nn
    x, target = np.array([0.1, 1.2]), np.array([0.0, 1.0])
    assert np.isnan(jax.jit(nn.binary_cross_entropy)(x, target))
    assert np.isnan(jax.jit(nn.gaussian_nll_loss)(x, target, target - 0.1))
    wanted = F.binary_cross_entropy(torch.tensor(x / 2), torch.tensor(target))
    found = jax.jit(nn.binary_cross_entropy)(x / 2, target)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_probabilities_are_looked_at_where_they_have_values():
    nn, target = get("torch").nn, torch.tensor([0.0, 1.0])
    x = torch.tensor([0.2, 0.7])
    gradient = torch.func.grad(lambda x: nn.binary_cross_entropy(x, target))(x)
    torch.testing.assert_close(gradient, torch.tensor([0.5 / 0.8, -0.5 / 0.7]))
    short = nn.binary_cross_entropy(x.bfloat16(), target.bfloat16())
    torch.testing.assert_close(short.float(), torch.tensor(0.29), rtol=0.02, atol=0.0)


def dice(reduction, background):
    probabilities = np.random.default_rng(0).random((2, 3, 4, 5))
    target = np.eye(3)[np.random.default_rng(1).integers(0, 3, (2, 4, 5))].transpose(
        0, 3, 1, 2
    )
    first = 0 if background else 1

    def by_pytorch(p, t):
        p, t = p[:, first:], t[:, first:]
        overlap, total = (p * t).sum((2, 3)), p.sum((2, 3)) + t.sum((2, 3))
        loss = 1.0 - (2.0 * overlap + 0.1) / (total + 0.1)
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()

    return FunctionCase(
        lambda nn, p, t: nn.dice_loss(p, t, 0.1, background, reduction),
        by_pytorch,
        [probabilities, target],
    )


@pytest.mark.parametrize("name", NAMES)
def test_dice_agrees_with_its_formula(name):
    agree_all(
        name,
        {
            f"{reduction} {background=}": dice(reduction, background)
            for reduction in ("mean", "sum", "none")
            for background in (True, False)
        },
    )
