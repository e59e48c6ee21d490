"""Metrics of regions against MONAI's: odd sizes, empty classes, voxels that are no cubes."""

import numpy as np
import pytest
import torch

from deliralike.errors import SettingError
from deliralike.training import metrics
from deliralike.training.metrics import ConfusionMatrix, SurfaceDice
from tests.references import Later

monai = Later("monai.metrics")
pytestmark = [
    pytest.mark.xdist_group("monai"),  # which takes seconds to import
    pytest.mark.filterwarnings("ignore:.*all 0, this may result:UserWarning"),
    pytest.mark.filterwarnings("ignore:monai:FutureWarning"),  # of its own calls
]
CLASSES = 4


def masks_of(shape, seed):
    """Masks of four classes; the last is missing on either side, or on both."""
    masks = np.random.default_rng(seed).integers(0, CLASSES, (4, *shape))
    absent = [(0, 1), (1, 2)][seed]
    for sample in absent:
        masks[sample][masks[sample] == 3] = seed
    return masks


def one_hot(masks):
    return torch.from_numpy(np.moveaxis(np.eye(CLASSES)[masks], -1, 1))


def reduced(figures, include_background):
    """The means that MONAI calls mean_batch (by class), and their mean."""
    by_class, has_figure = monai.utils.do_metric_reduction(figures, "mean_batch")
    names = range(CLASSES) if include_background else range(1, CLASSES)
    mean = by_class[has_figure > 0].mean()
    return {**dict(zip(map(str, names), by_class.tolist())), "mean": mean.item()}


def rate(name):
    def figures(predicted, true, include_background=True):
        counts = monai.get_confusion_matrix(predicted, true, include_background)
        return monai.compute_confusion_matrix_metric(name, counts)

    return figures


SPACING = (0.7, 2.0, 1.3)
ROWS = {
    # case: (metric, its settings, MONAI's function, its settings)
    "dice": ("dice", {"ignore_empty": True}, Later("monai.metrics.compute_dice"), {}),
    "dice, empty counts": (
        "dice",
        {"ignore_empty": False},
        Later("monai.metrics.compute_dice"),
        {"ignore_empty": False},
    ),
    "iou": ("iou", {"ignore_empty": True}, Later("monai.metrics.compute_iou"), {}),
    "iou, empty counts": (
        "iou",
        {"ignore_empty": False},
        Later("monai.metrics.compute_iou"),
        {"ignore_empty": False},
    ),
    "sensitivity": ("sensitivity", {}, rate("sensitivity"), {}),
    "specificity": ("specificity", {}, rate("specificity"), {}),
    "precision": ("precision", {}, rate("precision"), {}),
    "f1": ("f1", {}, rate("f1 score"), {}),
    "hausdorff": (
        "hausdorff",
        {"missing": 9.0},
        Later("monai.metrics.compute_hausdorff_distance"),
        {},
    ),
    "hausdorff90": (
        "hausdorff",
        {
            "missing": np.nan,
            "percentile": 90,
        },  # a quantile of infinities is NaN in MONAI
        Later("monai.metrics.compute_hausdorff_distance"),
        {"percentile": 90},
    ),
    "surface dice": (
        "surface-dice",
        {"tolerance": 1.1},
        Later("monai.metrics.compute_surface_dice"),
        {},
    ),
}


@pytest.mark.parametrize("include_background", [True, False])
@pytest.mark.parametrize("shape", [(7, 5), (5, 7, 3)])
@pytest.mark.parametrize("case", ROWS)
def test_figures_are_those_of_monai(case, shape, include_background):
    name, settings, reference, its_settings = ROWS[case]
    settings, its_settings = dict(settings), dict(its_settings)
    if "surface" in name or name == "hausdorff":
        settings["spacing"] = its_settings["spacing"] = SPACING[: len(shape)]
    first = 0 if include_background else 1
    if name == "surface-dice":
        its_settings["class_thresholds"] = [1.1] * (CLASSES - first)
    predicted, true = masks_of(shape, 0), masks_of(shape, 1)
    figures = reference(
        one_hot(predicted),
        one_hot(true),
        include_background=include_background,
        **its_settings,
    )
    figures[figures.isinf()] = 9.0  # one of the regions is not there
    if name in ("dice", "iou", "sensitivity", "specificity", "precision", "f1"):
        settings["over"] = "samples"
    metric = metrics.metric(name, include_background=include_background, **settings)
    found = metric(one_hot(predicted).numpy(), true)
    assert found == pytest.approx(reduced(figures, include_background), rel=1e-6)


@pytest.mark.parametrize("name", ["sensitivity", "specificity", "precision", "f1"])
def test_rates_over_all_voxels_are_those_of_monai_without_compute_sample(name):
    predicted, true = masks_of((7, 5), 0), masks_of((7, 5), 1)
    theirs = monai.ConfusionMatrixMetric(metric_name=name.replace("f1", "f1 score"))
    theirs(one_hot(predicted), one_hot(true))
    (wanted,) = theirs.aggregate(reduction="sum_batch")
    found = metrics.metric(name)(one_hot(predicted).numpy(), true)
    assert list(found.values())[:-1] == pytest.approx(wanted.tolist(), rel=1e-6)


def test_the_matrix_has_the_counts_of_monai():
    predicted, true = masks_of((7, 5), 0), masks_of((7, 5), 1)
    metric = ConfusionMatrix()
    matrix = metric.matrix(metric.evidence(one_hot(predicted).numpy(), true))
    hits, missed, false = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    counts = (
        monai.get_confusion_matrix(one_hot(predicted), one_hot(true))
        .sum(dim=0)
        .T.numpy()
    )
    rest = matrix.sum() - missed - false + hits
    np.testing.assert_array_equal(counts, [hits, false - hits, rest, missed - hits])


@pytest.mark.parametrize("tolerance", [-1.0, np.inf, np.nan])
def test_tolerances_that_make_no_sense_are_refused(tolerance):
    with pytest.raises(SettingError, match="finite distance from 0 up"):
        SurfaceDice(tolerance=tolerance)
