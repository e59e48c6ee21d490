"""Transforms of albumentations and batchgenerators: keyed by sample and batch, layouts converted,
globals put back."""

import os
import random
import time

import numpy as np
import pytest

from deliralike import data
from deliralike.data.adapters import seeded_globals
from deliralike.errors import ArgumentError, BatchError

os.environ["NO_ALBUMENTATIONS_UPDATE"] = (
    "1"  # it asks the network for news when it is imported
)


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("albumentations")


def pictures(samples=9, channels=3):
    """Pictures with masks that hold the first channel's values."""
    masks = np.random.default_rng(0).integers(0, 200, (samples, 7, 5))
    return {
        "x": np.stack([masks / np.float32(255)] * channels, axis=1).astype(np.float32),
        "y": masks,
    }


def global_draw():
    return np.random.random(), random.random()


def same(first, second):
    return all(
        np.array_equal(one[key], other[key])
        for one, other in zip(first, second, strict=True)
        for key in one
    )


class LookAlike:
    """In albumentations' style, drawing from the global random states."""

    def __call__(self, image, mask=None):
        rolled = np.roll(image, np.random.randint(5), axis=1) + random.random()
        return {"image": rolled} if mask is None else {"image": rolled, "mask": mask}


# albumentations
# -----------------------------------------------------------------------------


def test_picture_and_mask_go_through_albumentations_together(library):
    flips = library.Compose(
        [library.HorizontalFlip(p=0.5), library.VerticalFlip(p=0.5)]
    )
    loader = data.Loader(
        pictures(),
        9,
        transform=data.albumentations(flips, image="x", mask="y"),
        shuffle=False,
    )
    (batch,) = loader
    assert (batch["x"].shape, batch["x"].dtype, batch["y"].dtype) == (
        (9, 3, 7, 5),
        np.float32,
        np.int64,
    )
    assert np.array_equal(np.rint(batch["x"][:, 1] * 255), batch["y"])
    ways = [
        next(
            way
            for way in ((1, 1), (1, -1), (-1, 1), (-1, -1))
            if np.array_equal(mask[:: way[0], :: way[1]], raw)
        )
        for mask, raw in zip(batch["y"], pictures()["y"], strict=True)
    ]
    assert len(set(ways)) > 2


@pytest.mark.parametrize(
    "way",
    [{}, {"workers": 3}, {"workers": 1, "worker_kind": "process"}],
    ids=["plain", "threads", "process"],
)
def test_albumentations_draws_the_same_whatever_the_batches_and_workers(library, way):
    steps = library.Compose(
        [library.Affine(rotate=(-30, 30), p=1), library.GaussNoise(p=0.8)]
    )
    augment = data.albumentations(steps, image="x", mask="y")
    loaders = [
        data.Loader(pictures(), size, transform=augment, seed=4, **options)
        for size, options in ((9, {}), (2, way))
    ]
    together, apart = (list(loader.batches(1)) for loader in loaders)
    joined = {
        key: np.concatenate([batch[key] for batch in apart]) for key in ("x", "y")
    }
    assert same(together, [joined])


@pytest.mark.parametrize("mask", [(7, 5), (1, 7, 5)])
def test_a_mask_that_would_stay_behind_is_asked_for(mask):
    sample = {"x": np.zeros((3, 7, 5)), "y": np.zeros(mask, np.uint8)}
    with pytest.raises(
        ArgumentError, match=r"'y'.* would not move with it: name its place, mask="
    ):
        data.albumentations(LookAlike(), image="x")(sample, np.random.default_rng(0))
    batch = {"x": np.zeros((2, 3, 7, 5)), "y": np.zeros((2, *mask), bool)}
    with pytest.raises(
        ArgumentError, match=r"'y'.* would not move with it: name its place, seg="
    ):
        data.batchgenerators(LookAlike(), data="x")(batch, np.random.default_rng(0))


def test_volumes_go_through_albumentations(library):
    turn = library.Compose([library.CubicSymmetry(p=1)])
    volume = np.random.default_rng(0).random((1, 6, 6, 6)).astype(np.float32)
    mask = (volume[0] * 200).astype(np.int64)
    found, moved = data.albumentations(turn, mask=1)(
        (volume, mask), np.random.default_rng(5)
    )
    assert found.shape == volume.shape
    assert np.array_equal((found[0] * 200).astype(np.int64), moved)


