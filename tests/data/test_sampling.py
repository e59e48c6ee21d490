"""Samplers: frequencies, proportions, and orders that follow from seed and epoch alone."""

import numpy as np
import pytest
from scipy import stats

from deliralike import data
from deliralike.data.sampling import drawn, repeats
from deliralike.errors import SettingError


def test_weighted_draws_come_with_the_frequencies_of_the_weights():
    weights = np.array([0.0, 1.0, 2.0, 5.0, 0.5, 0.0])
    found = data.WeightedSampler(weights, samples=20_000)(6, seed=0, epoch=3)
    counts = np.bincount(found, minlength=6)
    assert counts[[0, 5]].tolist() == [0, 0]
    assert (
        stats.chisquare(counts[1:5], 20_000 * weights[1:5] / weights.sum()).pvalue
        > 0.01
    )


def test_a_weighted_loader_has_as_many_samples_as_are_drawn():
    loader = data.Loader(
        {"y": np.arange(7)}, 4, sampler=data.WeightedSampler(np.ones(7), samples=10)
    )
    assert (loader.samples, len(loader), [len(batch["y"]) for batch in loader]) == (
        10,
        3,
        [4, 4, 2],
    )


@pytest.mark.parametrize(
    "weights",
    [[], [0, 0], [1, -1], [1, np.nan], [1, np.inf], [[1, 2]], ["a", "b"]],
    ids=repr,
)
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(
        SettingError, match="weights must be a row of numbers from zero up"
    ):
        data.WeightedSampler(weights)


def test_no_draws_are_refused():
    with pytest.raises(SettingError, match="samples=0 must be a whole number of at"):
        data.WeightedSampler([1], samples=0)


def test_weights_of_another_number_of_samples_are_refused():
    with pytest.raises(
        SettingError,
        match="the sampler has 2 weights, and the source has 7 samples",
    ):
        len(data.Loader({"y": np.arange(7)}, sampler=data.WeightedSampler([0, 1])))


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
        match="must give a row of whole numbers, the indices of an epoch; <lambda> gave",
    ):
        drawn(lambda samples, seed, epoch: found, 7, seed=0, epoch=0)


@pytest.mark.parametrize("outside", [-1, 7])
def test_an_index_outside_of_the_source_is_refused(outside):
    with pytest.raises(
        SettingError,
        match=f"gave the index {outside}, and the source has the samples 0 to 6",
    ):
        drawn(lambda samples, seed, epoch: [0, outside], 7, seed=0, epoch=0)


def test_repeats_count_how_often_an_index_came_before():
    indices = np.random.default_rng(0).integers(0, 5, 31)
    assert repeats(indices).tolist() == [
        indices[:at].tolist().count(index) for at, index in enumerate(indices)
    ]
