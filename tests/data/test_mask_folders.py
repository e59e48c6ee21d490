"""Folders of pictures and volumes with masks, beside the arrays that were written into them."""

import json

import nibabel
import numpy as np
import pytest
from PIL import Image

from deliralike import data
from deliralike.errors import BatchError, SettingError
from deliralike.training.experiment import Settings, load_data

DRAW = np.random.default_rng(0)


def write(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), path)
    else:
        Image.fromarray(array).save(path)


def picture(height=32, width=64):
    return DRAW.integers(0, 256, (height, width, 3)).astype(np.uint8)


def labels(height=32, width=64, classes=3):
    mask = DRAW.integers(0, classes, (height, width))
    mask.flat[:classes] = range(classes)
    return mask


def write_pairs(folder, count=5, suffix=".png", ending="", table=None):
    """Pictures with masks, and what was written, by name."""
    written = {}
    for number in range(count):
        name = f"s{number}"
        pixels, mask = picture(), labels()
        stored = mask.astype(np.uint8) if table is None else np.array(table)[mask]
        write(folder / "images" / f"{name}{suffix}", pixels)
        write(folder / "masks" / f"{name}{ending}.png", stored.astype(np.uint8))
        written[name] = (pixels, mask)
    return written


def by_content(dataset):
    """The pictures of a dataset with their masks, training part first."""
    parts = (dataset.train, dataset.held_out)
    inputs = np.concatenate([part.inputs for part in parts])
    return list(
        zip(inputs, np.concatenate([part.labels for part in parts]), strict=True)
    )


TABLES = {
    "class numbers": (None, ("0", "1", "2")),
    "values": ([0, 128, 255], ("0", "128", "255")),
    "colours": (
        [[0, 0, 0], [255, 0, 0], [0, 0, 255]],
        ("#000000", "#0000ff", "#ff0000"),
    ),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("suffix", "ending"), [(".png", ""), (".tiff", "_mask")])
def test_pairs_by_name_are_read_with_masks_as_class_numbers(
    tmp_path, kind, suffix, ending
):
    table, classes = TABLES[kind]
    written = write_pairs(tmp_path, suffix=suffix, table=table, ending=ending)
    dataset = data.load(f"{tmp_path}/")
    assert (dataset.task, dataset.classes) == ("segmentation", classes)
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (4, 1)
    found = by_content(dataset)
    for pixels, mask in written.values():
        expected = pixels.transpose(2, 0, 1) / np.float32(255)
        match = [read for inputs, read in found if np.array_equal(inputs, expected)]
        if kind == "colours":  # whose classes are sorted by colour
            mask = np.array([0, 2, 1])[mask]
        assert np.array_equal(match, [mask])


@pytest.mark.parametrize(
    ("table", "remark"),
    [
        ([0, 255], "the mask values 0, 255 are the classes 0 to 1"),
        ([0, 1, 255], "0, 1, 255 are the classes 0 to 2, 255 too: if it marks"),
        ([0, 1, 2], None),
    ],
)
def test_it_is_said_which_value_of_the_masks_is_which_class(tmp_path, table, remark):
    for number in range(3):
        mask = np.array(table, np.uint8)[labels(classes=len(table))]
        write(tmp_path / "images" / f"{number}.png", picture())
        write(tmp_path / "masks" / f"{number}.png", mask)
    dataset = data.load(f"{tmp_path}/")
    assert set(np.unique(dataset.train.labels)) == set(range(len(table)))
    if remark is None:
        assert "mask values" not in dataset.description
    else:
        assert remark in dataset.description


def test_values_and_classes_can_be_said(tmp_path):
    write_pairs(tmp_path, table=TABLES["colours"][0])
    table = ["#ff0000", "#0000FF", "#000000"]
    dataset = data.load(f"{tmp_path}/", values=table, classes=["a", "b", "c"])
    usual = data.load(f"{tmp_path}/")
    assert dataset.classes == ("a", "b", "c")
    assert np.array_equal(dataset.train.labels, 2 - usual.train.labels)
    with pytest.raises(BatchError, match=r"has the value #0000ff, which is not among"):
        data.load(f"{tmp_path}/", values=["#ff0000", "#000000"])
    with pytest.raises(SettingError, match=r"2 classes a, b and 3 values in the masks"):
        data.load(f"{tmp_path}/", classes=["a", "b"])
    with pytest.raises(SettingError, match="'red' is no value of a mask, nor a colour"):
        data.load(f"{tmp_path}/", values=["red", 0])


