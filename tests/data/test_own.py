"""Data of one's own by name: functions, folders, archives and tables, as people keep them."""

import csv

import numpy as np
import pytest
from PIL import Image

from deliralike import data
from deliralike.errors import ArgumentError, DeliralikeError, SettingError

GENERATOR = np.random.default_rng(5)
BYTES = GENERATOR.integers(0, 256, (15, 7, 9), dtype=np.uint8)
LABELS = np.arange(15) % 3


def saved(folder, **arrays):
    """The name of an archive of these arrays."""
    np.savez(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


ARCHIVES = {
    "keras": dict(x_train=BYTES[:9], y_train=LABELS[:9], x_test=BYTES[9:], y_test=LABELS[9:]),
    "medmnist": dict(
        train_images=BYTES[:9],
        train_labels=LABELS[:9, None],
        val_images=BYTES[9:],
        val_labels=LABELS[9:, None],
        test_images=BYTES[:2],
        test_labels=LABELS[:2, None],
    ),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_archives_that_are_split_stay_as_they_are(kind, tmp_path):
    dataset = data.load(saved(tmp_path, **ARCHIVES[kind]))
    np.testing.assert_array_equal(
        dataset.train.inputs, BYTES[:9, None].astype(np.float32) / np.float32(255)
    )
    np.testing.assert_array_equal(dataset.held_out.labels, LABELS[9:])
    assert dataset.classes == ("0", "1", "2")
    assert dataset.held_out.inputs.shape == (6, 1, 7, 9)


def test_an_archive_that_is_whole_is_split(tmp_path):
    inputs = GENERATOR.normal(size=(15, 2, 7, 9))
    dataset = data.load(saved(tmp_path, X=inputs, y=LABELS), held_out=0.4)
    assert dataset.train.inputs.dtype == np.float32
    assert len(dataset.train.labels) == 9
    assert sorted(dataset.held_out.labels) == [0, 0, 1, 1, 2, 2]
    both = np.concatenate([dataset.train.inputs, dataset.held_out.inputs])
    assert {row.tobytes() for row in both} == {row.tobytes() for row in inputs.astype(np.float32)}


def test_an_archive_with_a_part_for_training_alone_is_split(tmp_path):
    dataset = data.load(saved(tmp_path, x_train=BYTES, y_train=LABELS), held_out=0.4)
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (9, 6)


def test_an_archive_of_objects_is_refused_with_the_arrays_name(tmp_path):
    texts = np.array(["ape"] * 15, dtype=object)
    with pytest.raises(SettingError, match=r"'labels' cannot be read .*np.asarray\(.*dtype=str"):
        data.load(saved(tmp_path, inputs=BYTES, labels=texts))


def test_texts_that_are_objects_are_classes():
    """pandas keeps texts so."""
    texts = np.array(["dog", "cat", "ape"] * 5, dtype=object)
    assert data.as_dataset((BYTES, texts), "mine").classes == ("ape", "cat", "dog")


NUMBERS = GENERATOR.normal(size=(15, 4)).astype(np.float32)


def table_of_numbers(folder, labels, parts=None, index=False):
    """The name of a table whose rows are `NUMBERS` with a label each."""
    path = folder / "numbers.csv"
    rows = [["a", "b", "c", "d", "class"]]
    rows += [[*map(float, row), label] for row, label in zip(NUMBERS, labels, strict=True)]
    if parts is not None:
        rows = [[*row, part] for row, part in zip(rows, ["split", *parts], strict=True)]
    if index:
        rows = [[number, *row] for row, number in zip(rows, ["", *range(15)], strict=True)]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@pytest.mark.parametrize("index", [False, True], ids=["plain", "of pandas"])
def test_a_table_of_numbers(index, tmp_path):
    parts = ["train"] * 9 + ["val"] * 6
    dataset = data.load(table_of_numbers(tmp_path, LABELS, parts, index))
    np.testing.assert_array_equal(dataset.train.inputs, NUMBERS[:9])
    np.testing.assert_array_equal(dataset.held_out.inputs, NUMBERS[9:])
    np.testing.assert_array_equal(dataset.held_out.labels, LABELS[9:])
    assert dataset.classes == ("0", "1", "2")


def test_a_table_of_numbers_without_parts_is_split(tmp_path):
    names = [("ape", "bee", "cat")[label] for label in LABELS]
    dataset = data.load(table_of_numbers(tmp_path, names))
    assert dataset.classes == ("ape", "bee", "cat")
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (12, 3)


def test_a_table_of_something_else_names_the_column(tmp_path):
    with pytest.raises(SettingError, match="labels of type float64: wanted are class numbers"):
        data.load(table_of_numbers(tmp_path, LABELS + 0.5))
    table = tmp_path / "texts.csv"
    table.write_text("a,kind,label\n1,x,0\n2,y,1\n")
    with pytest.raises(
        SettingError, match=r"column 'kind' holds .*: take it out, or write numbers"
    ):
        data.load(str(table))
    table.write_text("a,b\n1,2\n")
    with pytest.raises(SettingError, match=r"columns \['a', 'b'\]: wanted is one of \('label'"):
        data.load(str(table))
    table.write_text("label\n1\n")
    with pytest.raises(SettingError, match=r"has the column 'label' alone"):
        data.load(str(table))


def test_channels_that_come_last_are_moved_and_texts_are_classes():
    colours = GENERATOR.integers(0, 256, (6, 7, 9, 3), dtype=np.uint8)
    dataset = data.as_dataset((colours, np.array(["dog", "cat"] * 3)), "mine", held_out=0.34)
    assert dataset.classes == ("cat", "dog")
    assert dataset.train.inputs.shape[1:] == (3, 7, 9)
    parts = (dataset.train, dataset.held_out)
    found = {
        (picture.tobytes(), int(label))
        for part in parts
        for picture, label in zip(*part, strict=True)
    }
    wanted = {
        ((picture.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).tobytes(), number)
        for picture, number in zip(colours, [1, 0] * 3, strict=True)
    }
    assert found == wanted


def test_pictures_of_labels_are_for_segmentation():
    masks = GENERATOR.integers(0, 4, (10, 7, 9))
    masks[0, 0] = 3
    dataset = data.as_dataset((BYTES[:10], masks), "mine")
    assert (dataset.task, dataset.classes) == ("segmentation", ("0", "1", "2", "3"))
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (8, 2)


def pictures(folder, count):
    """A folder of pictures whose brightness is 40 times their class."""
    for place in range(count):
        path = folder / ("ash", "oak")[place % 2] / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 7), 40 * (place % 2) + 10).save(path)
    return folder