def test_a_transform_without_a_seed_of_its_own_draws_from_seeded_globals():
    augment = data.albumentations(LookAlike())
    np.random.seed(1)
    random.seed(1)
    wanted = global_draw()
    np.random.seed(1)
    random.seed(1)
    loader = data.Loader((pictures()["x"], np.arange(9)), 4, transform=augment)
    first, second = list(loader.batches(0)), list(loader.batches(0))
    assert global_draw() == wanted  # the states are as they were
    assert all(
        np.array_equal(one[0], other[0])
        for one, other in zip(first, second, strict=True)
    )
    assert not np.array_equal(first[0][0], next(loader.batches(1))[0])


def test_masks_with_channels_are_moved_too():
    seen = {}

    def look(image, mask):
        seen.update(image=image.shape, mask=mask.shape)
        return {"image": image, "mask": mask}

    found = data.albumentations(look, mask=1)(
        (np.zeros((3, 7, 5)), np.zeros((2, 7, 5), bool)), np.random.default_rng(0)
    )
    assert seen == {"image": (7, 5, 3), "mask": (7, 5, 2)}
    assert (found[0].shape, found[1].shape, found[1].dtype) == (
        (3, 7, 5),
        (2, 7, 5),
        bool,
    )


@pytest.mark.parametrize(
    ("transform", "sample", "error", "message"),
    [
        (
            lambda image: {"image": "tensor"},
            np.zeros((1, 2, 2)),
            BatchError,
            "as 'image', and gave 'tensor'; leave out steps such as ToTensorV2",
        ),
        (
            lambda image: image,
            np.zeros((1, 2, 2)),
            BatchError,
            "as 'image', and gave a ndarray|an ndarray",
        ),
        (
            lambda image: {},
            np.zeros(3),
            ArgumentError,
            r"a picture is \(C, H, W\) or .* this one is \(3,\)",
        ),
        (
            lambda image: {},
            {"x": np.zeros((1, 2, 2))},
            ArgumentError,
            r"there is no entry 0 in a dict with keys \['x'\]",
        ),
    ],
    ids=["tensor", "no-dict", "dimensions", "entry"],
)
def test_what_albumentations_cannot_take_is_refused(transform, sample, error, message):
    with pytest.raises(error, match=message):
        data.albumentations(transform)(sample, np.random.default_rng(0))


@pytest.mark.parametrize("adapter", [data.albumentations, data.batchgenerators])
def test_a_transform_that_cannot_be_called_is_refused(adapter):
    with pytest.raises(ArgumentError, match="transform must be a function, not 3"):
        adapter(3)


# batchgenerators
# -----------------------------------------------------------------------------


class Shifting:
    """In batchgenerators' style: from the global random states, and in place."""

    def __call__(self, **arrays):
        arrays["data"] += np.random.random() + random.random()
        arrays["seg"][:] = arrays["seg"][..., ::-1].copy()
        return arrays


@pytest.mark.parametrize(
    "way",
    [{}, {"workers": 3}, {"workers": 1, "worker_kind": "process"}],
    ids=["plain", "threads", "process"],
)
def test_batchgenerators_draw_the_same_whatever_the_workers(way):
    spatial = pytest.importorskip("batchgenerators.transforms.spatial_transforms")
    abstract = pytest.importorskip("batchgenerators.transforms.abstract_transforms")
    noise = pytest.importorskip("batchgenerators.transforms.noise_transforms")
    steps = abstract.Compose(
        [
            spatial.MirrorTransform(axes=(0, 1)),
            noise.GaussianNoiseTransform(p_per_sample=1),
        ]
    )
    augment = data.batchgenerators(steps, data="x", seg="y")
    plain, other = (
        data.Loader(pictures(), 4, batch_transform=augment, **options)
        for options in ({}, way)
    )
    assert same(list(plain.batches(1)), list(other.batches(1)))
    batch, raw = next(plain.batches(1)), next(data.Loader(pictures(), 4).batches(1))
    assert (batch["y"].shape, batch["y"].dtype) == ((4, 7, 5), np.int64)
    assert (
        np.corrcoef(batch["x"][:, 0].ravel(), batch["y"].ravel())[0, 1] > 0.5
    )  # mirrored alike
    assert not np.array_equal(batch["y"], raw["y"])