def test_the_values_of_a_jpeg_are_taken_for_the_nearest(tmp_path):
    masks = []
    for number in range(4):
        mask = np.kron(labels(4, 8, 2), np.ones((9, 9), int))[:32, :64]
        write(tmp_path / "imgs" / f"{number}.jpg", picture())
        write(tmp_path / "masks" / f"{number}.jpg", (mask * 255).astype(np.uint8))
        masks.append(mask)
    stored = [np.asarray(Image.open(f)) for f in (tmp_path / "masks").iterdir()]
    assert len(np.unique(stored)) > 2
    with pytest.raises(SettingError, match=r"--set data\.values='\(0, 255\)'"):
        data.load(f"{tmp_path}/")
    read = [mask for _, mask in by_content(data.load(f"{tmp_path}/", values=[0, 255]))]
    assert sorted(mask.tobytes() for mask in read) == sorted(m.tobytes() for m in masks)


def test_colours_of_a_jpeg_are_taken_for_the_nearest_in_all_channels(tmp_path):
    """A little red in a blue pixel does not make it green."""
    palette = np.array([[0, 0, 0], [0, 0, 255], [0, 255, 0]], np.uint8)
    nearest = []
    for number in range(4):
        file = tmp_path / "masks" / f"{number}.jpg"
        write(tmp_path / "imgs" / f"{number}.png", picture())
        write(file, palette[np.kron(labels(2, 4), np.ones((16, 16), int))])
        differences = np.asarray(Image.open(file), float)[..., None, :] - palette
        nearest.append(np.linalg.norm(differences, axis=-1).argmin(-1))
    colours = ("#000000", "#0000ff", "#00ff00")
    read = [mask for _, mask in by_content(data.load(f"{tmp_path}/", values=colours))]
    assert sorted(mask.tobytes() for mask in read) == sorted(map(bytes, nearest))


def test_pictures_get_a_size_that_networks_can_halve(tmp_path):
    for number, size in enumerate([(70, 90), (71, 93), (300, 200)]):
        write(tmp_path / "images" / f"{number}.png", picture(*size)[..., 0])
        write(tmp_path / "masks" / f"{number}.png", labels(*size).astype(np.uint8))
    assert data.load(f"{tmp_path}/").sample_shape == (1, 64, 96)
    assert data.load(f"{tmp_path}/", size=40, mode="RGB").sample_shape == (3, 40, 40)


def test_parts_for_training_and_validation_stay_as_they_are(tmp_path):
    write_pairs(tmp_path / "train", 3)
    written = write_pairs(tmp_path / "val", 2)
    dataset = data.load(f"{tmp_path}/")
    expected = [mask for _, mask in written.values()]
    assert np.array_equal(dataset.held_out.labels, expected)
    assert len(dataset.train.labels) == 3


