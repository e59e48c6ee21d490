"""Windows around voxels drawn from labels: MONAI's windows from the same draws; order; resuming."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from deliralike import data
from deliralike.data.transforms import PadTo
from deliralike.errors import BatchError, SettingError
from tests.references import Later

RandCropByPosNegLabel = Later("monai.transforms.RandCropByPosNegLabel")


def volume(*size, seed=0, share=0.1):
    """A picture whose values say where they come from, and labels with little foreground."""
    rng = np.random.default_rng(seed)
    picture = np.arange(np.prod(size), dtype=np.float32).reshape(1, *size) + 1
    return picture, (rng.random(size) < share) * rng.integers(1, 3, size)


class SameDraws:
    """The draws of a generator of NumPy under the old names as well, which MONAI calls."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.random = self.rand = generator.random
        self.integers = self.randint = generator.integers


CASES = {
    "2-D, odd": ((11, 9), {"spatial_size": (5, 3)}, {}),
    "2-D, even": ((11, 8), {"spatial_size": (4, 6), "pos": 2, "neg": 1}, {}),
    "3-D": ((7, 9, 5), {"spatial_size": (3, 4, 5), "pos": 1, "neg": 3}, {}),
    "one size": ((9, 9), {"spatial_size": 4, "pos": 1, "neg": 0}, {}),
    "no foreground": ((9, 7), {"spatial_size": 3, "pos": 5}, {"share": 0.0}),
}


@pytest.mark.xdist_group("monai")  # which takes seconds to import
@pytest.mark.filterwarnings("ignore:Num foregrounds 0:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_windows_are_those_of_monai_for_the_same_draws(case):
    size, settings, drawing = CASES[case]
    picture, labels = volume(*size, **drawing)
    ours = data.CropByPosNegLabel(**settings)
    theirs = dict(settings, num_samples=1)
    if np.isscalar(theirs["spatial_size"]):
        theirs["spatial_size"] = (theirs["spatial_size"],) * len(size)
    theirs = RandCropByPosNegLabel(**theirs)
    for seed in range(20):
        theirs.R = SameDraws(seed)
        (wanted,) = theirs(picture, label=labels[np.newaxis])
        window, mask = ours((picture, labels), SameDraws(seed))
        assert_array_equal(window, np.asarray(wanted))
        places = window[0].astype(int) - 1
        assert_array_equal(mask, labels.ravel()[places])


def loader(**options):
    volumes = [volume(9, 7, 5, seed=seed) for seed in range(3)]
    return data.Loader(
        volumes,
        4,
        seed=3,
        sampler=data.RepeatedSampler(times=5),
        transform=data.CropByPosNegLabel(3),
        **options,
    )


def test_windows_of_an_epoch_are_balanced_and_differ_and_can_be_resumed():
    batches = list(loader().batches(epoch=2))
    assert [len(picture) for picture, _ in batches] == [4, 4, 4, 3]
    pictures = np.concatenate([picture for picture, _ in batches])
    assert len(np.unique(pictures.reshape(15, -1), axis=0)) > 12
    centres = np.concatenate([labels[:, 1, 1, 1] for _, labels in loader().batches(0)])
    assert 3 <= (centres > 0).sum() <= 12
    ahead = loader(workers=2).batches(epoch=2, first=2)
    for one, other in zip(batches[2:], ahead, strict=True):
        assert_array_equal(one[0], other[0])
        assert_array_equal(one[1], other[1])


def test_every_sample_comes_as_often_and_epochs_differ():
    sampler = data.RepeatedSampler(times=3)
    first, second = (sampler(7, seed=0, epoch=epoch) for epoch in (0, 1))
    assert np.bincount(first).tolist() == [3] * 7
    assert first.tolist() != second.tolist()
    with pytest.raises(
        SettingError, match="times=0 must be a whole number of at least 1"
    ):
        data.RepeatedSampler(times=0)


def test_small_pictures_are_padded_on_both_sides_and_masks_with_zero():
    picture, labels = np.ones((2, 3, 6), np.float32), np.ones((3, 6), np.int64)
    padded, mask = PadTo((6, 4), value=5.0)((picture, labels))
    assert_array_equal(
        padded, np.pad(picture, [(0, 0), (1, 2), (0, 0)], constant_values=5.0)
    )
    assert_array_equal(mask, np.pad(labels, [(1, 2), (0, 0)]))
    with pytest.raises(SettingError, match=r"size=\(1, 2, 3\) has 3 numbers"):
        PadTo((1, 2, 3))((picture, labels))


def test_what_cannot_be_cropped_is_refused():
    sample = volume(9, 7)
    crop = data.CropByPosNegLabel
    rng = np.random.default_rng(0)
    with pytest.raises(SettingError, match="one of them above, not pos=0 and neg=0"):
        crop(3, pos=0, neg=0)
    with pytest.raises(SettingError, match="a size is a whole number above zero"):
        crop(0)
    with pytest.raises(BatchError, match=r"of \(8, 8\) does not fit .* \(9, 7\): pad"):
        crop(8)(sample, rng)
    with pytest.raises(
        BatchError, match=r"one array of labels, .* of shape \(9, 7\); here are 0"
    ):
        crop(3)(sample[:1], rng)
    assert crop(3)((sample[0], sample[1][np.newaxis]), rng)[1].shape == (1, 3, 3)