def test_global_states_that_a_thread_seeds_for_a_while_are_not_called_drawn_from():
    def slow_after_the_first(batch, generator):
        with seeded_globals(generator):
            batch["x"] = batch["x"] + np.random.random()
            time.sleep(0.0 if 0 in batch["y"][:, 0, 0] else 0.3)
        return batch

    arrays = {"x": np.zeros((4, 1)), "y": np.arange(4).reshape(4, 1, 1)}
    loader = data.Loader(
        arrays, 1, batch_transform=slow_after_the_first, workers=3, shuffle=False
    )
    assert len(list(loader.batches(1))) == 4


@pytest.mark.parametrize("shape", [(7, 5), (4, 7, 5)], ids=["2d", "3d"])
def test_a_spatial_transform_of_batchgenerators_changes_the_size(shape):
    spatial = pytest.importorskip("batchgenerators.transforms.spatial_transforms")
    crop = spatial.SpatialTransform(
        (3,) * len(shape), patch_center_dist_from_border=2, do_elastic_deform=False
    )
    batch = (
        np.random.default_rng(0).random((2, 1, *shape)).astype(np.float32),
        np.ones((2, *shape), np.int64),
    )
    x, y = data.batchgenerators(crop, seg=1)(batch, np.random.default_rng(0))
    assert (x.shape, y.shape, y.dtype) == (
        (2, 1, *(3,) * len(shape)),
        (2, *(3,) * len(shape)),
        np.int64,
    )


def test_the_batch_itself_is_not_written_into():
    batch = {"data": np.zeros((2, 1, 3, 2)), "seg": np.arange(12).reshape(2, 3, 2)}
    found = data.batchgenerators(Shifting(), data="data", seg="seg")(
        batch, np.random.default_rng(0)
    )
    assert (batch["data"].any(), batch["seg"][0, 0].tolist()) == (False, [0, 1])
    assert (bool(found["data"].all()), found["seg"][0, 0].tolist()) == (True, [1, 0])


def test_global_states_are_seeded_with_numbers_of_all_their_bits(monkeypatch):
    keys, seed = [], np.random.seed
    monkeypatch.setattr(np.random, "seed", lambda key: keys.append(key) or seed(key))
    generator = np.random.default_rng(0)
    for _ in range(20):
        with seeded_globals(generator):
            pass
    bits = np.array(keys)[..., None] >> np.arange(32) & 1  # (calls, numbers, bits)
    assert np.all(
        abs(bits.mean((0, 1)) - 0.5) < 0.2
    )  # of 160 draws: five standard deviations


def test_global_states_are_put_back_also_after_an_error():
    before = np.random.get_state()[1].copy(), random.getstate()
    with pytest.raises(ZeroDivisionError), seeded_globals(np.random.default_rng(0)):
        global_draw()
        raise ZeroDivisionError
    assert np.array_equal(np.random.get_state()[1], before[0])
    assert random.getstate() == before[1]


# Entries
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, "inputs"])
def test_entries_of_named_tuples_have_positions_and_names(at):
    sample = data.Samples(np.arange(4.0).reshape(1, 2, 2), np.int64(1))
    found = data.albumentations(lambda image: {"image": image * 2}, image=at)(
        sample, np.random.default_rng(0)
    )
    assert isinstance(found, data.Samples)
    assert (found.inputs.sum(), found.labels) == (12, 1)


def test_a_single_transform_of_albumentations_is_accepted(library):
    augment = data.albumentations(library.HorizontalFlip(p=1.0))
    found = augment(
        (np.arange(35.0, dtype=np.float32).reshape(1, 7, 5), "label"),
        np.random.default_rng(0),
    )
    assert (found[0][0, 0].tolist(), found[1]) == ([4, 3, 2, 1, 0], "label")


def test_a_sample_that_is_a_picture_alone_is_transformed():
    found = data.albumentations(lambda image: {"image": image[::-1]})(
        np.arange(6.0).reshape(1, 3, 2), np.random.default_rng(0)
    )
    assert found.tolist() == [[[4, 5], [2, 3], [0, 1]]]


def test_what_is_no_array_is_refused():
    with pytest.raises(BatchError, match="as 'data', and gave None"):
        data.batchgenerators(lambda data: None)(
            (np.zeros((2, 1, 3)),), np.random.default_rng(0)
        )
