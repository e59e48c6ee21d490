"""Test-time augmentation: the views, and their mean and spread against NumPy's over all of them."""

import numpy as np
import pytest

from deliralike.errors import BatchError, SettingError
from deliralike.inference import (
    SlidingWindowInferer,
    View,
    augmented_inference,
    flips,
)
from tests.inference.test_sliding_window import BACKENDS, network, picture

QUARTER = View(lambda x: np.rot90(x, 1, (-2, -1)), lambda y: np.rot90(y, -1, (-2, -1)))
VIEWS = {
    "flips": (flips((-1, -2)), 4),
    "flips of a volume": (flips((-3, -2, -1)), 8),
    "own rotation": ([QUARTER], 1),
    "own": ([View(lambda x: x + 3.0, lambda y: y - 3.0)], 1),
}


@pytest.mark.parametrize("case", VIEWS)
def test_each_inverse_undoes_its_transform_and_all_views_differ(case):
    views, count = VIEWS[case]
    inputs = picture(3, 4, 5)
    seen = [view.transform(inputs) for view in views]
    for view, one in zip(views, seen):
        np.testing.assert_array_equal(view.inverse(one).round(12), inputs.round(12))
    assert len({(one.shape, one.tobytes()) for one in seen}) == count


@pytest.mark.parametrize("backend", BACKENDS)
def test_mean_and_spread_are_those_of_the_outputs_of_all_views(backend):
    net, inputs = network(backend), picture(7, 5)
    views = [*flips((-1,)), QUARTER]
    found = augmented_inference(inputs, net, views)
    outputs = []
    reference = network("torch").eval()
    for view in views:
        turned = reference.backend.array(view.transform(inputs).copy())
        outputs.append(view.inverse(reference(turned).detach().numpy()))
    np.testing.assert_allclose(found.mean, np.mean(outputs, axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.std, np.std(outputs, axis=0), rtol=0, atol=1e-12)
    assert found.std.min() > 1e-6
    assert net.training


def test_windows_work_within_views():
    inputs, net = picture(9, 7), network("torch")
    inferer = SlidingWindowInferer((5, 5), 4, mode="gaussian")
    found = augmented_inference(
        inputs,
        net,
        flips((-1,)),
        inferer=lambda x, network: inferer(x, network) ** 2,
    )
    straight = inferer(inputs, net) ** 2
    mirrored = inferer(inputs[..., ::-1].copy(), net)[..., ::-1] ** 2
    np.testing.assert_allclose(found.mean, (straight + mirrored) / 2, atol=1e-12)


def test_views_that_make_no_sense_are_refused():
    with pytest.raises(SettingError, match="at least one view"):
        augmented_inference(picture(4, 4), lambda x: x, [])
    with pytest.raises(SettingError, match=r"each named once; not \(-1, -1\)"):
        flips((-1, -1))
    wrong = View(QUARTER.transform, lambda y: y)
    with pytest.raises(BatchError, match="does the inverse undo its transform"):
        augmented_inference(picture(4, 5), lambda x: x, [*flips((-1,)), wrong])


WEIGHTS = np.random.default_rng(7).normal(size=(2, 5, 5, 3))


def scores(inputs):
    """Three classes' scores that depend on where things are."""
    return np.einsum("nchw,chwk->nk", inputs, WEIGHTS)


@pytest.mark.parametrize(
    "views",
    [flips((-1,)), flips((-2,)), flips((-1, -2)), [QUARTER]],
    ids=["columns", "rows", "both", "a quarter turn"],
)
def test_scores_of_classes_are_averaged_as_they_are(views):
    inputs = picture(5, 5, samples=3)  # as many samples as classes, and a square
    found = augmented_inference(inputs, scores, views)
    wanted = [scores(view.transform(inputs)) for view in views]
    np.testing.assert_allclose(found.mean, np.mean(wanted, axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.std, np.std(wanted, axis=0), rtol=0, atol=1e-12)


def test_of_several_outputs_those_with_places_are_turned_back():
    inputs = picture(5, 5, samples=3)
    views = [*flips((-1,)), QUARTER]
    outputs = lambda x: {"map": x[:, :1], "classes": x[:, 0] > 0, "score": scores(x)}  # noqa: E731
    found = augmented_inference(inputs, outputs, views)
    np.testing.assert_array_equal(found.mean["map"].round(12), inputs[:, :1].round(12))
    np.testing.assert_array_equal(found.mean["classes"], inputs[:, 0] > 0)
    wanted = np.mean([scores(view.transform(inputs)) for view in views], axis=0)
    np.testing.assert_allclose(found.mean["score"], wanted, rtol=0, atol=1e-12)


def test_the_scores_of_a_signal_as_long_as_its_classes_are_no_places():
    signal = np.random.default_rng(0).normal(size=(2, 1, 3))
    found = augmented_inference(
        signal, lambda x: np.cumsum(x[:, 0], axis=1), flips((-1,))
    )
    wanted = (np.cumsum(signal[:, 0], 1) + np.cumsum(signal[:, 0, ::-1], 1)) / 2
    np.testing.assert_allclose(found.mean, wanted, rtol=0, atol=1e-12)
