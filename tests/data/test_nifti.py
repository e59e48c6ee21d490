"""NIfTI files: against nibabel itself, and against functions of the place in millimetres."""

import gzip
import sys

import nibabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import data
from deliralike.data.nifti import Volume, oriented, placed_on, resampled
from deliralike.errors import BatchError, DataUnavailable, IndexRangeError, SettingError

# Axes to the left, up and to the back, turned a little; voxels of 1.5, 2 and 0.8 mm.
TURNED = np.array(
    [
        [-1.48, 0.2, 0.05, 30.0],
        [0.1, 0.15, -0.79, 10.0],
        [0.2, 1.98, 0.1, -7.0],
        [0, 0, 0, 1.0],
    ]
)

FLAT = np.array(
    [[1.0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
)  # two axes are one


def millimetres(volume):
    """The place of each voxel: ``(3, *size)``."""
    voxels = np.stack([*np.indices(volume.size), np.ones(volume.size)])
    return np.tensordot(volume.affine, voxels, axes=1)[:3]


def heights(size, affine):
    """A volume whose values are a linear function of the place."""
    empty = Volume(np.zeros(size), affine)
    return Volume(np.tensordot([0.5, -1.0, 2.0], millimetres(empty), axes=1), affine)


def test_files_hold_what_nibabel_reads_and_come_back(tmp_path):
    rng = np.random.default_rng(0)
    for name, array in {
        "floats.nii": rng.normal(size=(3, 5, 4)).astype(np.float32),
        "channels.nii.gz": rng.normal(size=(2, 3, 5, 4)).astype(np.float32),
        "labels.nii.gz": rng.integers(0, 4, (3, 5, 4)),
        "mask.nii": rng.random((3, 5, 4)) < 0.5,
    }.items():
        data.write_nifti(tmp_path / name, Volume(array, TURNED))
        image = nibabel.load(tmp_path / name)
        theirs = np.asarray(image.dataobj)
        assert_array_equal(
            np.moveaxis(theirs, -1, 0) if array.ndim > 3 else theirs, array
        )
        is_labels = array.dtype.kind != "f"
        found = data.read_nifti(tmp_path / name, labels=is_labels, orientation=None)
        assert found.array.dtype == (np.int64 if is_labels else np.float32)
        assert_array_equal(found.array, array)
        assert_allclose(found.affine, image.affine)
        assert_allclose(found.spacing, image.header.get_zooms()[:3], rtol=1e-6)


@pytest.mark.parametrize("channels", [(), (2,)])
def test_the_canonical_orientation_is_that_of_nibabel(channels):
    array = np.random.default_rng(0).normal(size=(*channels, 3, 5, 4))
    image = nibabel.Nifti1Image(
        np.moveaxis(array, 0, -1) if channels else array, TURNED
    )
    canonical = nibabel.as_closest_canonical(image)
    wanted = canonical.get_fdata()
    found = oriented(Volume(array, TURNED))
    assert (Volume(array, TURNED).orientation, found.orientation) == ("LSP", "RAS")
    assert_array_equal(found.array, np.moveaxis(wanted, -1, 0) if channels else wanted)
    assert_allclose(found.affine, canonical.affine)


@pytest.mark.parametrize("orientation", ["RAS", "LPS", "SAL", "PIR"])
def test_a_turned_volume_has_each_value_where_it_was(orientation):
    found = oriented(heights((3, 5, 4), TURNED), orientation)
    assert found.orientation == orientation
    assert_allclose(found.array, heights(found.size, found.affine).array, atol=1e-12)


@pytest.mark.parametrize("spacing", [1.0, (3.0, 1.0, 0.5)])
def test_a_resampled_volume_has_each_value_where_it_was_and_the_same_centre(spacing):
    before = heights((9, 8, 13), TURNED)
    after = resampled(before, spacing)
    assert_allclose(after.spacing, np.broadcast_to(spacing, 3))
    assert after.size == tuple(
        np.rint(np.array(before.size) * before.spacing / spacing)
    )
    centres = [
        millimetres(volume).reshape(3, -1).mean(axis=1) for volume in (before, after)
    ]
    assert_allclose(*centres, atol=1e-10)
    inside = (slice(2, -2),) * 3  # linear interpolation is exact between voxels
    wanted = heights(after.size, after.affine).array
    assert_allclose(after.array[inside], wanted[inside], atol=1e-10)


def test_labels_are_never_mixed_and_come_back_to_the_voxels_of_the_file():
    labels = np.zeros((8, 8, 10), np.int64)
    labels[2:6, 2:6, 2:8] = 7
    before = Volume(labels, np.diag([1.0, 1.0, 2.0, 1.0]))
    common = resampled(oriented(before, "LPS"), 0.5)
    assert set(np.unique(common.array)) == {0, 7}
    assert_array_equal(placed_on(common, before).array, labels)
    beside = Volume(
        labels, before.affine + np.array([[0, 0, 0, 100.0]] + [[0] * 4] * 3)
    )
    assert placed_on(before, beside).array.max() == 0


@pytest.fixture
def files(tmp_path):
    """Two patients with two channels and labels each."""
    rng = np.random.default_rng(0)
    for patient in (0, 1):
        for channel in ("t1", "t2"):
            array = rng.normal(size=(6 + patient, 5, 4)).astype(np.float32)
            data.write_nifti(
                tmp_path / f"{patient}-{channel}.nii.gz", Volume(array, TURNED)
            )
        labels = rng.integers(0, 3, (6 + patient, 5, 4))
        data.write_nifti(tmp_path / f"{patient}-labels.nii.gz", Volume(labels, TURNED))
    images = [
        [tmp_path / f"{patient}-{channel}.nii.gz" for channel in ("t1", "t2")]
        for patient in (0, 1)
    ]
    return images, [tmp_path / f"{patient}-labels.nii.gz" for patient in (0, 1)]


def test_a_dataset_of_paths_gives_samples_to_a_loader(files):
    images, labels = files
    source = data.nifti_files(images, labels, spacing=1.0)
    picture, mask = source[1]
    assert (picture.shape[1:], picture.dtype, mask.dtype) == (
        mask.shape,
        np.float32,
        np.int64,
    )
    wanted = data.read_nifti(images[1][1], spacing=1.0)
    assert_array_equal(picture[1], wanted.array)
    assert_array_equal(source.picture(1).affine, wanted.affine)
    loader = data.Loader(source, 2, transform=data.CropByPosNegLabel(3))
    inputs, targets = next(iter(loader))
    assert (inputs.shape, targets.shape) == ((2, 2, 3, 3, 3), (2, 3, 3, 3))
    assert data.nifti_files([each[0] for each in images])[0].shape[0] == 1


def test_files_that_do_not_fit_are_named(files, tmp_path):
    images, labels = files
    with pytest.raises(SettingError, match="there is no file '.*none.nii'"):
        data.nifti_files([tmp_path / "none.nii"])
    with pytest.raises(SettingError, match="2 pictures and 1 files of labels"):
        data.nifti_files(images, labels[:1])
    with pytest.raises(BatchError, match="0-t1.nii.gz' has .* '.*1-labels.nii.gz'"):
        data.nifti_files(images, labels[::-1])[0]
    with pytest.raises(IndexError, match="index out of range"):
        data.nifti_files(images)[2]
    with pytest.raises(
        BatchError, match="0-t1.nii.gz' holds .*, and labels are whole numbers"
    ):
        data.read_nifti(images[0][0], labels=True)
    broken = tmp_path / "broken.nii"
    broken.write_bytes(b"no volume")
    with pytest.raises(BatchError, match="broken.nii' cannot be read"):
        data.read_nifti(broken)
    data.write_nifti(broken, Volume(np.zeros((2, 2, 2), np.float32), TURNED))
    broken.write_bytes(broken.read_bytes()[:-8])
    with pytest.raises(BatchError, match="broken.nii' cannot be read"):
        data.read_nifti(broken)


@pytest.mark.parametrize(
    ("array", "affine", "message"),
    [
        (np.zeros((3, 4)), TURNED, r"has the shape \(3, 4\), wanted three axes"),
        (np.zeros((3, 4, 5, 1, 2)), TURNED, r"has the shape \(3, 4, 5, 1, 2\)"),
        (
            np.zeros((3, 4, 5), np.complex64),
            TURNED,
            "holds complex64, wanted one number a voxel",
        ),
        (np.full((3, 4, 5), np.nan), TURNED, "holds nan, and labels are whole numbers"),
        (np.zeros((3, 4, 5)), FLAT, "does not say where its voxels are"),
    ],
)
def test_contents_that_are_no_labels_in_three_axes_are_refused(
    tmp_path, array, affine, message
):
    file = tmp_path / "wrong.nii"
    nibabel.Nifti1Image(array, affine).to_filename(file)
    with pytest.raises(BatchError, match=f"volume '.*wrong.nii' {message}"):
        data.read_nifti(file, labels=True)


def test_an_archive_that_ends_early_is_refused_with_its_name(tmp_path):
    file = tmp_path / "damaged.nii.gz"
    data.write_nifti(file, heights((9, 8, 7), TURNED))
    contents = file.read_bytes()
    file.write_bytes(contents[: len(contents) // 2])
    with pytest.raises(BatchError, match="damaged.nii.gz' cannot be read"):
        data.read_nifti(file)


def test_settings_that_make_no_sense_are_refused(monkeypatch, tmp_path):
    volume = heights((3, 3, 3), TURNED)
    for wrong in ("RAX", "RLS", "RA"):
        with pytest.raises(SettingError, match="one letter of each pair RL, AP and SI"):
            oriented(volume, wrong)
    for wrong in (0, "2", (1.0, 2.0), None):
        with pytest.raises(SettingError, match="a distance above 0 along each axis"):
            resampled(volume, wrong)
    with pytest.raises(IndexRangeError, match="does not fit into a NIfTI file's int32"):
        data.write_nifti(
            tmp_path / "large.nii", Volume(np.full((2, 2, 2), 2**40), TURNED)
        )
    monkeypatch.setitem(sys.modules, "nibabel.orientations", None)
    with pytest.raises(
        DataUnavailable, match=r"needs the package 'nibabel'.*deliralike\[nifti\]"
    ):
        oriented(volume)


@pytest.mark.parametrize(
    ("unit", "length"), [("mm", 1.5), ("micron", 1500.0), ("meter", 0.0015)]
)
def test_the_units_of_a_file_become_millimetres(unit, length, tmp_path):
    array = np.random.default_rng(0).random((3, 5, 4), np.float32)
    affine = np.diag([length, length, 2 * length, 1.0])
    affine[:3, 3] = 4 * length
    image = nibabel.Nifti1Image(array, affine)
    image.header.set_xyzt_units(unit)
    image.to_filename(tmp_path / "a.nii")
    volume = data.read_nifti(tmp_path / "a.nii")
    assert_allclose(volume.affine[:3], affine[:3] * 1.5 / length, rtol=1e-6)
    assert data.read_nifti(tmp_path / "a.nii", spacing=1.5).size == (3, 5, 8)


@pytest.mark.parametrize("size", [(4, 4, 4), (9, 10, 7)])
@pytest.mark.parametrize("spacing", [1.5, 2.0, 3.0])
def test_intensities_keep_their_border_on_the_way_back(size, spacing):
    """Within the outermost voxels nothing is mixed with the outside; 0.42 came for 1 in corners."""
    fine = Volume(np.ones(size), np.eye(4))
    coarse = resampled(fine, spacing)
    covered = np.ones(size, bool)
    for axis, (place, length) in enumerate(zip(coarse.affine[:3, 3], coarse.size)):
        first = place - spacing / 2
        inside = (np.arange(size[axis]) > first - 1e-6) & (
            np.arange(size[axis]) < first + spacing * length + 1e-6
        )
        covered &= inside.reshape([-1 if each == axis else 1 for each in range(3)])
    assert_allclose(placed_on(coarse, fine).array, covered, rtol=0, atol=1e-12)
    assert covered.mean() > 0.4


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_a_larger_grid_is_empty_around_a_volume(dtype):
    inner = np.random.default_rng(0).integers(1, 9, (3, 4, 5)).astype(dtype)
    affine = np.eye(4)
    affine[:3, 3] = (1, 2, 3)
    placed = placed_on(Volume(inner, affine), Volume(np.zeros((6, 7, 9)), np.eye(4)))
    wanted = np.zeros((6, 7, 9), dtype)
    wanted[1:4, 2:6, 3:8] = inner
    assert_array_equal(placed.array, wanted)


def test_labels_with_one_channel_have_the_size_of_their_picture(tmp_path):
    labels = np.arange(60).reshape(3, 5, 4, 1).astype(np.int16)
    nibabel.Nifti1Image(labels, TURNED).to_filename(tmp_path / "labels.nii")
    nibabel.Nifti1Image(labels[..., 0].astype(np.float32), TURNED).to_filename(
        tmp_path / "a.nii"
    )
    files = data.nifti_files(
        [tmp_path / "a.nii"], [tmp_path / "labels.nii"], orientation=None
    )
    assert files[0].inputs.shape == (1, 3, 5, 4)
    assert_array_equal(files[0].labels, labels[..., 0])


def test_a_small_file_of_a_huge_volume_is_not_unpacked(tmp_path):
    image = nibabel.Nifti1Image(np.zeros((1, 1, 1), np.uint8), np.eye(4))
    image.header.set_data_shape((1024, 1024, 1024))
    with gzip.open(tmp_path / "a.nii.gz", "wb") as file:
        file.write(image.header.binaryblock)
    with pytest.raises(
        BatchError, match="a.nii.gz' cannot be read .*claims to hold 8,589,934,592"
    ):
        data.read_nifti(tmp_path / "a.nii.gz", labels=True)


def test_half_precision_is_written_as_single(tmp_path):
    array = np.random.default_rng(0).random((3, 5, 4)).astype(np.float16)
    data.write_nifti(tmp_path / "a.nii", Volume(array, TURNED))
    assert_array_equal(
        data.read_nifti(tmp_path / "a.nii", orientation=None).array, array
    )


def test_half_precision_is_resampled_as_single_precision_is():
    """SciPy has no half precision."""
    array = np.random.default_rng(0).normal(size=(5, 6, 4)).astype(np.float16)
    found = resampled(Volume(array, np.eye(4)), 1.5).array
    wanted = resampled(Volume(array.astype(np.float32), np.eye(4)), 1.5).array
    assert found.dtype == np.float16
    assert_allclose(found, wanted, atol=2e-3)
