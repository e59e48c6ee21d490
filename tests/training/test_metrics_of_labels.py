"""Metrics of labels against scikit-learn and tables worked out by hand."""

import math

import numpy as np
import pytest
import sklearn.metrics
import torch

from deliralike.errors import BatchError, IndexRangeError, SettingError
from deliralike.training import metrics
from deliralike.training.metrics import (
    Accuracy,
    AveragePrecision,
    ConfusionMatrix,
    CrossEntropy,
    RocAuc,
    TopK,
)
from deliralike.training.metrics.labels import log_softmax


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape) * 2


def labels_of(*shape, classes, seed=1):
    return np.random.default_rng(seed).integers(0, classes, shape)


def softmax(scores):
    exp = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


SCORES, LABELS = draw(37, 4), labels_of(37, classes=4)
PICTURES, MASKS = draw(5, 3, 7, 5), labels_of(5, 7, 5, classes=3)
BINARY, YES = draw(41, 2), labels_of(41, classes=2)


# Accuracy and top-k
# -----------------------------------------------------------------------------


def test_accuracy_of_pictures_counts_every_pixel():
    assert Accuracy()(PICTURES, MASKS) == pytest.approx(
        (PICTURES.argmax(1) == MASKS).mean(), rel=1e-15
    )


def test_ignored_pixels_do_not_count_even_when_their_score_is_nan():
    masks, pictures = MASKS.copy(), PICTURES.copy()
    masks[:, 2:4] = 255
    pictures[:, :, 2:4] = np.nan
    kept = masks != 255
    found = metrics.Accuracy(ignored=255)(pictures, masks)
    assert found == pytest.approx((PICTURES.argmax(1) == MASKS)[kept].mean(), rel=1e-15)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_top_k_is_that_of_scikit_learn(k):
    wanted = (
        sklearn.metrics.top_k_accuracy_score(LABELS, SCORES, k=k, labels=range(4))
        if k < 4
        else 1.0
    )
    assert TopK(k=k)(SCORES, LABELS) == pytest.approx(wanted, rel=1e-15)


def test_of_equal_scores_the_first_class_comes_first_in_accuracy_and_top_k():
    scores = np.array([[1.0, 1.0, 1.0]] * 3)
    assert [Accuracy()(scores[:1], np.array([label])) for label in range(3)] == [
        1.0,
        0.0,
        0.0,
    ]
    assert [TopK(k=2)(scores[:1], np.array([label])) for label in range(3)] == [
        1.0,
        1.0,
        0.0,
    ]


def test_top_k_with_fewer_classes_than_k_is_refused():
    with pytest.raises(
        SettingError, match="top-5 needs at least 5 classes, and the scores have 4"
    ):
        TopK()(SCORES, LABELS)
    with pytest.raises(SettingError, match="k of at least 1, not 0"):
        TopK(k=0)
    with pytest.raises(SettingError, match="TopK: k='3' must be a whole number"):
        TopK(k="3")


# Cross-entropy
# -----------------------------------------------------------------------------


def test_cross_entropy_is_that_of_scikit_learn_from_logits_and_probabilities():
    wanted = sklearn.metrics.log_loss(LABELS, softmax(SCORES))
    assert CrossEntropy()(SCORES, LABELS) == pytest.approx(wanted, rel=1e-13)
    assert CrossEntropy(from_probabilities=True)(
        softmax(SCORES), LABELS
    ) == pytest.approx(wanted, rel=1e-13)


def test_cross_entropy_without_ignored_pixels_is_that_of_torch():
    masks = MASKS.copy()
    masks[0, 1:] = -100
    wanted = torch.nn.functional.cross_entropy(
        torch.from_numpy(PICTURES), torch.from_numpy(masks)
    )
    assert CrossEntropy(ignored=-100)(PICTURES, masks) == pytest.approx(
        float(wanted), rel=1e-13
    )


