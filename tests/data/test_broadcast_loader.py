"""Batches that the root reads and sends; over processes they are tested with ChainerMN's multi-node
iterators."""

import numpy as np
import pytest

from deliralike.data import Batches, FromRoot, Loader
from deliralike.errors import ArgumentError, SettingError
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


def test_without_a_loader_or_with_a_stream_there_is_an_error():
    with pytest.raises(
        SettingError, match="process 0 is the one that reads, and it has no loader"
    ):
        FromRoot(None, SingleProcess())
    with pytest.raises(ArgumentError, match="are read until they end"):
        FromRoot(Batches(lambda: iter("ab")), SingleProcess())
