"""Maps of signed distances beside a search over all pairs of pixels."""

import itertools

import numpy as np
import pytest

from deliralike import backends
from deliralike.data import signed_distances
from deliralike.errors import BatchError


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


def test_labels_that_are_no_whole_numbers_are_refused():
    with pytest.raises(BatchError, match="wanted whole numbers"):
        signed_distances(np.zeros((4, 3)), 2)
