"""Samplers: any callable, what it must give, and how often each sample came before."""

import numpy as np
import pytest

from deliralike import data
from deliralike.data.sampling import drawn, repeats
from deliralike.errors import SettingError


def test_a_loader_has_as_many_samples_as_are_drawn():
    loader = data.Loader({"y": np.arange(7)}, 4, sampler=lambda *_: [6] * 10)
    assert (loader.samples, len(loader), [len(batch["y"]) for batch in loader]) == (
        10,
        3,
        [4, 4, 2],
    )


def test_any_callable_is_a_sampler():
    loader = data.Loader(
        {"y": np.arange(7)},
        2,
        seed=9,
        sampler=lambda samples, seed, epoch: [samples - 1, seed - 9, epoch],
    )
    assert [batch["y"].tolist() for batch in loader.batches(4)] == [[6, 0], [4]]


@pytest.mark.parametrize("found", [[], [0.5], [[0]], "ab", None], ids=repr)
def test_a_sampler_must_give_a_row_of_whole_numbers(found):
    with pytest.raises(
        SettingError,
        match="must give a row of whole numbers, the indices of an epoch, .*; <lambda> gave",
    ):
        drawn(lambda samples, seed, epoch: found, 7, seed=0, epoch=0)


@pytest.mark.parametrize("outside", [-1, 7])
def test_an_index_outside_of_the_source_is_refused(outside):
    with pytest.raises(
        SettingError,
        match=rf"of the samples 0 to 6; <lambda> gave array\(\[ *0, *{outside}\]\)",
    ):
        drawn(lambda samples, seed, epoch: [0, outside], 7, seed=0, epoch=0)


def test_repeats_count_how_often_an_index_came_before():
    indices = np.random.default_rng(0).integers(0, 5, 31)
    assert repeats(indices).tolist() == [
        indices[:at].tolist().count(index) for at, index in enumerate(indices)
    ]
