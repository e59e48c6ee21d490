"""Which array is which by what they hold: masks in the forms that frameworks have for them."""

import numpy as np
import pytest

from deliralike.conformance.matching.aligning import align

PICTURES = np.random.default_rng(0).normal(size=(3, 5, 7))
SEEN = np.arange(5) < np.array([5, 2, 4])[:, None]
ADDED = np.where(SEEN, 0.0, -1e9)[:, None, None]


@pytest.mark.parametrize(
    "mask",
    [
        SEEN[:, None, None],
        ~SEEN,
        SEEN[:, None],
        np.where(SEEN, 0.0, -np.inf).astype("float32"),
        np.broadcast_to(SEEN[:, None, None], (3, 1, 4, 5)),
    ],
    ids=["seen", "hidden", "with other axes", "infinite", "of each query"],
)
def test_a_mask_of_another_form_that_hides_the_same_has_its_place(mask):
    assert align((PICTURES, ADDED), (PICTURES, mask)).complete


def test_a_mask_that_hides_something_else_has_none():
    later = np.roll(SEEN, 1, axis=0)
    assert not align((PICTURES, ADDED), (PICTURES, later)).complete
    assert not align((PICTURES, ADDED), (PICTURES,)).complete


def test_a_mask_that_hides_nothing_may_be_left_out():
    assert align((PICTURES, np.zeros((3, 1, 1, 5))), (PICTURES,)).complete


def test_numbers_that_are_no_mask_are_not_left_out():
    biases = np.linspace(-2.0, 1.0, 15).reshape(3, 1, 1, 5)
    assert not align((PICTURES, biases), (PICTURES, SEEN)).complete