def test_one_channel_holds_the_logit_or_the_probability_of_class_1():
    logits = BINARY[:, :1]
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(
        torch.from_numpy(logits[:, 0]), torch.from_numpy(YES.astype(float))
    )
    assert CrossEntropy()(logits, YES) == pytest.approx(float(wanted), rel=1e-13)
    p = 1 / (1 + np.exp(-logits))
    assert CrossEntropy(from_probabilities=True)(p, YES) == pytest.approx(
        float(wanted), rel=1e-12
    )
    assert Accuracy()(logits, YES) == ((logits[:, 0] > 0) == YES).mean()
    assert Accuracy(from_probabilities=True)(p, YES) == ((p[:, 0] > 0.5) == YES).mean()


def test_a_label_of_probability_zero_is_an_infinite_loss():
    assert (
        CrossEntropy(from_probabilities=True)(np.array([[1.0, 0.0]]), np.array([1]))
        == np.inf
    )


# ROC AUC and average precision
# -----------------------------------------------------------------------------


def test_roc_auc_of_several_classes_is_that_of_scikit_learn():
    wanted = sklearn.metrics.roc_auc_score(LABELS, softmax(SCORES), multi_class="ovr")
    assert RocAuc()(SCORES, LABELS) == pytest.approx(wanted, rel=1e-13)
    found = RocAuc(from_probabilities=True)(softmax(SCORES), LABELS)
    assert found == pytest.approx(wanted, rel=1e-13)


@pytest.mark.parametrize("decimals", [0, 1, 9])
@pytest.mark.parametrize(
    ("metric", "oracle"),
    [
        (RocAuc(), sklearn.metrics.roc_auc_score),
        (AveragePrecision(), sklearn.metrics.average_precision_score),
    ],
)
def test_of_two_classes_class_1_is_ranked_as_scikit_learn_ranks_it_with_ties_too(
    metric, oracle, decimals
):
    score = BINARY[:, 0].round(decimals)
    assert metric(score[:, np.newaxis], YES) == pytest.approx(
        oracle(YES, score), rel=1e-13
    )
    assert metric(np.stack([-score, 0 * score], 1), YES) == pytest.approx(
        oracle(YES, score), rel=1e-13
    )


def test_average_precision_of_classes_is_the_mean_of_scikit_learns():
    wanted = [
        sklearn.metrics.average_precision_score(LABELS == c, softmax(SCORES)[:, c])
        for c in range(4)
    ]
    found = AveragePrecision()(SCORES, LABELS)
    assert found == pytest.approx(np.mean(wanted), rel=1e-13)


def test_ignored_labels_take_no_part_in_the_ranking():
    labels = LABELS.copy()
    labels[:9] = -1
    wanted = sklearn.metrics.roc_auc_score(
        LABELS[9:], softmax(SCORES[9:]), multi_class="ovr"
    )
    assert RocAuc(ignored=-1)(SCORES, labels) == pytest.approx(wanted, rel=1e-13)


def test_sure_logits_are_still_ranked_where_their_probabilities_have_become_equal():
    logits = np.array([[0.0, 40.0], [0.0, 50.0], [0.0, 60.0]])
    assert RocAuc()(logits, np.array([0, 0, 1])) == 1.0
    assert RocAuc()(np.pad(logits, ((0, 0), (0, 1))), np.array([0, 0, 1])) == 1.0
    assert len(set(softmax(logits)[:, 1])) == 1


@pytest.mark.parametrize("metric", [RocAuc(), AveragePrecision()])
def test_logits_of_any_size_are_ranked_by_what_they_stand_for(metric):
    logits = 3000 * draw(60, 3)
    labels = labels_of(60, classes=2)
    function = sklearn.metrics.roc_auc_score
    if metric.name == "average-precision":
        function = sklearn.metrics.average_precision_score
    wanted = function(labels, logits[:, 1] - logits[:, 0])
    assert metric(logits[:, :2], labels) == pytest.approx(wanted, rel=1e-13)
    labels = labels_of(60, classes=3)
    of_classes = []
    for label in range(3):
        others = np.delete(logits, label, axis=1)
        margins = logits[:, label] - np.logaddexp(others[:, 0], others[:, 1])
        of_classes.append(function(labels == label, margins))
    assert metric(logits, labels) == pytest.approx(np.mean(of_classes), rel=1e-13)


