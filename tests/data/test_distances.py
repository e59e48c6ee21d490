"""Maps of signed distances beside a search over all pairs of pixels."""

import itertools

import numpy as np
import pytest

from deliralike import backends
from deliralike.data import SignedDistances, signed_distances
from deliralike.errors import BatchError, SettingError


def by_search(inside, spacing):
    """Each pixel's nearest one of the other kind, by looking at all."""
    places = list(itertools.product(*map(range, inside.shape)))
    found = np.zeros(inside.shape)
    for place in places:
        others = [p for p in places if inside[p] != inside[place]]
        away = min(np.linalg.norm((np.array(p) - place) * spacing) for p in others)
        found[place] = 1.0 - away if inside[place] else away
    return found


@pytest.mark.parametrize(
    ("size", "spacing"), [((6, 5), None), ((4, 3, 4), None), ((5, 6), (2.0, 0.5))]
)
def test_every_pixel_has_its_distance_to_the_nearest_of_the_other_kind(size, spacing):
    labels = np.random.default_rng(0).integers(0, 3, size)
    maps = signed_distances(labels, 3, spacing)
    assert maps.shape == (3, *size)
    assert maps.dtype == np.float32
    for number in range(3):
        wanted = by_search(
            labels == number, np.ones(len(size)) if spacing is None else spacing
        )
        np.testing.assert_allclose(maps[number], wanted, rtol=1e-6, atol=1e-6)


def test_a_class_without_a_boundary_has_zeros():
    maps = signed_distances(np.zeros((3, 4), np.int64), 2)
    np.testing.assert_array_equal(maps, np.zeros((2, 3, 4)))


def test_the_boundary_loss_falls_when_a_prediction_grows_towards_its_region():
    labels = np.zeros((9, 9), np.int64)
    labels[2:7, 2:7] = 1
    maps, nn = (
        signed_distances(labels, 2)[None].astype(np.float64),
        backends.get("torch").nn,
    )
    losses = []
    for margin in range(5):
        predicted = np.zeros((9, 9), np.int64)
        predicted[margin : 9 - margin, margin : 9 - margin] = 1
        one_hot = np.stack([1.0 - predicted, predicted])[None]
        losses.append(
            nn.boundary_loss(
                *map(backends.get("torch").array, (one_hot, maps)), False
            ).item()
        )
    assert np.argmin(losses) in (2, 3)  # the region's outermost pixels count nothing
    assert losses[0] > losses[1] > losses[2]


def test_samples_get_their_maps():
    picture, labels = (
        np.zeros((1, 4, 3)),
        np.random.default_rng(0).integers(0, 2, (4, 3)),
    )
    wanted = signed_distances(labels, 2)
    first, second, maps = SignedDistances(2)((picture, labels))
    assert first is picture
    assert second is labels
    np.testing.assert_array_equal(maps, wanted)
    named = SignedDistances(2, name="far")(
        {"image": picture, "mask": labels, "age": np.int64(3)}
    )
    assert list(named) == ["image", "mask", "age", "far"]
    np.testing.assert_array_equal(named["far"], wanted)


def test_bad_samples_are_refused():
    picture, labels = np.zeros((1, 4, 3)), np.zeros((4, 3), np.int64)
    with pytest.raises(
        BatchError,
        match=r"one array of labels, whole numbers of shape \(4, 3\); here are 0",
    ):
        SignedDistances(2)((picture, np.int64(1)))
    with pytest.raises(BatchError, match="here are 2"):
        SignedDistances(2)((picture, labels, labels > 0))
    with pytest.raises(BatchError, match="wanted whole numbers"):
        signed_distances(labels.astype(float), 2)
    with pytest.raises(SettingError, match="classes must be at least 1"):
        SignedDistances(0)
