"""Losses, every argument, with gradients."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from deliralike.errors import BatchError, ShapeError
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    agree_function,
    get,
    normal,
    reduced,
)

F = torch.nn.functional


def test_cross_entropy_of_large_scores_does_not_overflow(name):
    x, labels = normal(0, 5, 4, scale=1000.0), np.array([0, 1, 2, 3, 0])
    agree_function(
        name, lambda nn, x, y: nn.cross_entropy(x, y), F.cross_entropy, [x, labels]
    )


@pytest.mark.parametrize("count", [2, 0])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_when_every_label_is_ignored_the_loss_is_zero_with_a_warning(
    network, smoothing, count
):
    backend = network.backend
    batch = normal(0, count, 3), np.full(count, -100)
    logits, labels = backend.prepare(batch, network)
    with pytest.warns(UserWarning, match="every label is ignored, the loss is 0"):
        loss = network.nn.cross_entropy(logits, labels, label_smoothing=smoothing)
    assert float(backend.numpy(loss)) == 0.0


@pytest.mark.filterwarnings("ignore:cross_entropy. every label is ignored")
def test_when_every_label_is_ignored_the_gradient_is_zero(name):
    agree_function(
        name,
        lambda nn, x, y: nn.cross_entropy(x, y),
        lambda x, y: (x * 0.0).sum(),
        [normal(0, 2, 3), np.full(2, -100)],
    )


def test_scores_in_the_place_of_probabilities_are_refused(network):
    backend, nn = network.backend, network.nn
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
    assert_allclose(found, wanted, rtol=1e-6)


def test_probabilities_are_looked_at_where_they_have_values():
    nn, target = get("torch").nn, torch.tensor([0.0, 1.0])
    x = torch.tensor([0.2, 0.7])
    gradient = torch.func.grad(lambda x: nn.binary_cross_entropy(x, target))(x)
    torch.testing.assert_close(gradient, torch.tensor([0.5 / 0.8, -0.5 / 0.7]))
    short = nn.binary_cross_entropy(x.bfloat16(), target.bfloat16())
    torch.testing.assert_close(short.float(), torch.tensor(0.29), rtol=0.02, atol=0.0)


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64])
def test_a_mask_of_any_type_counts_as_zeros_and_ones(network, kind):
    backend = network.backend
    probabilities = np.random.default_rng(0).uniform(0.1, 0.9, (2, 3, 4))
    mask = np.random.default_rng(1).integers(0, 2, (2, 3, 4))
    x, wanted, given = backend.prepare(
        (probabilities, mask * 1.0, mask.astype(kind)), network
    )
    for loss in (
        "bce_with_logits",
        "binary_cross_entropy",
        "binary_focal_loss",
        "mse_loss",
        "l1_loss",
        "dice_loss",
        "generalized_dice_loss",
        "tversky_loss",
    ):
        function = getattr(network.nn, loss)
        found = backend.numpy(function(x, given))
        assert_allclose(found, backend.numpy(function(x, wanted)))


@pytest.mark.parametrize("kind", [list, np.float32, np.float64])
def test_weights_of_classes_may_be_on_the_host(network, kind):
    backend = network.backend
    weights = [1.0, 2.0, 3.0] if kind is list else np.array([1, 2, 3], kind)
    scores, labels = normal(0, 4, 3), np.array([2, 0, 1, 2])
    x, y = backend.prepare((scores, labels), network)
    loss = network.nn.cross_entropy(x, y, weight=weights)
    wanted = F.cross_entropy(
        torch.tensor(scores),
        torch.tensor(labels),
        torch.tensor([1.0, 2.0, 3.0]).double(),
    )
    assert_allclose(backend.numpy(loss), wanted, rtol=1e-12)


def test_a_weight_for_each_element_is_not_broadcast(network):
    backend = network.backend
    x, y, weight = backend.prepare(
        (normal(0, 4, 3), normal(1, 4, 3), np.ones((4, 1))), network
    )
    with pytest.raises(ShapeError, match=r"\(4, 3\) and \(4, 1\) differ"):
        network.nn.mse_loss(x, y, weight=weight)


def test_targets_without_labels_are_all_blanks(network):
    backend = network.backend
    scores = np.log(np.full((5, 2, 3), 1 / 3))
    for labels in (np.zeros((2, 0), np.int64), np.zeros(0, np.int64)):
        x, y = backend.prepare((scores, labels), network)
        loss = network.nn.ctc_loss(x, y, [5, 4], [0, 0], reduction="none")
        assert_allclose(backend.numpy(loss), np.log(3.0) * np.array([5, 4]))


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
        return reduced(loss, reduction)

    return FunctionCase(
        lambda nn, p, t: nn.dice_loss(p, t, 0.1, background, reduction),
        by_pytorch,
        [probabilities, target],
    )


def test_dice_agrees_with_its_formula(name):
    agree_all(
        name,
        {
            f"{reduction} {background=}": dice(reduction, background)
            for reduction in ("mean", "sum", "none")
            for background in (True, False)
        },
    )