def test_log_probabilities_of_logits_are_exact_however_sure_they_are():
    logits = np.array(
        [
            [[0.0], [30.0], [-800.0]],
            [[5.0], [5.0], [-np.inf]],
            [[-np.inf], [2.0], [-np.inf]],
        ]
    )
    sure = math.log1p(math.exp(-30))
    half = math.log(0.5)
    wanted = [
        [-30 - sure, -sure, -830 - sure],
        [half, half, -np.inf],
        [-np.inf, 0, -np.inf],
    ]
    assert log_softmax(logits)[..., 0] == pytest.approx(np.array(wanted), rel=1e-12)
    assert log_softmax(SCORES) == pytest.approx(np.log(softmax(SCORES)), rel=1e-12)
    assert np.isnan(
        RocAuc()(np.array([[np.inf, 1.0, 2.0], [1.0, 2.0, 3.0]]), np.array([0, 1]))
    )


def test_a_class_without_labels_is_left_out_of_the_mean():
    labels = np.where(LABELS == 3, 2, LABELS)
    found = RocAuc()(SCORES, labels)
    each = [
        sklearn.metrics.roc_auc_score(labels == c, softmax(SCORES)[:, c])
        for c in range(3)
    ]
    assert found == pytest.approx(np.mean(each), rel=1e-13)


def test_labels_of_one_class_alone_have_no_area_and_a_precision_of_one():
    ones = np.ones(41, np.int64)
    assert np.isnan(RocAuc()(BINARY, ones))
    assert np.isnan(RocAuc()(BINARY, 0 * ones))
    assert AveragePrecision()(BINARY, ones) == 1.0
    assert np.isnan(AveragePrecision()(BINARY, 0 * ones))


def test_pixels_are_ranked_all_together():
    scores, labels = draw(3, 2, 7, 5), labels_of(3, 7, 5, classes=2)
    margin = (scores[:, 1] - scores[:, 0]).ravel()
    assert RocAuc()(scores, labels) == pytest.approx(
        sklearn.metrics.roc_auc_score(labels.ravel(), margin), rel=1e-13
    )


# Confusion
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(("scores", "labels"), [(SCORES, LABELS), (PICTURES, MASKS)])
def test_the_confusion_matrix_is_that_of_scikit_learn(scores, labels):
    wanted = sklearn.metrics.confusion_matrix(labels.ravel(), scores.argmax(1).ravel())
    metric = ConfusionMatrix()
    assert np.allclose(
        metric.matrix(metric.evidence(scores, labels)), wanted, rtol=1e-15
    )
    assert metric(scores, labels)["0/1"] == pytest.approx(wanted[0, 1])


def test_the_confusion_matrix_leaves_ignored_labels_out_and_names_classes():
    found = ConfusionMatrix(classes=["cat", "dog"], ignored=-1)(
        np.eye(2)[[0, 1, 1]], np.array([0, -1, 0])
    )
    assert found == {"cat/cat": 1.0, "cat/dog": 1.0, "dog/cat": 0.0, "dog/dog": 0.0}


# What all of them have in common
# -----------------------------------------------------------------------------

OF_LABELS = [
    "accuracy",
    "average-precision",
    "confusion",
    "dice",
    "iou",
    "loss",
    "roc-auc",
    "top-k",
]


def figures(value):
    return list(value.values()) if isinstance(value, dict) else [value]


def of_labels(name, **settings):
    return metrics.metric(name, **(settings | ({"k": 2} if name == "top-k" else {})))


