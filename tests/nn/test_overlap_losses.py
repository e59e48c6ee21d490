"""Losses of segmentations beside MONAI's, segmentation_models' and the formulas, with second
derivatives."""

import numpy as np
import pytest
import torch

from deliralike.errors import SettingError, ShapeError
from tests.nn.agreement import (
    FunctionCase,
    agree_all,
    agree_twice,
    hold,
    normal,
    reduced,
)

REDUCTIONS = ("mean", "sum", "none")


def regions(classes=3, size=(4, 5)):
    """Probabilities and one-hot labels of two samples; the first lacks the last class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, classes, (2, *size))
    labels[0] %= classes - 1
    return generator.random((2, classes, *size)), np.moveaxis(
        np.eye(classes)[labels], -1, 1
    )


def generalized_dice(p, t, smooth):
    """Sudre 2017; absent classes have the largest weight of the present ones."""
    volume = t.sum((2, 3))
    weight = torch.where(volume > 0, 1.0 / volume.clamp(min=1.0) ** 2, 0.0)
    weight = torch.where(volume > 0, weight, weight.max(1, keepdim=True).values)
    overlap, total = (
        (weight * (p * t).sum((2, 3))).sum(1),
        (weight * (p.sum((2, 3)) + volume)).sum(1),
    )
    return 1.0 - (2.0 * overlap + smooth) / (total + smooth)


def generalized(reduction, background):
    first = 0 if background else 1
    probabilities, target = regions()
    return (
        lambda nn, p: nn.generalized_dice_loss(
            p, nn.constant(target, like=p), 0.1, background, reduction
        ),
        lambda p: reduced(
            generalized_dice(p[:, first:], torch.tensor(target)[:, first:], 0.1),
            reduction,
        ),
        [probabilities],
    )


def test_generalized_dice_agrees_with_its_formula(name):
    agree_twice(
        name,
        {
            f"{reduction} {background=}": generalized(reduction, background)
            for reduction in REDUCTIONS
            for background in (True, False)
        },
    )


def test_generalized_dice_agrees_with_monais_as_far_as_its_single_precision_goes():
    import monai

    probabilities, target = map(torch.tensor, regions())
    wanted = monai.losses.GeneralizedDiceLoss(smooth_nr=0.1, smooth_dr=0.1)(
        probabilities, target
    )
    found = hold("torch").nn.generalized_dice_loss(probabilities, target, 0.1)
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)


def dice_ce(background, dice_weight, ce_weight):
    import monai

    theirs = monai.losses.DiceCELoss(
        background,
        to_onehot_y=True,
        softmax=True,
        smooth_nr=0.1,
        smooth_dr=0.1,
        lambda_dice=dice_weight,
        lambda_ce=ce_weight,
    )
    _, rows = regions()
    target = rows.argmax(1)
    return (
        lambda nn, x: nn.dice_ce_loss(
            x,
            nn.constant(target, like=x),
            0.1,
            background,
            dice_weight,
            ce_weight,
        ),
        lambda x: theirs(x, torch.tensor(target)[:, None]),
        [np.random.default_rng(1).normal(size=rows.shape)],
    )


def test_dice_and_cross_entropy_agree_with_monais(name):
    agree_twice(
        name,
        {
            f"{background=} {weights}": dice_ce(background, *weights)
            for background in (True, False)
            for weights in ((1.0, 1.0), (0.25, 2.0))
        },
    )


def tversky(alpha, beta, background):
    import monai

    theirs = monai.losses.TverskyLoss(
        background, alpha=alpha, beta=beta, smooth_nr=0.1, smooth_dr=0.1
    )
    return (
        lambda nn, p, t: nn.tversky_loss(p, t, alpha, beta, 1.0, 0.1, background),
        theirs,
        list(regions()),
    )


def test_tversky_agrees_with_monais(name):
    agree_twice(
        name,
        {
            f"{alpha=} {background=}": tversky(alpha, 1.0 - alpha, background)
            for alpha in (0.5, 0.3)
            for background in (True, False)
        },
    )


def focal_tversky(gamma, reduction):
    probabilities, target = regions()

    def theirs(p, t):
        overlap, predicted, true = (p * t).sum((2, 3)), p.sum((2, 3)), t.sum((2, 3))
        index = (overlap + 0.1) / (
            overlap + 0.3 * (predicted - overlap) + 0.7 * (true - overlap) + 0.1
        )
        return reduced((1.0 - index) ** gamma, reduction)

    return (
        lambda nn, p, t: nn.tversky_loss(
            p, t, 0.3, 0.7, gamma, 0.1, reduction=reduction
        ),
        theirs,
        [probabilities, target],
    )


def test_focal_tversky_agrees_with_its_formula(name):
    agree_twice(
        name,
        {
            f"{gamma=} {reduction}": focal_tversky(gamma, reduction)
            for gamma in (0.75, 2.0)
            for reduction in REDUCTIONS
        },
    )


def test_halves_make_dice(network):
    probabilities, target = regions()
    p, t = network.backend.prepare((probabilities, target), network)
    found, dice = (
        network.nn.tversky_loss(p, t, smooth=0.5),
        network.nn.dice_loss(p, t, smooth=1.0),
    )
    assert float(network.backend.numpy(found)) == pytest.approx(
        float(network.backend.numpy(dice)), rel=1e-14
    )


def test_a_perfect_prediction_has_no_loss_and_a_finite_gradient(network):
    target, gammas = regions()[1], (0.75, 1.0)

    def loss(network, *predictions):
        nn, (first, *_) = network.nn, predictions
        labels = nn.constant(target, like=first)
        return sum(
            nn.tversky_loss(p, labels, gamma=gamma)
            for p, gamma in zip(predictions, gammas, strict=True)
        )

    found = network.backend.gradients(loss, network, *[target] * len(gammas))
    assert found.loss == 0.0  # a sum of losses of which none is negative
    for gamma, gradient in zip(gammas, found.inputs, strict=True):
        assert np.isfinite(gradient).all(), gamma


def boundary(reduction, background):
    first = 0 if background else 1
    probabilities, distances = regions()[0], normal(1, 2, 3, 4, 5)
    return FunctionCase(
        lambda nn, p, d: nn.boundary_loss(p, d, background, reduction),
        lambda p, d: reduced(p[:, first:] * d[:, first:], reduction),
        [probabilities, distances],
    )


def test_boundary_losses_agree_with_the_formula(name):
    agree_all(
        name,
        {
            f"{reduction} {background=}": boundary(reduction, background)
            for reduction in REDUCTIONS
            for background in (True, False)
        },
    )


def test_shapes_that_differ_are_refused_by_name(network):
    p, t = network.backend.prepare(regions(), network)
    for function in (
        "dice_loss",
        "generalized_dice_loss",
        "tversky_loss",
        "boundary_loss",
    ):
        with pytest.raises(ShapeError, match=f"{function}: shapes"):
            getattr(network.nn, function)(p, t[:1])


def test_class_numbers_in_the_place_of_one_hot_labels_are_told_what_to_do(network):
    probabilities, target = regions()
    p, t = network.backend.prepare((probabilities, target.argmax(1)), network)
    for function in ("dice_loss", "tversky_loss"):
        with pytest.raises(ShapeError, match=f"{function}: .* are for dice_ce_loss"):
            getattr(network.nn, function)(p, t)


def test_without_spatial_axes_each_sample_counts_by_itself(network):
    probabilities, target = (x[:, :, 0, 0] for x in regions())
    p, t = network.backend.prepare((probabilities, target), network)
    for function in ("dice_loss", "generalized_dice_loss", "tversky_loss"):
        found = getattr(network.nn, function)(p, t, reduction="none")
        wanted = getattr(network.nn, function)(
            p[:, :, None], t[:, :, None], reduction="none"
        )
        np.testing.assert_allclose(
            network.backend.numpy(found),
            network.backend.numpy(wanted),
            rtol=1e-14,
            err_msg=function,
        )


def test_a_single_channel_is_no_background_to_leave_out(network):
    backend = network.backend
    x, mask = backend.prepare((np.full((2, 1, 4), 0.5), np.ones((2, 1, 4))), network)
    for loss in ("dice_loss", "generalized_dice_loss", "tversky_loss", "boundary_loss"):
        with pytest.raises(SettingError, match="one channel, which would be left out"):
            getattr(network.nn, loss)(x, mask, include_background=False)
