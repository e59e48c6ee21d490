"""Colours and resized crops: those of torchvision and PyTorch."""

import colorsys

import numpy as np
import pytest
import torch

from deliralike.data import ColorJitter, Grayscale, Loader, RandomResizedCrop, colors
from deliralike.data.resampling import resized_linearly
from deliralike.errors import BatchError, SettingError
from tests.references import Later

TORCHVISION = Later("torchvision.transforms.functional")
RNG = np.random.default_rng(2)
PICTURE = RNG.random((3, 7, 5))
PICTURE[:, 0, 0] = 0.4, 0.4, 0.4  # grey and black have no hue
PICTURE[:, 0, 1] = 0.0


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize(
    ("name", "amounts"),
    [
        ("adjust_brightness", (0.0, 0.4, 1.7)),
        ("adjust_contrast", (0.0, 0.4, 1.7)),
        ("adjust_saturation", (0.0, 0.4, 1.7)),
        ("adjust_hue", (-0.5, -0.13, 0.0, 0.27, 0.5)),
    ],
)
def test_a_change_of_colours_is_torchvisions(name, amounts, channels):
    picture = PICTURE[:channels]
    for amount in amounts:
        wanted = getattr(TORCHVISION, name)(torch.tensor(picture), amount).numpy()
        found = getattr(colors, name)(picture, amount)
        tolerance = 1e-6 if name == "adjust_hue" else 1e-12  # a table of theirs is in float32
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=tolerance)


def test_hues_are_those_of_pythons_colorsys():
    found = colors.adjust_hue(PICTURE, 0.3)
    for row, column in np.ndindex(PICTURE.shape[1:]):
        hue, saturation, value = colorsys.rgb_to_hsv(*PICTURE[:, row, column])
        wanted = colorsys.hsv_to_rgb((hue + 0.3) % 1.0, saturation, value)
        np.testing.assert_allclose(found[:, row, column], wanted, atol=1e-12)


class Numbers:
    """A generator whose numbers a test chooses."""

    def __init__(self, numbers, order):
        self.numbers, self.order = list(numbers), order

    def uniform(self, low, high):
        self.bounds = (*getattr(self, "bounds", ()), (low, high))
        return self.numbers.pop(0)

    def permutation(self, count):
        assert count == len(self.order)
        return np.array(self.order)


def test_the_changes_come_in_the_order_that_is_drawn():
    jitter = ColorJitter(brightness=0.4, contrast=1.5, hue=0.1)
    generator = Numbers([1.3, 0.5, 1.0, 0.05], [2, 0, 1])
    found, label = jitter((PICTURE.astype(np.float32), 3), generator)
    wanted = torch.tensor(PICTURE.astype(np.float32))
    for name, amount in (("hue", 0.05), ("brightness", 1.3), ("contrast", 0.5)):
        wanted = getattr(TORCHVISION, f"adjust_{name}")(wanted, amount)
    np.testing.assert_allclose(found, wanted.numpy(), atol=1e-6)
    assert (found.dtype, label) == (np.float32, 3)
    assert generator.bounds == ((0.6, 1.4), (0.0, 2.5), (1.0, 1.0), (-0.1, 0.1))


@pytest.mark.parametrize("sizes", [(3, 2), (7, 5), (11, 16), (1, 9)], ids=str)
def test_resizing_is_that_of_pytorch(sizes):
    wanted = torch.nn.functional.interpolate(
        torch.tensor(PICTURE)[None], sizes, mode="bilinear", antialias=True, align_corners=False
    )[0]
    found = resized_linearly(PICTURE, sizes)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(40, 30), (9, 200), (200, 9)], ids=str)
def test_windows_have_the_areas_and_proportions_that_are_wanted(shape):
    """A very wide picture holds few of them: then the window in its middle is taken."""
    crop = RandomResizedCrop(5, scale=(0.2, 0.6))
    areas, ratios = [], []
    for _ in range(300):
        rows, columns = (each.stop - each.start for each in crop._window(shape, RNG))
        areas.append(rows * columns / (shape[0] * shape[1]))
        ratios.append(columns / rows)
    assert 0.7 < min(ratios) <= max(ratios) < 1.4
    if shape == (40, 30):
        assert 0.17 < min(areas) < 0.25
        assert 0.5 < max(areas) < 0.63
        assert max(ratios) - min(ratios) > 0.4
    else:
        assert max(areas) < 0.1  # a square of the shorter side, up to 4 / 3


def test_masks_keep_their_values_and_move_with_the_picture():
    mask = np.zeros((40, 30), int)
    mask[10:30, 5:25] = 7
    picture = np.stack([mask] * 2).astype(np.float32)
    for seed in range(5):
        moved, labels, name = RandomResizedCrop((20, 16))(
            (picture, mask, "scan"), np.random.default_rng(seed)
        )
        assert moved.shape == (2, 20, 16)
        assert (labels.shape, labels.dtype, name) == ((20, 16), mask.dtype, "scan")
        assert set(np.unique(labels)) <= {0, 7}
        assert (np.abs(moved - labels) < 3.6).mean() > 0.9


def test_transforms_follow_the_sample_and_not_the_batch():
    samples = RNG.random((7, 3, 8, 6)), np.arange(7)
    transform = ColorJitter(0.4, 0.4, 0.4, 0.1)
    batches = []
    for size in (7, 2):
        loader = Loader(samples, size, shuffle=False, transform=transform)
        batches.append(np.concatenate([x for x, _ in loader.batches(1)]))
    np.testing.assert_array_equal(*batches)
    assert (batches[0] != samples[0]).mean() > 0.9


def test_pictures_of_other_numbers_and_channels_are_refused():
    with pytest.raises(BatchError, match="numbers from 0 to 1, and this one has 0 to 255"):
        ColorJitter(0.1)(np.linspace(0, 255, 12).reshape(3, 2, 2), RNG)
    with pytest.raises(BatchError, match="3 channels or 1, not of 4"):
        ColorJitter(0.1)(np.zeros((4, 2, 2)), RNG)
    with pytest.raises(BatchError, match=r"two axes, not of \(2, 2, 2\)"):
        RandomResizedCrop(2)(np.zeros((1, 2, 2, 2)), RNG)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ColorJitter(brightness=-1.0), "brightness=-1.0 must not be below 0"),
        (lambda: ColorJitter(hue=0.6), "hue=0.6 must lie between 0 and 0.5"),
        (lambda: Grayscale(2.0), "probability must lie between 0 and 1, not 2.0"),
        (lambda: RandomResizedCrop(0), "size=0 must be one or two numbers above 0"),
        (lambda: RandomResizedCrop(2, scale=(0.0, 1.0)), r"scale=\(0.0, 1.0\) must be two rising"),
        (lambda: RandomResizedCrop(2, ratio=(2.0, 1.0)), r"ratio=\(2.0, 1.0\) must be two rising"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make()


def test_a_grey_picture_is_torchvisions():
    wanted = TORCHVISION.rgb_to_grayscale(torch.tensor(PICTURE), 3).numpy()
    found = Grayscale(1.0)(PICTURE, np.random.default_rng(0))
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert Grayscale(0.0)(PICTURE, np.random.default_rng(0)) is PICTURE
    are_grey = [(Grayscale(0.3)(PICTURE, RNG) != PICTURE).any() for _ in range(400)]
    assert 80 < sum(are_grey) < 160
