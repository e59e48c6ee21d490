"""Evidence, intervals, regression errors, plain functions and metrics by name."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from deliralike import nest
from deliralike.errors import ArgumentError, BatchError, SettingError, UnknownName
from deliralike.training import metrics
from deliralike.training.metrics import Accuracy, Dice, Evidence, RocAuc, bootstrap

OUTPUTS, TARGETS = np.random.default_rng(0).normal(size=(2, 13, 7, 5))


def gathered(metric, outputs, targets, batch=4):
    evidence = Evidence(metric)
    for i in range(0, len(outputs), batch):
        evidence.add(outputs[i : i + batch], targets[i : i + batch])
    return evidence


# Regression
# -----------------------------------------------------------------------------

ERRORS = {
    "mae": sklearn.metrics.mean_absolute_error,
    "mse": sklearn.metrics.mean_squared_error,
    "rmse": sklearn.metrics.root_mean_squared_error,
    "r2": sklearn.metrics.r2_score,
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_those_of_scikit_learn(name):
    wanted = ERRORS[name](TARGETS.ravel(), OUTPUTS.ravel())
    assert gathered(metrics.metric(name), OUTPUTS, TARGETS).value() == pytest.approx(
        wanted, rel=1e-13
    )
    assert metrics.metric(name)(OUTPUTS[:, 0, 0], TARGETS[:, 0, 0]) == pytest.approx(
        ERRORS[name](TARGETS[:, 0, 0], OUTPUTS[:, 0, 0]), rel=1e-13
    )


def test_r2_loses_no_digits_far_from_zero():
    exact = metrics.metric("r2")(OUTPUTS, TARGETS)
    assert gathered(
        metrics.metric("r2"), OUTPUTS + 2.0**30, TARGETS + 2.0**30
    ).value() == pytest.approx(exact, abs=1e-6)


def test_r2_of_targets_that_do_not_vary_is_nan():
    assert np.isnan(metrics.metric("r2")(np.array([1.0, 2.0]), np.array([3.0, 3.0])))


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_nan_are_nan_and_shapes_must_agree(name):
    assert np.isnan(metrics.metric(name)(np.array([1.0, np.nan]), np.array([1.0, 2.0])))
    with pytest.raises(
        BatchError,
        match=r"outputs of shape \(7, 1\) do not fit targets of shape \(7,\)",
    ):
        metrics.metric(name)(np.zeros((7, 1)), np.zeros(7))


# Evidence
# -----------------------------------------------------------------------------


def test_evidence_of_nothing_has_no_figure():
    with pytest.raises(BatchError, match="accuracy has seen no samples"):
        Evidence(Accuracy()).value()
    with pytest.raises(BatchError, match="at least one sample"):
        Evidence(Accuracy()).add(np.zeros((0, 3)), np.zeros(0, int))


def test_evidence_is_smaller_than_the_outputs():
    scores, masks = np.zeros((4, 3, 64, 64)), np.zeros((4, 64, 64), int)
    for name in (
        "accuracy",
        "loss",
        "dice",
        "iou",
        "hausdorff95",
        "confusion",
    ):
        rows = metrics.metric(name).evidence(scores, masks)
        assert sum(array.nbytes for array in nest.leaves(rows)) < scores.nbytes / 50, (
            name
        )


def test_a_plain_function_sees_all_outputs_and_targets_at_once():
    seen = []

    def worst(outputs, targets):
        seen.append(len(outputs["pred"]))
        return np.abs(outputs["pred"] - targets).max()

    evidence = Evidence(worst)
    for part in (slice(0, 5), slice(5, 13)):
        evidence.add({"pred": OUTPUTS[part]}, TARGETS[part])
    assert evidence.value() == np.abs(OUTPUTS - TARGETS).max()
    assert (seen, evidence.metric.name) == ([13], "worst")


# Intervals
# -----------------------------------------------------------------------------

RIGHT = np.random.default_rng(5).random(200) < 0.8


def evidence_of(right):
    return gathered(
        Accuracy(), np.eye(2)[right.astype(int)], np.ones(len(right), int), batch=64
    )


def test_intervals_are_those_of_scipy_up_to_the_noise_of_the_draws():
    sample = np.random.default_rng(2).exponential(size=60)
    evidence = Evidence(metrics.FromFunction(lambda outputs, targets: outputs.mean()))
    evidence.add(sample, sample)
    found = evidence.interval(resamples=20_000)
    options = {
        "n_resamples": 20_000,
        "rng": np.random.default_rng(0),
        "vectorized": True,
    }
    wanted = scipy.stats.bootstrap(
        (sample,), np.mean, method="percentile", **options
    ).confidence_interval
    assert found == pytest.approx(tuple(wanted), abs=0.008)
    assert wanted.high - wanted.low > 0.3


def test_a_metric_with_several_figures_has_an_interval_for_each():
    scores, masks = (
        np.random.default_rng(0).normal(size=(9, 3, 7, 5)),
        np.random.default_rng(1).integers(0, 2, (9, 7, 5)),
    )
    evidence = gathered(Dice(), scores, masks)
    found, value = evidence.interval(), evidence.value()
    assert list(found) == ["0", "1", "2", "mean"]
    assert all(low <= value[name] <= high for name, (low, high) in found.items())


def test_draws_without_a_figure_are_left_out_and_a_figure_that_is_nan_has_no_interval():
    scores, rare = np.arange(12.0)[:, np.newaxis], np.array([0] * 10 + [1, 0])
    low, high = gathered(RocAuc(), scores, rare).interval()
    assert 0 <= low <= high <= 1
    assert np.isnan(gathered(RocAuc(), scores, 0 * rare).interval()).all()


def test_intervals_that_make_no_sense_are_refused():
    evidence = evidence_of(RIGHT)
    for options, message in [
        ({"level": 95}, "between 0 and 1, not 95"),
        ({"resamples": 0}, "at least 1, not 0"),
    ]:
        with pytest.raises(SettingError, match=message):
            evidence.interval(**options)
    with pytest.raises(BatchError, match="at least two samples, and there is 1"):
        evidence_of(RIGHT[:1]).interval()


# Names
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", metrics.known())
def test_every_metric_has_a_name_a_direction_and_settings_that_can_be_compared(name):
    metric = metrics.metric(name)
    assert metric.name == ("top-5" if name == "top-k" else name)
    are_errors = ("loss", "mae", "mse", "rmse")
    are_distances = ("hausdorff", "hausdorff95")
    assert metric.higher_is_better is (name not in (*are_errors, *are_distances))
    assert metric == metrics.metric(name)


def test_settings_of_a_file_make_the_metric():
    assert metrics.metric("dice", classes=["a", "b"], over="voxels") == Dice(
        classes=["a", "b"], over="voxels"
    )


def test_unknown_names_and_settings_are_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="no metric 'dise'. Did you mean 'dice'?"):
        metrics.metric("dise")
    with pytest.raises(
        ArgumentError,
        match="metric 'dice' has no setting 'class'. Did you mean 'classes'?",
    ):
        metrics.metric("dice", **{"class": 3})


def test_metrics_import_neither_scikit_learn_nor_scipy():
    code = (
        "import sys, deliralike.training.metrics; "
        "sys.exit('sklearn' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_draws_are_known_in_advance():
    """Raw words of Philox, modulo the number of samples, written out here."""
    import hashlib

    key = np.array(
        [
            7,
            int.from_bytes(
                hashlib.blake2b(b"training/bootstrap", digest_size=8).digest(), "little"
            ),
        ],
        "u8",
    )
    words = np.random.Philox(key=key).random_raw(6) % np.uint64(3)
    seen = []
    bootstrap.intervals(
        lambda rows: seen.append(rows.tolist()) or np.zeros(1),
        3,
        resamples=2,
        seed=7,
    )
    assert seen == [[0, 1, 2], words[:3].tolist(), words[3:].tolist()]


NUMBERS = np.arange(6.0).reshape(3, 2)
LABELS = np.array([0, 1, 2])


@pytest.mark.parametrize(
    "names, outputs",
    [(("a",), NUMBERS), (("a", "b", "c"), NUMBERS), (("a",), NUMBERS[:, 0])],
)
def test_every_column_has_a_name(names, outputs):
    with pytest.raises(BatchError, match="mae: outputs of shape .* wanted .samples, "):
        metrics.MeanAbsoluteError(columns=names)(outputs, outputs)


@pytest.mark.parametrize(
    "metric, settings",
    [
        (metrics.RootMeanSquaredError, {"columns": ("mean", "width")}),
        (Dice, {"classes": ("mean", "b", "c")}),
    ],
)
def test_no_figure_is_replaced_by_the_mean(metric, settings):
    with pytest.raises(SettingError, match="cannot be called 'mean'"):
        metric(**settings)


@pytest.mark.parametrize("metric", [Dice, metrics.ConfusionMatrix])
def test_no_figure_is_replaced_by_that_of_another_class(metric):
    with pytest.raises(SettingError, match="two classes are called 'a'"):
        metric(classes=("a", "a", "b"))(np.eye(3), LABELS)
