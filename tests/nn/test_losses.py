"""Losses, every argument, with gradients."""

import numpy as np
import pytest
import torch

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


def dice(reduction, background):
    probabilities = np.random.default_rng(0).random((2, 3, 4, 5))
    target = np.eye(3)[np.random.default_rng(1).integers(0, 3, (2, 4, 5))].transpose(
        0, 3, 1, 2
    )
    first = 0 if background else 1

    def theirs(p, t):
        p, t = p[:, first:], t[:, first:]
        overlap, total = (p * t).sum((2, 3)), p.sum((2, 3)) + t.sum((2, 3))
        loss = 1.0 - (2.0 * overlap + 0.1) / (total + 0.1)
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()

    return FunctionCase(
        lambda nn, p, t: nn.dice_loss(p, t, 0.1, background, reduction),
        theirs,
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
