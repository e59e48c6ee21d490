"""Datasets by name, and their seeded stratified split."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from deliralike import data
from deliralike.errors import SettingError, UnknownName


@pytest.fixture(scope="module")
def digits():
    return data.load("digits")


def test_every_digit_of_scikit_learn_is_there_once(digits):
    raw = load_digits()
    wanted = np.concatenate([raw.data / 16, raw.target[:, None]], axis=1)
    parts = [
        np.concatenate(
            [part.inputs.reshape(len(part.labels), 64), part.labels[:, None]], axis=1
        )
        for part in (digits.train, digits.held_out)
    ]
    assert sorted(map(tuple, wanted)) == sorted(map(tuple, np.concatenate(parts)))


def test_the_seed_decides_which_samples_are_held_out(digits):
    again, other = data.load("digits", seed=0), data.load("digits", seed=1)
    assert (again.held_out.inputs == digits.held_out.inputs).all()
    assert (other.held_out.inputs != digits.held_out.inputs).any()


def test_a_folder_of_that_name_is_pointed_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    with pytest.warns(
        UserWarning, match="not the folder of that name here.*'./digits'"
    ):
        data.load("digits")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownName, match="no dataset 'digit'. Did you mean 'digits'?"):
        data.load("digit")


def test_a_fraction_that_makes_no_sense_is_refused():
    with pytest.raises(SettingError, match="between 0 and 1, not 1.5"):
        data.load("digits", held_out=1.5)


def test_scikit_learn_is_imported_only_when_data_are_loaded():
    code = (
        "import sys, deliralike.data, deliralike.training, deliralike.cli; "
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
