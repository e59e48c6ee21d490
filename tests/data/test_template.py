"""The MRI template: labels of the most probable tissue, and parts that share no voxel."""

import subprocess
import sys
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest

from deliralike import data
from deliralike.data import template
from deliralike.errors import ArgumentError, DataUnavailable, SettingError

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
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@cache
def volumes():
    """The picture, and the probabilities of grey and of white matter, as nilearn reads them."""
    from nilearn import datasets

    readers = (
        datasets.load_mni152_template,
        datasets.load_mni152_gm_template,
        datasets.load_mni152_wm_template,
    )
    return [reader(resolution=2).get_fdata(dtype=np.float32) for reader in readers]


@cache
def ours():
    """The template as the package reads it."""
    return template.load_template(2)


@contextmanager
def read_once():
    """The template at its usual resolution is read once for all tests; at any other it is read as
    ever."""
    kept, read = ours(), template.load_template
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            template,
            "load_template",
            lambda size: kept if size == 2 else read(size),
        )
        yield


def upright(volume, level):
    """A horizontal slice as a reader of nilearn's array would write it: the front at the top, left
    at the left."""
    return np.array(
        [
            [volume[x, y, level] for x in range(volume.shape[0])]
            for y in reversed(range(volume.shape[1]))
        ]
    )


@cache
def tissue():
    image, grey, white = volumes()
    labels = np.zeros(image.shape, np.int64)
    labels[(grey > 1 - grey - white) & (grey >= white)] = 1
    labels[(white > 1 - grey - white) & (white > grey)] = 2
    return labels


@pytest.fixture(scope="module")
def slices():
    with read_once():
        return data.load("mri-slices")


@pytest.fixture
def numbered(monkeypatch):
    """In the place of the template a ball in which every voxel is its own number; that shape."""
    shape = (40, 44, 46)
    grid = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"))
    ball = ((grid - np.array([20, 22, 23]).reshape(3, 1, 1, 1)) ** 2).sum(
        axis=0
    ) < 19**2
    image = (np.arange(ball.size, dtype=np.float32) / 2**24).reshape(shape)
    labels = np.where(ball, 1 + image.argsort().argsort() % 2, 0)
    monkeypatch.setattr(
        template, "load_template", lambda *_: template.Template(image, labels)
    )
    return shape


def places(inputs, shape):
    """The place (left to right, back to front, bottom to top) of every voxel of a numbered
    dataset."""
    return np.stack(np.unravel_index((inputs * 2**24).astype(int), shape), axis=-1)


def test_arrays_are_as_a_dataset_promises(slices):
    for inputs, labels in (slices.train, slices.held_out):
        assert (inputs.shape, inputs.dtype) == ((len(labels), 1, 96, 96), np.float32)
        assert (labels.shape[1:], labels.dtype) == ((96, 96), np.int64)
        assert 0 <= inputs.min() < inputs.max() <= 1
        assert np.unique(labels).tolist() == [0, 1, 2]
    assert slices.classes == ("background", "grey matter", "white matter")
    assert slices.task == "segmentation"


def test_a_slice_and_its_labels_come_from_the_same_place_in_the_same_orientation(
    slices,
):
    (image, *_), labels = volumes(), tissue()
    for plane, label in zip(
        slices.held_out.inputs[::6, 0], slices.held_out.labels[::6]
    ):
        level = int(
            np.abs(np.flip(image, 1)[1:97, 10:106] - plane.T[..., np.newaxis])
            .max(axis=(0, 1))
            .argmin()
        )
        assert np.abs(upright(image, level)[10:106, 1:97] - plane).max() < 1e-6
        assert (upright(labels, level)[10:106, 1:97] == label).mean() > 0.9999


def test_the_held_out_slices_lie_together_with_a_margin_in_no_part(numbered):
    dataset = data.load("mri-slices", size=30)
    learn, judge = (
        places(part.inputs[:, 0], numbered)[..., 2]
        for part in (dataset.train, dataset.held_out)
    )
    assert all(
        (part == part[:, :1, :1]).all() for part in (learn, judge)
    )  # every slice is horizontal
    learn, judge = learn[:, 0, 0].tolist(), judge[:, 0, 0].tolist()
    assert judge == list(range(judge[0], judge[-1] + 1))
    assert min(abs(a - b) for a in learn for b in judge) == template.MARGIN + 1
    assert min(learn) < judge[0] and max(learn) > judge[-1]
    assert len(judge) == round(0.2 * (max(learn) - min(learn) + 1))


def test_labels_are_the_most_probable_tissue():
    assert (ours().labels == tissue()).mean() > 0.9999


def test_nothing_is_downloaded_or_written(tmp_path):
    loads_offline(tmp_path, "mri-slices")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resolution": 0}, "resolution is the size of a voxel .*, above 0, not 0"),
        ({"size": 0}, "size=0 must be a whole number of at least 1"),
        ({"held_out": 1.5}, "between 0 and 1, not 1.5"),
        (
            {"held_out": 0.95},
            "a slab of [0-9]+ voxels cannot be held out of .*: change held_out or",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, message):
    with read_once(), pytest.raises(SettingError, match=message):
        data.load("mri-slices", **options)


def test_an_unknown_option_is_answered_with_the_nearest():
    with pytest.raises(
        ArgumentError,
        match="'mri-slices' has no setting 'resolutoin'. Did you mean 'resolution'?",
    ):
        data.load("mri-slices", resolutoin=1)


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "nilearn.datasets", None)
    with pytest.raises(
        DataUnavailable,
        match=r"'mri-slices' needs the package 'nilearn'.*'deliralike\[mri\]'",
    ):
        data.load("mri-slices")
