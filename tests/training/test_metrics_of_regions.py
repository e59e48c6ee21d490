"""Overlap and surface distance against scikit-learn, SciPy and brute force."""

import sys

import numpy as np
import pytest
import sklearn.metrics

from deliralike.errors import BatchError, DataUnavailable, SettingError
from deliralike.training import metrics
from deliralike.training.metrics import Dice, Hausdorff, IoU

CLASSES = ["background", "gm", "wm"]


def scores_of(masks, classes):
    """Scores whose highest is that of the mask."""
    return np.moveaxis(np.eye(classes)[masks], -1, 1)


def masks_of(*shape, classes=3, seed=0):
    return np.random.default_rng(seed).integers(0, classes, shape)


PREDICTED, TRUE = masks_of(7, 7, 5), masks_of(7, 7, 5, seed=1)


# Dice and IoU
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("f1", sklearn.metrics.f1_score),
        ("dice", sklearn.metrics.f1_score),
        ("iou", sklearn.metrics.jaccard_score),
        ("precision", sklearn.metrics.precision_score),
        ("sensitivity", sklearn.metrics.recall_score),
    ],
)
def test_the_figure_of_a_classifier_is_by_default_that_of_scikit_learn(name, oracle):
    scores = np.random.default_rng(0).normal(size=(31, 4))
    labels = masks_of(31, classes=3)  # no sample is of the last class
    by_class = oracle(
        labels, scores.argmax(1), labels=range(4), average=None, zero_division=0
    )
    found = metrics.metric(name)(scores, labels)
    known = np.isfinite(list(found.values())[:-1])
    assert np.array(list(found.values())[:-1])[known] == pytest.approx(
        by_class[known], rel=1e-13
    )
    assert found["mean"] == pytest.approx(by_class[known].mean(), rel=1e-13)


def test_a_setting_about_single_samples_is_refused_for_a_figure_of_all_voxels():
    with pytest.raises(
        SettingError, match="is about figures of single samples.*over='samples'"
    ):
        Dice(ignore_empty=False)


def test_the_background_can_be_left_out_of_figures_and_mean():
    whole = Dice(classes=CLASSES)(scores_of(PREDICTED, 3), TRUE)
    found = Dice(classes=CLASSES, include_background=False)(
        scores_of(PREDICTED, 3), TRUE
    )
    assert found == {
        "gm": whole["gm"],
        "wm": whole["wm"],
        "mean": pytest.approx((whole["gm"] + whole["wm"]) / 2),
    }


def test_all_voxels_of_a_class_missed_count_zero_over_voxels_too():
    assert (
        Dice(over="voxels")(scores_of(np.array([[0, 0]]), 2), np.array([[0, 1]]))["1"]
        == 0.0
    )


def test_ignored_voxels_are_in_no_region():
    true = TRUE.copy()
    true[:, :, 2] = 9
    kept = np.arange(5) != 2
    found = IoU(ignored=9)(scores_of(PREDICTED, 3), true)
    assert found == pytest.approx(
        IoU()(scores_of(PREDICTED[:, :, kept], 3), TRUE[:, :, kept])
    )


def test_one_channel_of_logits_is_the_region_above_zero():
    logits = np.random.default_rng(3).normal(size=(3, 1, 7, 5))
    masks = masks_of(3, 7, 5, classes=2)
    assert Dice()(logits, masks) == Dice()(
        scores_of((logits[:, 0] > 0).astype(int), 2), masks
    )


def test_a_nan_score_makes_every_figure_nan_and_not_a_missing_sample():
    scores = scores_of(PREDICTED, 3).astype(float)
    scores[2, 1, 3, 3] = np.nan
    for metric in (Dice(), IoU(over="voxels"), Hausdorff()):
        assert np.isnan(list(metric(scores, TRUE).values())).all()