@pytest.mark.parametrize("name", OF_LABELS)
def test_a_nan_among_the_scores_makes_the_figure_nan(name):
    scores = SCORES.copy()
    scores[3, 2] = np.nan
    found = of_labels(name)(scores, LABELS)
    assert np.isnan(
        found["mean"]
        if "mean" in (found if isinstance(found, dict) else ())
        else figures(found)
    ).all()


@pytest.mark.parametrize(
    "name",
    ["accuracy", "loss", "roc-auc", "top-k", "average-precision"],
)
def test_there_is_no_figure_where_no_label_counts(name):
    assert np.isnan(of_labels(name, ignored=0)(SCORES, 0 * LABELS))


@pytest.mark.parametrize("name", OF_LABELS)
def test_batches_of_any_size_give_the_figure_of_the_whole(name):
    whole = of_labels(name)(PICTURES, MASKS)
    evidence = metrics.Evidence(of_labels(name))
    for part in (slice(0, 1), slice(1, 4), slice(4, 5)):
        evidence.add(PICTURES[part], MASKS[part])
    assert figures(evidence.value()) == pytest.approx(figures(whole), rel=1e-12)
    assert evidence.samples == 5


@pytest.mark.parametrize("name", OF_LABELS)
def test_scores_of_half_precision_are_taken(name):
    half = (PICTURES * 8).round() / 8
    assert figures(of_labels(name)(half.astype(np.float16), MASKS)) == figures(
        of_labels(name)(half, MASKS)
    )


@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_that_name_no_class_are_refused(name):
    with pytest.raises(
        IndexRangeError,
        match="sample 2 of the batch has the label 4, and the classes are 0 to 3",
    ):
        of_labels(name)(SCORES[:3], np.array([0, 1, 4]))
    with pytest.raises(IndexRangeError, match="label -1, .*named by ignored="):
        of_labels(name)(SCORES[:3], np.array([-1, 1, 2]))


@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_that_do_not_fit_are_refused(name):
    with pytest.raises(
        BatchError,
        match=r"scores of shape \(37, 4\) do not fit labels of shape \(36,\)",
    ):
        of_labels(name)(SCORES, LABELS[1:])
    with pytest.raises(BatchError, match="whole numbers, not float64"):
        of_labels(name)(SCORES, LABELS.astype(float))
    with pytest.raises(
        BatchError, match=r"one NumPy array of scores, not a dict with keys \['pred'\]"
    ):
        of_labels(name)({"pred": SCORES}, LABELS)


@pytest.mark.parametrize("name", OF_LABELS)
def test_batches_that_are_padded_to_different_lengths_give_the_figure_of_one_padded_batch(
    name,
):
    metric = of_labels(name, ignored=-1)
    scores, labels = draw(9, 4, 7), labels_of(9, 7, classes=4)
    labels[3:, 5:] = -1
    labels[7:, 1:] = -1
    evidence = metrics.Evidence(metric)
    for rows, length in ((slice(0, 3), 7), (slice(3, 7), 5), (slice(7, 9), 1)):
        evidence.add(scores[rows, :, :length], labels[rows, :length])
    assert figures(evidence.value()) == pytest.approx(
        figures(metric(scores, labels)), rel=1e-12
    )


def test_a_function_of_all_outputs_says_that_batches_differ_in_length():
    evidence = metrics.Evidence(lambda outputs, targets: 0.0)
    evidence.add(draw(2, 3, 5), labels_of(2, 5, classes=3))
    evidence.add(draw(2, 3, 7), labels_of(2, 7, classes=3))
    with pytest.raises(
        BatchError, match=r"shapes \(3, 5\) and \(3, 7\) in different batches"
    ):
        evidence.value()


@pytest.mark.parametrize("name", ["confusion", "dice", "iou"])
def test_a_wrong_number_of_names_is_refused(name):
    with pytest.raises(
        SettingError,
        match="was given 3 names of classes, and the scores have 4 classes",
    ):
        of_labels(name, classes=["a", "b", "c"])(SCORES, LABELS)
