"""Folds: disjoint, covering, stratified, grouped; the inner split indexes the labels of its own
samples."""

import sys

import numpy as np
import pytest
from sklearn import model_selection

from deliralike import data
from deliralike.errors import DataUnavailable, SettingError
from tests.data.sources import Squares

LABELS = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [40, 20, 13]))
GROUPS = np.random.default_rng(1).integers(0, 17, 73)
WAYS = pytest.mark.parametrize(
    ("given", "splitter"),
    [
        ({}, model_selection.KFold),
        ({"labels": LABELS}, model_selection.StratifiedKFold),
        ({"groups": GROUPS}, model_selection.GroupKFold),
        ({"labels": LABELS, "groups": GROUPS}, model_selection.StratifiedGroupKFold),
    ],
    ids=["plain", "stratified", "grouped", "both"],
)


@WAYS
@pytest.mark.parametrize("k", [2, 5])
@pytest.mark.parametrize("shuffle", [True, False])
def test_folds_are_those_of_scikit_learn(given, splitter, k, shuffle):
    own = splitter(k, shuffle=shuffle, random_state=7 if shuffle else None)
    wanted = own.split(np.zeros(73), given.get("labels"), given.get("groups"))
    found = data.folds(73, k, **given, seed=7, shuffle=shuffle)
    for fold, (train, held_out) in zip(found, wanted, strict=True):
        assert (fold.train.tolist(), fold.held_out.tolist()) == (
            train.tolist(),
            held_out.tolist(),
        )


@WAYS
@pytest.mark.parametrize("seed", [0, 2**40 + 3])
def test_folds_are_disjoint_and_cover_everything(given, splitter, seed):
    folds = data.folds(73, 5, **given, seed=seed)
    assert sorted(index for fold in folds for index in fold.held_out) == list(range(73))
    assert all(
        sorted([*fold.train, *fold.held_out]) == list(range(73)) for fold in folds
    )


def test_samples_are_counted_whatever_holds_them():
    held = data.folds(23, 3)[0].held_out.tolist()
    for samples in (
        Squares(23),
        {"x": np.zeros((23, 2))},
        data.Samples(np.zeros((23, 1)), np.zeros(23)),
    ):
        assert data.folds(samples, 3)[0].held_out.tolist() == held


def test_a_fold_takes_its_parts_of_arrays_and_of_datasets():
    fold = data.folds(23, 3)[1]
    train, held_out = fold.of(data.Samples(np.arange(23) * 10, np.arange(23)))
    assert isinstance(train, data.Samples)
    assert (train.labels.tolist(), held_out.inputs.tolist()) == (
        fold.train.tolist(),
        (fold.held_out * 10).tolist(),
    )
    read = fold.of(Squares(23))[1]
    assert [
        sample["y"] for sample in map(read.__getitem__, range(len(read)))
    ] == fold.held_out.tolist()
    (batch,) = data.Loader(read, 23, shuffle=False)
    assert batch["y"].tolist() == fold.held_out.tolist()


@pytest.mark.parametrize(
    ("k", "given", "message"),
    [
        (
            1,
            {},
            "73 samples in k=1 folds: .* at least one train/test split",
        ),
        (
            74,
            {},
            "73 samples in k=74 folds: .* greater than the number of samples: n_samples=73",
        ),
        (
            18,
            {"groups": GROUPS},
            "73 samples in k=18 folds: .* greater than the number of groups: 16",
        ),
        (
            14,
            {"labels": LABELS},
            "73 samples in k=14 folds: .* only 13 members, .* less than n_splits=14",
        ),
        (
            5,
            {"labels": LABELS[:-1]},
            r"inconsistent numbers of samples: \[73, 72\]",
        ),
        (5, {"labels": LABELS / 3}, "Supported target types are"),
    ],
    ids=range(6),
)
def test_what_cannot_be_split_is_refused(k, given, message):
    with pytest.raises(SettingError, match=message):
        data.folds(73, k, **given)


def test_a_missing_scikit_learn_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with pytest.raises(
        DataUnavailable,
        match=r"needs the package 'scikit-learn'.*pip install 'deliralike\[data\]'",
    ):
        data.folds(10, 2)
