"""Transforms of samples: against NumPy, with one geometry for picture and mask, in 1, 2
and 3 dimensions."""

import numpy as np
import pytest

from deliralike import data
from deliralike.data.transforms import (
    Compose,
    Crop,
    Flip,
    Noise,
    Normalise,
    PadTo,
    spatial_shape,
)
from deliralike.errors import BatchError, SettingError

SHAPES = [(11,), (7, 5), (4, 7, 5)]
GEOMETRIC = [Flip((-1,), 0.5), Crop(3, padding=2)]


def rng(seed=0):
    return np.random.default_rng(seed)


def numbered(shape, channels=2):
    """A picture whose values say where they come from, and its mask with the same numbers."""
    places = np.arange(1, np.prod(shape) + 1).reshape(shape)
    return np.stack([places.astype(np.float32)] * channels), places.astype(np.int64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    "transform", [Flip((-1,), 0.5), Crop(3, padding=2)], ids=["flip", "crop"]
)
@pytest.mark.parametrize("seed", range(4))
def test_a_mask_moves_with_its_picture(shape, transform, seed):
    picture, mask = transform(numbered(shape), rng(seed))
    assert picture.dtype == np.float32
    assert mask.dtype == np.int64
    assert np.array_equal(picture[0], mask)
    assert np.array_equal(picture[1], mask)


@pytest.mark.parametrize("transform", GEOMETRIC, ids=["flip", "crop"])
def test_a_transform_follows_from_the_generator_alone_and_changes_no_argument(
    transform,
):
    picture, mask = numbered((9, 8))
    before = picture.copy(), mask.copy()
    results = [transform((picture, mask), rng(seed))[0] for seed in (0, 0, 1, 2, 3)]
    assert np.array_equal(results[0], results[1])
    assert any(not np.array_equal(results[0], other) for other in results[2:])
    assert np.array_equal(picture, before[0])
    assert np.array_equal(mask, before[1])


def test_a_flip_comes_as_often_as_its_probability_and_for_each_axis_by_itself():
    picture = numbered((3, 2), 1)[0]
    firsts = [Flip((-2, -1), 0.3)(picture, rng(seed))[0, 0, 0] for seed in range(2000)]
    shares = [
        firsts.count(value) / 2000 for value in (1, 5, 2, 6)
    ]  # neither, rows, columns, both
    assert shares == pytest.approx([0.49, 0.21, 0.21, 0.09], abs=0.03)


def test_crops_reach_every_place_and_padding_is_zero_or_as_the_mode_says():
    picture, mask = numbered((3, 4))
    begins = {
        Crop((2, 3), padding=1)((picture, mask), rng(seed))[1][0, 0].item()
        for seed in range(300)
    }
    assert begins == {
        0,
        1,
        2,
        3,
        5,
        6,
        7,
        9,
        10,
        11,
    }  # the upper left value of each window
    for mode in ("constant", "reflect"):
        whole = Crop((5, 6), padding=1, mode=mode)(mask.astype(float)[None], rng())
        assert np.array_equal(whole[0], np.pad(mask, 1, mode=mode))


def test_normalising_is_done_by_channel_and_leaves_masks_alone():
    picture, mask = numbered((7, 5))
    found, kept = Normalise([1.0, 2.0], [2.0, 4.0])((picture, mask))
    assert np.allclose(found, [(picture[0] - 1) / 2, (picture[1] - 2) / 4])
    assert found.dtype == np.float32
    assert kept is mask


def test_labels_names_and_small_vectors_are_left_alone():
    label, vector = np.int64(1), np.arange(5.0)
    sample = {"x": numbered((7, 5))[0], "y": label, "name": "a", "weights": vector}
    for transform in GEOMETRIC:
        found = transform(sample, rng(3))
        assert (found["y"], found["name"]) == (label, "a")
        assert found["weights"] is vector or np.array_equal(found["weights"], vector)


def test_a_composition_runs_in_order_with_one_generator_inside_a_loader():
    steps = Compose([Flip(probability=1.0), Noise(0.1), Normalise(0.5, 0.25)])
    pictures = rng().random((7, 1, 4, 3))
    (batch,) = data.Loader((pictures, np.arange(7)), 7, shuffle=False, transform=steps)
    assert np.allclose(batch[0] * 0.25 + 0.5, pictures[..., ::-1], atol=0.6)
    assert batch[0].std() != ((pictures - 0.5) / 0.25).std()
    assert batch[1].tolist() == list(range(7))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Flip((0,)),
            r"axes are counted from the end, -1 is the last, each named once; not \(0,\)",
        ),
        (lambda: Flip((-1, -1)), "each named once"),
        (lambda: Flip(()), "axes are counted from the end"),
        (
            lambda: Flip(probability=1.5),
            "probability must lie between 0 and 1, not 1.5",
        ),
        (lambda: Crop(0), "a size is a whole number above zero, not 0"),
        (lambda: Crop(()), r"a size is a whole number above zero, not \(\)"),
        (lambda: Crop(3, padding=-1), "padding=-1 must be a whole number of at least"),
        (lambda: Normalise(0.0, 0.0), "std must be above zero, not 0.0"),
        (lambda: Noise(-1.0), "from zero up, or two in rising order, not -1.0"),
        (lambda: Noise((2.0, 1.0)), r"not \(2.0, 1.0\)"),
        (lambda: Crop("3"), "Crop: size='3' must be a whole number, or a list"),
        (lambda: Crop(3, mode="wrap"), "Crop: mode='wrap' must be one of 'constant'"),
        (lambda: PadTo(3, value=None), "PadTo: value=None must be a number"),
        (lambda: Normalise("0.5", 1.0), "Normalise: mean='0.5' must be a number"),
        (lambda: Noise("1"), "Noise: std='1' must be a number"),
    ],
    ids=range(15),
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            Crop(8),
            r"a window of \(8, 8\) does not fit into a picture of \(7, 5\)",
        ),
        (
            Crop((3, 3, 3)),
            r"size=\(3, 3, 3\) has 3 numbers; wanted one, or one for each of 2 axes",
        ),
        (Flip((-3,)), r"no spatial axis -3 in a picture of \(7, 5\)"),
    ],
    ids=["small", "dimensions", "flip"],
)
def test_pictures_that_do_not_fit_are_refused(transform, message):
    with pytest.raises((BatchError, SettingError), match=message):
        transform(numbered((7, 5)), rng())


def test_numbers_for_other_channels_are_refused():
    with pytest.raises(
        BatchError, match="there are 3 numbers for the channels, and the picture has 2"
    ):
        Normalise([1, 2, 3], 1.0)(numbered((7, 5)))


@pytest.mark.parametrize(
    "sample",
    [np.arange(12).reshape(1, 3, 4), np.float64(1), {"y": 3}, (np.zeros(3),)],
    ids=range(4),
)
def test_a_sample_without_a_picture_is_refused(sample):
    with pytest.raises(
        BatchError,
        match="a sample needs a picture, an array of floats with channels first, and holds",
    ):
        spatial_shape(sample)


def test_noise_has_the_wanted_deviation():
    picture = np.zeros((1, 100, 100), np.float32)
    assert Noise(0.5)(picture, rng()).std() == pytest.approx(0.5, rel=0.05)
    deviations = [Noise((0.1, 0.9))(picture, rng(seed)).std() for seed in range(60)]
    assert 0.09 < min(deviations) < 0.25 < 0.75 < max(deviations) < 0.92
