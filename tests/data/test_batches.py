"""Batches: a partition of the samples, in an order that seed and epoch alone decide."""

from types import SimpleNamespace

import numpy as np
import pytest

from deliralike import data
from deliralike.errors import ArgumentError, BatchError


def batches_of(arrays, batch_size, **options):
    return data.Loader(arrays, batch_size, **options).batches()


def test_the_order_is_known_in_advance():
    """Worked out by hand from the raw words of NumPy's Philox: a change would make old runs
    unrepeatable."""
    import hashlib

    key = np.array(
        [
            5,
            int.from_bytes(
                hashlib.blake2b(b"data/order", digest_size=8).digest(), "little"
            ),
        ],
        np.uint64,
    )
    words = np.random.Philox(key=key, counter=[0, 0, 0, 2]).random_raw(9).tolist()
    assert data.order(9, seed=5, epoch=2).tolist() == sorted(
        range(9), key=words.__getitem__
    )
    assert data.order(6, seed=0, epoch=0).tolist() == KNOWN


KNOWN = [5, 2, 1, 4, 3, 0]


def test_words_that_are_equal_keep_their_order(monkeypatch):
    words = np.array([3, 1, 3, 1, 2] * 7, np.uint64)
    drawn = SimpleNamespace(random_raw=lambda count: words)
    monkeypatch.setattr(np.random, "Philox", lambda key, counter: drawn)
    assert data.order(35, seed=0, epoch=0).tolist() == sorted(
        range(35), key=words.tolist().__getitem__
    )


def test_leaves_that_are_no_arrays_go_into_every_batch():
    batches = list(
        batches_of({"y": np.arange(3), "name": "train", "none": None}, 2, shuffle=False)
    )
    assert [(batch["name"], batch["none"]) for batch in batches] == [
        ("train", None)
    ] * 2


def test_arrays_of_different_lengths_are_both_named():
    with pytest.raises(
        BatchError,
        match=r"along dim 0: batch\['image'\] has 4, batch\['label'\]\[1\] has 3",
    ):
        batches_of({"image": np.zeros((4, 2)), "label": [np.zeros(4), np.zeros(3)]}, 2)


ROWS = [np.zeros(4), np.ones(4), np.zeros(4)]


@pytest.mark.parametrize(
    ("arrays", "path"),
    [
        ((ROWS, [0, 1, 0]), r"samples\[0\]"),
        ((ROWS, ROWS), r"samples\[0\]"),  # images and masks of one size
        ((np.zeros((3, 4)), [0, 1, 0]), r"samples\[1\]"),
        ({"x": np.zeros((3, 4)), "y": ROWS}, r"samples\['y'\]"),
    ],
    ids=["labels", "masks", "array and list", "dict"],
)
def test_a_list_of_samples_in_the_place_of_an_array_is_refused(arrays, path):
    with pytest.raises(
        ArgumentError, match=rf"^{path} is a list of 3, .* np.asarray\({path}\)"
    ):
        batches_of(arrays, 2)


def test_a_list_of_arrays_as_long_as_the_labels_is_that_of_several_inputs():
    """As Keras has it."""
    [(inputs, labels)] = batches_of(
        ([np.zeros((3, 4)), np.ones((3, 2))], np.arange(3)), 3
    )
    assert [each.shape for each in inputs] == [(3, 4), (3, 2)]
    assert len(labels) == 3


@pytest.mark.parametrize("arrays", [{}, {"x": np.float64(1)}])
def test_a_batch_without_arrays_is_refused(arrays):
    with pytest.raises(BatchError, match="at least one array"):
        batches_of(arrays, 2)


def test_an_empty_batch_is_refused():
    with pytest.raises(BatchError, match="at least one sample"):
        batches_of(np.zeros((0, 3)), 2)


@pytest.mark.parametrize("kind", ["transform", "batch_transform"])
@pytest.mark.parametrize("holder", ["arrays", "list"])
def test_a_transform_that_writes_into_its_picture_leaves_the_source_alone(kind, holder):
    def double(sample):
        sample[0][...] *= 2
        return sample

    pictures, labels = np.ones((6, 1, 3, 5)), np.arange(6)
    source = (pictures, labels) if holder == "arrays" else list(zip(pictures, labels))
    loader = data.Loader(source, 4, **{kind: double})
    for epoch in range(3):
        assert {batch[0].max() for batch in loader.batches(epoch)} == {2.0}
    assert pictures.max() == 1.0
