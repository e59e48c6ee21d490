"""Focal losses, beside torchvision's and the formula, with second derivatives."""

import numpy as np
import pytest
import torch

from deliralike.errors import IndexRangeError, SettingError, ShapeError
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    agree_twice,
    normal,
)

F = torch.nn.functional


def focal(logits, labels, gamma, weight, ignored, reduction):
    """Lin 2017, equation 4, position by position."""
    log_p = logits.log_softmax(1)
    kept = labels != ignored
    label = torch.where(kept, labels, 0)
    log_p = log_p.gather(1, label[:, None])[:, 0]
    scale = (
        torch.ones(logits.shape[1], dtype=logits.dtype)
        if weight is None
        else torch.tensor(weight)
    )[label] * kept
    loss = -((1.0 - log_p.exp()) ** gamma) * log_p * scale
    return {"mean": loss.sum() / scale.sum(), "sum": loss.sum(), "none": loss}[
        reduction
    ]


SETTINGS = [
    (2.0, False, "mean"),
    (1.5, True, "mean"),
    (1.0, True, "sum"),
    (3.0, False, "none"),
]


def of_labels(gamma, weighted, reduction):
    logits, labels = normal(0, 4, 3, 2), np.random.default_rng(1).integers(0, 3, (4, 2))
    labels[1, 0] = -1
    weight = np.array([0.3, 1.0, 2.0]) if weighted else None

    def ours(nn, x, y):
        given = None if weight is None else nn.constant(weight, like=x)
        return nn.focal_loss(x, y, gamma, given, ignore_index=-1, reduction=reduction)

    return (
        ours,
        lambda x, y: focal(x, y, gamma, weight, -1, reduction),
        [logits, labels],
    )


def test_focal_losses_of_labels_agree_with_the_formula(name):
    agree_twice(name, {str(settings): of_labels(*settings) for settings in SETTINGS})


def test_without_focus_it_is_the_cross_entropy(name):
    logits, labels, weight = (
        normal(0, 4, 3),
        np.array([0, 2, 1, -100]),
        np.array([0.3, 1.0, 2.0]),
    )
    case = (
        lambda nn, x, y: nn.focal_loss(x, y, 0.0, nn.constant(weight, like=x)),
        lambda x, y: F.cross_entropy(x, y, torch.tensor(weight)),
        [logits, labels],
    )
    agree_twice(name, {"gamma = 0": case})


def certain(gamma):
    logits = np.array([[800.0, 0.0], [0.0, -800.0], [0.3, 0.1]])
    return FunctionCase(
        lambda nn, x, y: nn.focal_loss(x, y, gamma),
        lambda x, y: x.sum() * 0.0,
        [logits, np.array([0, 0, -100])],
    )


def test_certain_and_ignored_labels_have_finite_gradients(name):
    agree_all(name, {f"{gamma=}": certain(gamma) for gamma in (0.5, 1.0, 2.0)})


@pytest.mark.filterwarnings("error")
def test_when_every_label_is_ignored_the_loss_is_zero_with_a_warning(network):
    backend = network.backend
    logits, labels = backend.prepare((normal(0, 2, 3), np.full(2, -100)), network)
    with pytest.warns(UserWarning, match="focal_loss: every label is ignored"):
        assert float(backend.numpy(network.nn.focal_loss(logits, labels))) == 0.0


def binary(alpha, gamma, reduction):
    import torchvision

    logits, target = (
        normal(0, 3, 4, scale=4.0),
        (np.random.default_rng(1).random((3, 4)) < 0.4).astype(float),
    )
    target[0, 0] = 0.3  # a soft label

    def by_pytorch(x, y):
        given = -1 if alpha is None else alpha
        return torchvision.ops.sigmoid_focal_loss(x, y, given, gamma, reduction)

    return (
        lambda nn, x, y: nn.binary_focal_loss(x, y, alpha, gamma, reduction),
        by_pytorch,
        [logits, target],
    )


def test_binary_focal_losses_agree_with_torchvisions(name):
    agree_twice(
        name,
        {
            f"{alpha=} {gamma=} {reduction}": binary(alpha, gamma, reduction)
            for alpha, gamma in [(0.25, 2.0), (None, 1.5), (0.7, 0.0)]
            for reduction in ("mean", "sum", "none")
        },
    )


def test_bad_input_names_the_function(network):
    backend = network.backend
    x, labels, far = backend.prepare(
        (normal(0, 2, 3), np.array([0, 1]), np.array([0, 3])), network
    )
    with pytest.raises(ShapeError, match="focal_loss: target has shape"):
        network.nn.focal_loss(x, labels[:1])
    with pytest.raises(IndexRangeError, match="focal_loss: target: 3 is out of range"):
        network.nn.focal_loss(x, far)
    with pytest.raises(ShapeError, match="focal_loss: weight has shape"):
        network.nn.focal_loss(x, labels, weight=x[0, :2])
    with pytest.raises(ShapeError, match="binary_focal_loss: shapes"):
        network.nn.binary_focal_loss(x, x[:1])
    with pytest.raises(SettingError, match="reduction='max'"):
        network.nn.binary_focal_loss(x, x, reduction="max")