def test_patients_are_not_divided(tmp_path):
    for number in range(20):
        name = f"patient{number // 4}/{number}.png"
        write(
            tmp_path / "images" / name, np.full((32, 32), 10 * (number // 4), np.uint8)
        )
        write(tmp_path / "masks" / name, labels(32, 32).astype(np.uint8))
    dataset = data.load(f"{tmp_path}/", held_out=0.4)
    learned, judged = (
        set(np.unique(part.inputs)) for part in (dataset.train, dataset.held_out)
    )
    assert (len(learned), len(judged), learned & judged) == (3, 2, set())
    held_out = []
    for fold in (1, 2, 3):
        settings = Settings(network="unet", data=f"{tmp_path}/", folds=3, fold=fold)
        part = load_data(settings)
        learned = set(np.unique(part.train.inputs))
        judged = set(np.unique(part.held_out.inputs))
        assert learned.isdisjoint(judged)
        held_out += judged
    assert len(held_out) == len(set(held_out)) == 5


def nnunet(folder, names, count=4, channels=2):
    volumes = {}
    for number in range(count):
        shape = (10 + number, 17, 6)
        arrays = DRAW.normal(5, 3, (channels, *shape)).astype(np.float32)
        mask = DRAW.integers(0, 2, shape).astype(np.uint8)
        for channel, array in enumerate(arrays):
            name = f"case_{number}_{channel:04}.nii.gz"
            write(folder / "imagesTr" / name, array)
        write(folder / "labelsTr" / f"case_{number}.nii.gz", mask)
        volumes[number] = (arrays, mask)
    (folder / "dataset.json").write_text(json.dumps({"labels": names}))
    return volumes


@pytest.mark.parametrize(
    "names", [{"background": 0, "liver": 1}, {"0": "background", "1": "liver"}]
)
def test_the_raw_folder_of_nnunet_is_read_as_it_is(tmp_path, names):
    volumes = nnunet(tmp_path, names)
    dataset = data.load(f"{tmp_path}/")
    assert (dataset.classes, dataset.sample_shape) == (
        ("background", "liver"),
        (2, 16, 32, 16),
    )
    # 4 volumes of 2 channels of 16x32x16 voxels of 4 bytes
    assert "all of them in memory, 0.2 MiB" in dataset.description
    found = by_content(dataset)
    for arrays, mask in volumes.values():
        window = tuple(map(slice, mask.shape))
        mean = arrays.mean((1, 2, 3), keepdims=True)
        expected = (arrays - mean) / arrays.std((1, 2, 3), keepdims=True)
        equal = [
            read
            for inputs, read in found
            if np.allclose(inputs[:, *window], expected, atol=1e-5)
        ]
        assert len(equal) == 1
        assert np.array_equal(equal[0][window], mask)
        assert equal[0].sum() == mask.sum()


def test_classes_of_nnunet_have_their_names_in_any_order_of_the_values(tmp_path):
    nnunet(tmp_path, {"background": 0, "liver": 1})
    dataset = data.load(f"{tmp_path}/", values=(1, 0))
    assert dataset.classes == ("liver", "background")


def test_volumes_lie_in_folders_as_pictures_do(tmp_path):
    masks = []
    for number in range(3):
        mask = DRAW.integers(0, 2, (16, 16, 16))
        write(tmp_path / "images" / f"{number}.nii.gz", DRAW.normal(size=mask.shape))
        stored = (200 * mask).astype(np.uint8)
        write(tmp_path / "labels" / f"{number}_seg.nii.gz", stored)
        masks.append(mask)
    dataset = data.load(f"{tmp_path}/")
    assert (dataset.classes, dataset.sample_shape) == (("0", "200"), (1, 16, 16, 16))
    read = sorted(mask.tobytes() for _, mask in by_content(dataset))
    assert read == sorted(mask.tobytes() for mask in masks)


def test_regions_of_nnunet_are_refused(tmp_path):
    nnunet(tmp_path, {"background": 0, "whole": [1, 2]})
    with pytest.raises(SettingError, match="regions of several numbers are not read"):
        data.load(f"{tmp_path}/")


def test_a_folder_that_could_mean_two_things_is_asked_for_with_both_commands(tmp_path):
    write_pairs(tmp_path, 3)
    write(tmp_path / "images" / "alone.png", picture())
    place = f"{tmp_path}/"
    message = (
        r"could mean two things, as it has '?.*alone\.png'? without a partner of that name\. "
        rf"Pictures with masks: deliralike train NETWORK --data {place} "
        r"--set data.task=segmentation\. "
        r".*--set data.task=classification"
    )
    with pytest.raises(SettingError, match=message):
        data.load(place)
    with pytest.raises(SettingError, match=r"has .*alone\.png without a partner"):
        data.load(place, task="segmentation")
    pictures = data.load(place, task="classification", size=8)
    assert pictures.classes == ("images", "masks")
    (tmp_path / "images" / "alone.png").unlink()
    write(tmp_path / "cats" / "cat.png", picture())
    with pytest.raises(SettingError, match="another subfolder 'cats'"):
        data.load(place)
    assert data.load(place, task="segmentation").task == "segmentation"
    with pytest.raises(SettingError, match=r"task='detection' is unknown"):
        data.load(place, task="detection")
    with pytest.raises(SettingError, match="has no subfolders images/ and masks/"):
        data.load(f"{tmp_path}/cats", task="segmentation")
