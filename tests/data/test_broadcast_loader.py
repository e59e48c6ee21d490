"""Batches that the root reads and sends; over processes they are tested with ChainerMN's multi-node
iterators."""

import numpy as np
import pytest

from deliralike.data import (
    Batches,
    FromRoot,
    Loader,
    RepeatedSampler,
    WeightedSampler,
)
from deliralike.errors import ArgumentError, BatchError, SettingError
from deliralike.parallel import SingleProcess


def batches(loader, *position):
    return [
        {name: leaf.tolist() for name, leaf in batch.items()}
        for batch in loader.batches(*position)
    ]


@pytest.mark.parametrize("position", [(0, 0), (3, 2)])
def test_batches_and_positions_are_those_of_the_loader(position):
    """With shuffling, a last batch that is left out, and a transform that draws."""

    def noisy(sample, generator):
        return sample | {"x": sample["x"] + generator.normal()}

    source = {"x": np.arange(11.0), "y": np.arange(11)}
    loader = Loader(source, 3, seed=4, drop_last=True, transform=noisy)
    sent = FromRoot(loader, SingleProcess())
    assert batches(sent, *position) == batches(loader, *position)
    assert (len(sent), sent.samples, sent.seed) == (len(loader), 11, 4)


def test_shares_are_those_of_the_loader():
    loader = Loader({"x": np.arange(7)}, 5)
    for rank in range(3):
        assert batches(FromRoot(loader, SingleProcess()).shared(rank, 3)) == batches(
            loader.shared(rank, 3)
        )


@pytest.mark.parametrize(
    "sampler", [RepeatedSampler(3), WeightedSampler([1, 2, 3, 4, 5], samples=13)]
)
def test_a_sampler_may_draw_more_samples_than_there_are(sampler):
    loader = Loader({"x": np.arange(5)}, 2, sampler=sampler)
    sent = FromRoot(loader, SingleProcess())
    assert batches(sent, 1) == batches(loader, 1)
    assert (len(sent), sent.samples) == (len(loader), loader.samples)


def doubled(batch):
    return {"x": np.tile(batch["x"], 2)}


doubled.whole_batch = True


@pytest.mark.parametrize("from_root", [False, True])
def test_a_transform_that_changes_the_number_of_samples_is_not_shared_out(from_root):
    """The shares are those of the samples that were read, so the rest would be lost."""
    loader = Loader({"x": np.arange(6)}, 4, batch_transform=doubled)
    if from_root:
        loader = FromRoot(loader, SingleProcess())
    assert [len(batch["x"]) for batch in loader.batches()] == [8, 4]
    with pytest.raises(BatchError, match="has 8 samples, and 4 were read"):
        batches(loader.shared(0, 2))


def test_without_a_loader_or_with_a_stream_there_is_an_error():
    with pytest.raises(
        SettingError, match="process 0 is the one that reads, and it has no loader"
    ):
        FromRoot(None, SingleProcess())
    with pytest.raises(ArgumentError, match="are read until they end"):
        FromRoot(Batches(lambda: iter("ab")), SingleProcess())
