"""scikit-image's pictures: cut without overlap, never downloaded."""

import subprocess
import sys

import numpy as np
import pytest
import skimage.data

from deliralike import data
from deliralike.data.pictures import NAMES
from deliralike.errors import SettingError

OFFLINE = """
import pathlib, socket, sys, tempfile

def refuse(*_):
    raise AssertionError("a connection was opened")

socket.socket.connect = socket.getaddrinfo = refuse
from deliralike import data
for name in sys.argv[2:]:
    data.load(name)
assert not list(pathlib.Path(sys.argv[1]).rglob("*")), list(pathlib.Path(sys.argv[1]).rglob("*"))
"""


def loads_offline(folder, *names):
    """Load in a fresh process with an empty home, without connections, and find the home still
    empty."""
    environment = {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", OFFLINE, str(folder), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def pictures():
    return data.load("pictures")


def grey(name):
    """With the weights of red, green and blue that scikit-image documents."""
    picture = getattr(skimage.data, name)() / 255
    return picture @ np.array([0.2125, 0.7154, 0.0721]) if picture.ndim == 3 else picture


def test_arrays_are_as_a_dataset_promises(pictures):
    for inputs, labels in (pictures.train, pictures.held_out):
        assert (inputs.shape[1:], inputs.dtype, labels.dtype) == ((1, 32, 32), np.float32, np.int64)
        assert inputs.shape[:1] == labels.shape
        assert 0 <= inputs.min() < inputs.max() <= 1
    assert (pictures.classes, pictures.task) == (NAMES, "classification")


@pytest.mark.parametrize("name", ["astronaut", "coins", "text"])
def test_every_square_of_a_photograph_is_in_one_part_and_only_once(pictures, name):
    picture, label = grey(name), NAMES.index(name)
    rows, columns = (length // 32 for length in picture.shape)
    wanted = [
        picture[32 * i : 32 * i + 32, 32 * j : 32 * j + 32]
        for i in range(rows)
        for j in range(columns)
    ]
    found = [part.inputs[part.labels == label, 0] for part in (pictures.train, pictures.held_out)]
    assert [len(each) for each in found] == [
        len(wanted) - round(0.2 * len(wanted)),
        round(0.2 * len(wanted)),
    ]
    sums = [
        np.sort(np.concatenate([each.sum(axis=(1, 2), dtype=float) for each in squares]))
        for squares in (found, [np.array(wanted)])
    ]
    assert np.allclose(*sums, rtol=1e-6, atol=1e-9)


def test_faces_are_scikit_images_hundred_faces_and_hundred_others():
    faces, raw = data.load("faces"), skimage.data.lfw_subset()
    inputs = np.concatenate([faces.train.inputs, faces.held_out.inputs])
    labels = np.concatenate([faces.train.labels, faces.held_out.labels])
    assert (faces.sample_shape, inputs.dtype, faces.classes) == (
        (1, 25, 25),
        np.float32,
        ("no face", "face"),
    )
    assert np.bincount(faces.held_out.labels).tolist() == [20, 20]
    for label, part in ((1, raw[:100]), (0, raw[100:])):
        sums = inputs[labels == label].sum(axis=(1, 2, 3), dtype=float)
        assert np.allclose(np.sort(sums), np.sort(part.sum(axis=(1, 2))), rtol=1e-6)


def test_nothing_is_downloaded_or_written(tmp_path):
    loads_offline(tmp_path, "pictures", "faces")


@pytest.mark.parametrize("size", [0, 173, 32.0])
def test_a_size_that_makes_no_sense_is_refused(size):
    with pytest.raises(
        SettingError, match=f"size of 'pictures' is a whole number from 1 to 172, not {size}"
    ):
        data.load("pictures", size=size)