def test_a_folder_of_pictures(tmp_path):
    dataset = data.load(str(pictures(tmp_path / "trees", 10)), mode="L")
    assert dataset.classes == ("ash", "oak")
    assert dataset.train.inputs.shape == (8, 1, 7, 9)
    shades = dataset.train.inputs[:, 0, 0, 0]
    np.testing.assert_allclose(shades, (40 * dataset.train.labels + 10) / 255, rtol=1e-6)


def test_a_folder_that_is_split(tmp_path):
    pictures(tmp_path / "train", 6)
    pictures(tmp_path / "val", 4)
    dataset = data.load(str(tmp_path), mode="L", size=5)
    assert (dataset.train.inputs.shape, len(dataset.held_out.labels)) == ((6, 1, 5, 5), 4)


@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
def test_a_table_of_paths(is_split, tmp_path):
    pictures(tmp_path, 10)
    files = sorted(tmp_path.rglob("*.png"))
    with (tmp_path / "all.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["filename", "label", "split"] if is_split else ["filename", "label"])
        for place, path in enumerate(files):
            part = ["val" if place % 5 == 0 else "train"] if is_split else []
            writer.writerow([path.relative_to(tmp_path), path.parent.name, *part])
    dataset = data.load(str(tmp_path / "all.csv"), mode="L")
    assert dataset.classes == ("ash", "oak")
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (8, 2)
    shades = dataset.held_out.inputs[:, 0, 0, 0]
    np.testing.assert_allclose(shades, (40 * dataset.held_out.labels + 10) / 255, rtol=1e-6)


@pytest.mark.parametrize("row", ["b.png,oak", "b.png,oak,val,7"], ids=["short", "long"])
def test_a_row_without_a_cell_for_each_column_is_named(row, tmp_path):
    table = tmp_path / "all.csv"
    table.write_text(f"path,label,split\na.png,ash,train\n{row}\n")
    with pytest.raises(SettingError, match=r"row 2 below the header, .*'oak'.*one cell for each"):
        data.load(str(table))


class Stranger:
    """A dataset as PyTorch's users write it."""

    def __len__(self):
        return 15

    def __getitem__(self, index):
        if index > 14:
            raise IndexError(index)
        return BYTES[index], int(LABELS[index])


def make_pairs(held_out, count=15):
    """What a user's function returns."""
    return BYTES[:count], LABELS[:count]


def test_what_a_function_makes(tmp_path):
    code = tmp_path / "strangers_data.py"
    code.write_text(
        "from tests.data.test_own import Stranger, make_pairs\n"
        "def parts():\n    return Stranger(), Stranger()\n"
    )
    dataset = data.load(f"{code}:make_pairs", held_out=0.34, count=9)
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (6, 3)
    dataset = data.load(f"{code}:parts")
    assert len(dataset.train.labels) == len(dataset.held_out.labels) == 15
    assert data.load(f"{code}:Stranger").train.inputs.shape == (12, 1, 7, 9)
    with pytest.raises(ArgumentError, match="has no setting 'cuont'. Did you mean 'count'"):
        data.load(f"{code}:make_pairs", cuont=3)


def test_rows_with_names():
    rows = [{"image": BYTES[place], "label": LABELS[place]} for place in range(15)]
    dataset = data.as_dataset((rows, rows[:6]), "mine")
    np.testing.assert_array_equal(dataset.train.labels, LABELS)
    np.testing.assert_array_equal(dataset.held_out.inputs[:, 0], dataset.train.inputs[:6, 0])
    with pytest.raises(SettingError, match=r"samples of a row with \['a', 'b'\]"):
        data.as_dataset(([{"a": 1, "b": 2}], rows), "mine")


WRONG = {
    "measured": ((BYTES, LABELS * 0.5), "labels of type float64: wanted are class numbers"),
    "one-hot": ((BYTES, np.eye(3, dtype=int)[LABELS]), "one-hot labels .15, 3.: wanted are class"),
    "negative": ((BYTES, LABELS - 1), "label -1: class numbers begin at 0"),
    "too few": ((BYTES, LABELS[:9]), "inputs .15, 7, 9. and labels .9,.: wanted is one label"),
    "a dict": ({"x": BYTES}, "'mine' made a dict"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_dataset(wrong):
    made, message = WRONG[wrong]
    with pytest.raises(SettingError, match=message):
        data.as_dataset(made, "mine")


def test_files_that_are_not_there_or_hold_something_else(tmp_path):
    with pytest.raises(SettingError, match=r"there is no 'nowhere.npz', looked for in "):
        data.load("nowhere.npz")
    with pytest.raises(
        SettingError, match=r"holds \['weights'\]: wanted are arrays such as inputs"
    ):
        data.load(saved(tmp_path, weights=BYTES))
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(SettingError, match="data are a folder of pictures, a file .csv or .npz"):
        data.load(str(tmp_path / "a.txt"))
    pictures(tmp_path / "mixed", 4)
    Image.new("L", (3, 3)).save(tmp_path / "mixed" / "oak" / "small.png")
    with pytest.raises(DeliralikeError, match=r"samples of 2 shapes, such as .*size=\.\.\."):
        data.load(str(tmp_path / "mixed"), mode="L")