def test_settings_of_overlap_that_make_no_sense_are_refused():
    with pytest.raises(
        SettingError,
        match="dice is taken over samples or voxels, not 'voxel'. Did you mean 'voxels'?",
    ):
        Dice(over="voxel")
    with pytest.raises(SettingError, match="iou: a class cannot be called 'mean'"):
        IoU(classes=["mean", "other"])


# Hausdorff
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spacing", "wanted"),
    [
        (2, (2.0, 2.0)),
        (2.0, (2.0, 2.0)),
        (np.float32(2), (2.0, 2.0)),
        ((1, 2), (1.0, 2.0)),
        (np.array([1, 2]), (1.0, 2.0)),
    ],
)
def test_spacing_is_any_kind_of_numbers_one_for_all_axes_or_one_for_each(
    spacing, wanted
):
    given, floats = (Hausdorff(spacing=each) for each in (spacing, wanted))
    assert given(scores_of(PREDICTED, 3), TRUE) == floats(scores_of(PREDICTED, 3), TRUE)


@pytest.mark.parametrize("tolerance", [1, np.int64(1)])
def test_tolerance_is_any_kind_of_numbers(tolerance):
    given, floats = (metrics.SurfaceDice(tolerance=each) for each in (tolerance, 1.0))
    assert given(scores_of(PREDICTED, 3), TRUE) == floats(scores_of(PREDICTED, 3), TRUE)


def test_distances_are_averaged_over_the_samples_that_have_one():
    true = np.array([[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
    predicted = np.array([[1, 1, 1, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 0]])
    assert Hausdorff()(scores_of(predicted, 2), true) == {"1": 2.5, "mean": 2.5}


def test_a_region_that_is_there_on_one_side_only_is_infinitely_far_or_as_far_as_declared():
    true, predicted = np.array([[1, 0, 0], [1, 1, 0]]), np.array([[0, 0, 0], [1, 1, 0]])
    assert Hausdorff()(scores_of(predicted, 2), true)["1"] == np.inf
    assert Hausdorff(missing=3.0)(scores_of(predicted, 2), true)["1"] == 1.5


def test_regions_that_are_empty_on_both_sides_everywhere_have_no_distance():
    found = Hausdorff()(scores_of(np.zeros((2, 4), int), 2), np.zeros((2, 4), int))
    assert np.isnan([found["1"], found["mean"]]).all()


def test_ignored_voxels_have_no_surface():
    true, predicted = np.array([[1, 1, 0, 0, 9]]), np.array([[1, 1, 0, 0, 1]])
    assert Hausdorff(ignored=9)(scores_of(predicted, 2), true)["1"] == 0.0
    assert (
        Hausdorff()(scores_of(predicted, 2), np.where(true == 9, 0, true))["1"] == 3.0
    )


def test_the_metric_by_name_and_its_percentile():
    assert metrics.metric("hausdorff95") == Hausdorff(percentile=95.0)
    assert (metrics.metric("hausdorff").name, metrics.metric("hausdorff95").name) == (
        "hausdorff",
        "hausdorff95",
    )


def test_settings_of_the_distance_that_make_no_sense_are_refused():
    with pytest.raises(SettingError, match="above 0 and up to 100, not at 0"):
        Hausdorff(percentile=0)
    with pytest.raises(SettingError, match="size above 0 along each axis"):
        Hausdorff(spacing=(1.0, 0.0))
    with pytest.raises(SettingError, match="has 3 axes, and samples have 2"):
        Hausdorff(spacing=(1.0, 1.0, 1.0))(scores_of(PREDICTED, 3), TRUE)
    with pytest.raises(BatchError, match="these have no size"):
        Hausdorff()(np.zeros((3, 2)), np.zeros(3, int))


def test_without_scipy_the_distance_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    with pytest.raises(
        DataUnavailable,
        match=r"distance of surfaces needs the package 'scipy'.*deliralike\[data\]",
    ):
        Hausdorff()(scores_of(PREDICTED, 3), TRUE)
