"""Overlap and surface distance against scikit-learn, SciPy and brute force."""

import itertools
import sys

import numpy as np
import pytest
import scipy.spatial.distance
import sklearn.metrics

from deliralike.errors import BatchError, DataUnavailable, SettingError
from deliralike.training import metrics
from deliralike.training.metrics import Dice, Hausdorff, IoU
from deliralike.training.metrics.surface import surface

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
    ("metric", "oracle"), [(Dice, sklearn.metrics.f1_score), (IoU, sklearn.metrics.jaccard_score)]
)
def test_overlap_is_that_of_scikit_learn_sample_by_sample_and_over_all_voxels(metric, oracle):
    def each(predicted, true):
        return oracle(true.ravel(), predicted.ravel(), labels=range(3), average=None)

    by_sample = np.mean([each(p, t) for p, t in zip(PREDICTED, TRUE)], axis=0)
    for over, wanted in (("samples", by_sample), ("voxels", each(PREDICTED, TRUE))):
        found = metric(classes=CLASSES, over=over)(scores_of(PREDICTED, 3), TRUE)
        assert list(found) == [*CLASSES, "mean"]
        assert list(found.values()) == pytest.approx([*wanted, wanted.mean()], rel=1e-13)
    assert not np.allclose(by_sample, each(PREDICTED, TRUE))


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
    by_class = oracle(labels, scores.argmax(1), labels=range(4), average=None, zero_division=0)
    found = metrics.metric(name)(scores, labels)
    known = np.isfinite(list(found.values())[:-1])
    assert np.array(list(found.values())[:-1])[known] == pytest.approx(by_class[known], rel=1e-13)
    assert found["mean"] == pytest.approx(by_class[known].mean(), rel=1e-13)


@pytest.mark.parametrize("setting", [{"mean_of": "samples"}, {"ignore_empty": False}])
def test_a_setting_about_single_samples_is_refused_for_a_figure_of_all_voxels(setting):
    with pytest.raises(SettingError, match="is about figures of single samples.*over='samples'"):
        Dice(**setting)


def test_the_background_can_be_left_out_of_figures_and_mean():
    whole = Dice(classes=CLASSES)(scores_of(PREDICTED, 3), TRUE)
    found = Dice(classes=CLASSES, include_background=False)(scores_of(PREDICTED, 3), TRUE)
    assert found == {
        "gm": whole["gm"],
        "wm": whole["wm"],
        "mean": pytest.approx((whole["gm"] + whole["wm"]) / 2),
    }


def test_a_class_absent_from_mask_and_prediction_has_no_figure_and_one_absent_from_one_counts_zero():  # noqa: E501
    true = np.array([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]])
    predicted = np.array([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 1]])
    found = Dice(over="samples")(scores_of(predicted, 3), true)
    assert found["1"] == pytest.approx((1.0 + 0.0) / 2)  # the second sample has no figure
    assert np.isnan(found["2"])
    assert found["mean"] == pytest.approx((found["0"] + found["1"]) / 2)


def test_all_voxels_of_a_class_missed_count_zero_over_voxels_too():
    assert Dice(over="voxels")(scores_of(np.array([[0, 0]]), 2), np.array([[0, 1]]))["1"] == 0.0


def test_ignored_voxels_are_in_no_region():
    true = TRUE.copy()
    true[:, :, 2] = 9
    kept = np.arange(5) != 2
    found = IoU(ignored=9)(scores_of(PREDICTED, 3), true)
    assert found == pytest.approx(IoU()(scores_of(PREDICTED[:, :, kept], 3), TRUE[:, :, kept]))


def test_one_channel_of_logits_is_the_region_above_zero():
    logits = np.random.default_rng(3).normal(size=(3, 1, 7, 5))
    masks = masks_of(3, 7, 5, classes=2)
    assert Dice()(logits, masks) == Dice()(scores_of((logits[:, 0] > 0).astype(int), 2), masks)


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


def directed(first, second):
    """The distance of each point of the first set to the second one, by brute force."""
    return scipy.spatial.distance.cdist(first, second).min(axis=1)


def surface_by_hand(region):
    """Voxels of the region with a face neighbour outside it, one by one."""
    found = []
    for place in np.argwhere(region):
        for axis, step in itertools.product(range(region.ndim), (-1, 1)):
            other = place + step * (np.arange(region.ndim) == axis)
            if (other < 0).any() or (other >= region.shape).any() or not region[tuple(other)]:
                found.append(place)
                break
    return np.array(found)


@pytest.mark.parametrize("shape", [(9,), (9, 7), (7, 5, 6)])
def test_the_surface_of_a_region_is_its_voxels_with_a_neighbour_outside(shape):
    region = np.random.default_rng(0).random(shape) < 0.8
    assert surface(region).tolist() == surface_by_hand(region).tolist()


def blob(shape, centre, radius):
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"))
    return (
        ((grid - np.reshape(centre, (-1, *[1] * len(shape)))) ** 2).sum(axis=0) <= radius**2
    ).astype(int)


@pytest.mark.parametrize("percentile", [100.0, 95.0])
@pytest.mark.parametrize(
    ("first", "second", "spacing"),
    [
        (blob((17, 21), (8, 7), 4), blob((17, 21), (9, 12), 6), (1.0, 1.0)),
        (blob((17, 21), (8, 7), 4), blob((17, 21), (9, 12), 6), (0.5, 3.0)),
        (blob((9, 11, 13), (4, 4, 5), 3), blob((9, 11, 13), (5, 6, 6), 4), (1.0, 2.0, 0.7)),
    ],
)
def test_the_distance_of_surfaces_is_that_of_brute_force_and_scipy(
    first, second, spacing, percentile
):
    points, others = (surface_by_hand(mask == 1) * np.array(spacing) for mask in (first, second))
    wanted = max(
        np.percentile(directed(points, others), percentile),
        np.percentile(directed(others, points), percentile),
    )
    metric = Hausdorff(percentile=percentile, spacing=spacing)
    found = metric(scores_of(first[np.newaxis], 2), second[np.newaxis])
    assert found == {
        "1": pytest.approx(wanted, rel=1e-13),
        "mean": pytest.approx(wanted, rel=1e-13),
    }
    if percentile == 100:
        ways = [
            scipy.spatial.distance.directed_hausdorff(*pair)[0]
            for pair in ((points, others), (others, points))
        ]
        assert found["1"] == pytest.approx(max(ways), rel=1e-13)


@pytest.mark.parametrize("metric", ["hausdorff", "surface-dice", "average-surface-distance"])
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
def test_spacing_is_any_kind_of_numbers_one_for_all_axes_or_one_for_each(metric, spacing, wanted):
    given, floats = (metrics.metric(metric, spacing=each) for each in (spacing, wanted))
    assert given(scores_of(PREDICTED, 3), TRUE) == floats(scores_of(PREDICTED, 3), TRUE)


@pytest.mark.parametrize("tolerance", [1, np.int64(1), np.array([1, 1])])
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
    assert Hausdorff()(scores_of(predicted, 2), np.where(true == 9, 0, true))["1"] == 3.0


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
        DataUnavailable, match=r"distance of surfaces needs the package 'scipy'.*deliralike\[data\]"
    ):
        Hausdorff()(scores_of(PREDICTED, 3), TRUE)
