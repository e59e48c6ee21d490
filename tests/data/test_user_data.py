"""Data of one's own by name: functions, folders, archives and tables, as people keep them."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from deliralike import data
from deliralike.errors import ArgumentError, BatchError, DeliralikeError, SettingError

GENERATOR = np.random.default_rng(5)
BYTES = GENERATOR.integers(0, 256, (15, 7, 9), dtype=np.uint8)
LABELS = np.arange(15) % 3


def saved(folder, **arrays):
    """The name of an archive of these arrays."""
    np.savez(folder / "mine.npz", **arrays)
    return str(folder / "mine.npz")


ARCHIVES = {
    "keras": dict(
        x_train=BYTES[:9], y_train=LABELS[:9], x_test=BYTES[9:], y_test=LABELS[9:]
    ),
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
    assert_array_equal(
        dataset.train.inputs, BYTES[:9, None].astype(np.float32) / np.float32(255)
    )
    assert_array_equal(dataset.held_out.labels, LABELS[9:])
    assert dataset.classes == ("0", "1", "2")
    assert dataset.held_out.inputs.shape == (6, 1, 7, 9)


def test_an_archive_that_is_whole_is_split(tmp_path):
    inputs = GENERATOR.normal(size=(15, 2, 7, 9))
    dataset = data.load(saved(tmp_path, X=inputs, y=LABELS), held_out=0.4)
    assert dataset.train.inputs.dtype == np.float32
    assert len(dataset.train.labels) == 9
    assert sorted(dataset.held_out.labels) == [0, 0, 1, 1, 2, 2]
    both = np.concatenate([dataset.train.inputs, dataset.held_out.inputs])
    assert {row.tobytes() for row in both} == {
        row.tobytes() for row in inputs.astype(np.float32)
    }


def test_what_an_archive_holds_out_beside_arrays_without_a_word_is_held_out(tmp_path):
    """It would be left out without a word otherwise, and a part of the rest held out."""
    tested = BYTES[::-1][:4], LABELS[::-1][:4]
    name = saved(tmp_path, x=BYTES, y=LABELS, x_test=tested[0], y_test=tested[1])
    dataset = data.load(name)
    assert np.array_equal(dataset.train.labels, LABELS)
    assert np.array_equal(dataset.held_out.labels, tested[1])
    assert np.array_equal(dataset.held_out.inputs[:, 0] * 255, tested[0])


def test_an_archive_with_a_part_for_training_alone_is_split(tmp_path):
    dataset = data.load(saved(tmp_path, x_train=BYTES, y_train=LABELS), held_out=0.4)
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (9, 6)


def test_an_archive_of_objects_is_refused_with_the_arrays_name(tmp_path):
    texts = np.array(["ape"] * 15, dtype=object)
    with pytest.raises(
        SettingError, match=r"'labels' cannot be read .*np.asarray\(.*dtype=str"
    ):
        data.load(saved(tmp_path, inputs=BYTES, labels=texts))


NUMBERS = GENERATOR.normal(size=(15, 4)).astype(np.float32)


def table_of_numbers(folder, labels, parts=None, index=False):
    """The name of a table whose rows are `NUMBERS` with a label each."""
    path = folder / "numbers.csv"
    rows = [["a", "b", "c", "d", "class"]]
    rows += [
        [*map(float, row), label] for row, label in zip(NUMBERS, labels, strict=True)
    ]
    if parts is not None:
        rows = [[*row, part] for row, part in zip(rows, ["split", *parts], strict=True)]
    if index:
        rows = [
            [number, *row] for row, number in zip(rows, ["", *range(15)], strict=True)
        ]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return str(path)


@pytest.mark.parametrize("index", [False, True], ids=["plain", "of pandas"])
def test_a_table_of_numbers(index, tmp_path):
    parts = ["train"] * 9 + ["val"] * 6
    dataset = data.load(table_of_numbers(tmp_path, LABELS, parts, index))
    assert_array_equal(dataset.train.inputs, NUMBERS[:9])
    assert_array_equal(dataset.held_out.inputs, NUMBERS[9:])
    assert_array_equal(dataset.held_out.labels, LABELS[9:])
    assert dataset.classes == ("0", "1", "2")


def test_a_table_of_numbers_without_parts_is_split(tmp_path):
    names = [("ape", "bee", "cat")[label] for label in LABELS]
    dataset = data.load(table_of_numbers(tmp_path, names))
    assert dataset.classes == ("ape", "bee", "cat")
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (12, 3)


def test_a_table_of_something_else_names_the_column(tmp_path):
    with pytest.raises(
        SettingError, match="labels of type float64: wanted are class numbers"
    ):
        data.load(table_of_numbers(tmp_path, LABELS + 0.5))
    table = tmp_path / "texts.csv"
    table.write_text("a,kind,label\n1,x,0\n2,y,1\n")
    with pytest.raises(
        SettingError, match=r"column 'kind' holds .*: take it out, or write numbers"
    ):
        data.load(str(table))
    table.write_text("a,b\n1,2\n")
    with pytest.raises(
        SettingError, match=r"columns \['a', 'b'\]: wanted is one of \('label'"
    ):
        data.load(str(table))
    table.write_text("label\n1\n")
    with pytest.raises(SettingError, match=r"has the column 'label' alone"):
        data.load(str(table))


def test_channels_that_come_last_are_moved_and_texts_are_classes():
    colours = GENERATOR.integers(0, 256, (6, 7, 9, 3), dtype=np.uint8)
    dataset = data.as_dataset(
        (colours, np.array(["dog", "cat"] * 3)), "mine", held_out=0.34
    )
    assert dataset.classes == ("cat", "dog")
    assert dataset.train.inputs.shape[1:] == (3, 7, 9)
    parts = (dataset.train, dataset.held_out)
    found = {
        (picture.tobytes(), int(label))
        for part in parts
        for picture, label in zip(*part, strict=True)
    }
    wanted = {
        (
            (picture.transpose(2, 0, 1).astype(np.float32) / np.float32(255)).tobytes(),
            number,
        )
        for picture, number in zip(colours, [1, 0] * 3, strict=True)
    }
    assert found == wanted


def test_floating_channels_that_seem_to_come_last_are_told():
    colours, labels = np.ones((6, 7, 9, 3), np.float32), np.arange(6) % 2
    with pytest.warns(
        UserWarning, match=r"pictures of 7 channels and size 9 x 3: where"
    ):
        dataset = data.as_dataset((colours, labels), "mine")
    assert dataset.train.inputs.shape[1:] == (7, 9, 3)
    data.as_dataset((colours.transpose(0, 3, 1, 2), labels), "mine")


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
    assert_allclose(shades, (40 * dataset.train.labels + 10) / 255, rtol=1e-6)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("held_out", "0.2"),
        ("seed", None),
        ("size", 2.5),
        ("size", ("8", "8")),
        ("mode", 3),
        ("classes", 2),
        ("task", ["segmentation"]),
    ],
)
def test_an_option_of_another_type_is_named(option, value, tmp_path):
    pictures(tmp_path / "cat", 3)
    pictures(tmp_path / "dog", 3)
    with pytest.raises(SettingError, match=f"{option}=.* must be "):
        data.load(str(tmp_path), **{option: value})
    with pytest.raises(SettingError, match="held_out='all' must be a number"):
        data.load("digits", held_out="all")


def test_a_folder_that_is_split(tmp_path):
    pictures(tmp_path / "train", 6)
    pictures(tmp_path / "val", 4)
    dataset = data.load(str(tmp_path), mode="L", size=5)
    assert (dataset.train.inputs.shape, len(dataset.held_out.labels)) == (
        (6, 1, 5, 5),
        4,
    )


@pytest.mark.parametrize("is_split", [False, True], ids=["whole", "split"])
def test_a_table_of_paths(is_split, tmp_path):
    pictures(tmp_path, 10)
    files = sorted(tmp_path.rglob("*.png"))
    with (tmp_path / "all.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["filename", "label", "split"] if is_split else ["filename", "label"]
        )
        for place, path in enumerate(files):
            part = ["val" if place % 5 == 0 else "train"] if is_split else []
            writer.writerow([path.relative_to(tmp_path), path.parent.name, *part])
    dataset = data.load(str(tmp_path / "all.csv"), mode="L")
    assert dataset.classes == ("ash", "oak")
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (8, 2)
    shades = dataset.held_out.inputs[:, 0, 0, 0]
    assert_allclose(shades, (40 * dataset.held_out.labels + 10) / 255, rtol=1e-6)


@pytest.mark.parametrize("row", ["b.png,oak", "b.png,oak,val,7"], ids=["short", "long"])
def test_a_row_without_a_cell_for_each_column_is_named(row, tmp_path):
    table = tmp_path / "all.csv"
    table.write_text(f"path,label,split\na.png,ash,train\n{row}\n")
    with pytest.raises(
        SettingError, match=r"row 2 below the header, .*'oak'.*one cell for each"
    ):
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
        "from tests.data.test_user_data import Stranger, make_pairs\n"
        "def parts():\n    return Stranger(), Stranger()\n"
    )
    dataset = data.load(f"{code}:make_pairs", held_out=0.34, count=9)
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (6, 3)
    dataset = data.load(f"{code}:parts")
    assert len(dataset.train.labels) == len(dataset.held_out.labels) == 15
    assert data.load(f"{code}:Stranger").train.inputs.shape == (12, 1, 7, 9)
    with pytest.raises(
        ArgumentError, match="has no setting 'cuont'. Did you mean 'count'"
    ):
        data.load(f"{code}:make_pairs", cuont=3)


WRONG = {
    "measured": (
        (BYTES, LABELS * 0.5),
        "labels of type float64: wanted are class numbers",
    ),
    "one-hot": (
        (BYTES, np.eye(3, dtype=int)[LABELS]),
        "one-hot labels .15, 3.: wanted are class",
    ),
    "negative": ((BYTES, LABELS - 1), "label -1: class numbers begin at 0"),
    "objects": (
        (BYTES, np.array([None, "ape", 3] * 5)),
        "labels of type object: wanted are class",
    ),
    "nothing": ((BYTES[:0], LABELS[:0]), "'mine' has no sample"),
    "too few": (
        (BYTES, LABELS[:9]),
        "inputs .15, 7, 9. and labels .9,.: wanted is one label",
    ),
    "a dict": ({"x": BYTES}, "'mine' made a dict"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_dataset(wrong):
    made, message = WRONG[wrong]
    with pytest.raises(SettingError, match=message):
        data.as_dataset(made, "mine")


def test_files_that_are_not_there_or_hold_something_else(tmp_path):
    with pytest.raises(
        SettingError, match=r"there is no 'nowhere.npz', looked for in "
    ):
        data.load("nowhere.npz")
    with pytest.raises(
        SettingError, match=r"holds \['weights'\]: wanted are arrays such as inputs"
    ):
        data.load(saved(tmp_path, weights=BYTES))
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(
        SettingError, match="data are a folder of pictures, a file .csv or .npz"
    ):
        data.load(str(tmp_path / "a.txt"))
    pictures(tmp_path / "mixed", 4)
    Image.new("L", (3, 3)).save(tmp_path / "mixed" / "oak" / "small.png")
    with pytest.raises(
        DeliralikeError, match=r"samples of 2 shapes, such as .*size=\.\.\."
    ):
        data.load(str(tmp_path / "mixed"), mode="L")


# What a table means -------------------------------------------------------------------------------


def table_of(folder, header, rows):
    """The name of a table of these lines of cells."""
    path = folder / "table.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


def paired(dataset):
    """Each label's class name with the input that it came with, sorted by the input."""
    pairs = set()
    for part in (dataset.train, dataset.held_out):
        for value, label in zip(
            part.inputs.reshape(len(part.inputs), -1)[:, 0], part.labels
        ):
            pairs.add((round(float(value), 3), dataset.classes[label]))
    return sorted(pairs)


@pytest.mark.parametrize("kind", ["paths", "numbers"])
def test_class_numbers_of_a_table_are_in_the_order_of_numbers(kind, tmp_path):
    rows = []
    for number in range(12):
        name = f"{number}.png"
        Image.new("L", (2, 2), 20 * number).save(tmp_path / name)
        rows += [[name if kind == "paths" else 20 * number / 255, number]] * 5
    header = ["path" if kind == "paths" else "shade", "label"]
    dataset = data.load(table_of(tmp_path, header, rows))
    assert dataset.classes == tuple(map(str, range(12)))
    assert paired(dataset) == [(round(20 * k / 255, 3), str(k)) for k in range(12)]


def test_whole_numbers_of_a_table_that_leave_some_out_are_names(tmp_path):
    dataset = data.load(
        table_of(tmp_path, ["a", "label"], [[k, k] for k in (3, 7, 10)] * 5)
    )
    assert paired(dataset) == [(3.0, "3"), (7.0, "7"), (10.0, "10")]
    assert "3 classes '3', '7', '10': 12 samples" in dataset.description


@pytest.mark.parametrize("header", ["split", "Split", " SUBSET "])
@pytest.mark.parametrize("held_out", ["val", "dev", "Test"])
def test_the_column_of_the_split_is_found_and_said(header, held_out, tmp_path):
    rows = [[k, k % 2, "train" if k % 4 else held_out] for k in range(20)]
    dataset = data.load(table_of(tmp_path, ["a", "label", header], rows))
    assert dataset.held_out.inputs[:, 0].tolist() == [0, 4, 8, 12, 16]
    assert f"split by column {header.strip()!r}, 'train' and" in dataset.description


@pytest.mark.parametrize("other", ["", "1", "holdout"])
def test_a_split_that_is_in_doubt_is_refused(other, tmp_path):
    rows = [[k, k % 2, "train" if k % 4 else other] for k in range(20)]
    with pytest.raises(
        SettingError, match=rf"column 'split' holds .*{other}.*: wanted is one of"
    ):
        data.load(table_of(tmp_path, ["a", "label", "split"], rows))


def test_rows_of_a_third_part_are_left_out_and_counted(tmp_path):
    rows = [[k, k % 2, ("train", "val", "test", "train")[k % 4]] for k in range(20)]
    dataset = data.load(table_of(tmp_path, ["a", "label", "split"], rows))
    assert (len(dataset.train.labels), len(dataset.held_out.labels)) == (10, 5)
    assert "5 rows of test left out" in dataset.description


@pytest.mark.parametrize("missing", ["", "nan", " NaN "])
def test_rows_without_a_label_are_left_out_and_counted(missing, tmp_path):
    rows = [[k, ("cat", "dog ", missing)[k % 3]] for k in range(30)]
    dataset = data.load(table_of(tmp_path, ["a", "label"], rows))
    assert dataset.classes == ("cat", "dog")
    assert "10 rows without a label left out" in dataset.description


@pytest.mark.parametrize("cell", ["", "nan", "inf", "1_000", "NA", "1e39"])
def test_an_input_that_is_no_finite_number_is_refused(cell, tmp_path):
    rows = [[k, cell if k == 3 else k, k % 2] for k in range(10)]
    with pytest.raises(
        SettingError, match=f"'b' holds something else than .*, '{cell}'"
    ):
        data.load(table_of(tmp_path, ["a", "b", "label"], rows))


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (["a", "a", "label"], "several columns called 'a'"),
        (
            ["x", "y", "label"],
            r"\['y', 'label'\], either of which may count: .* label=",
        ),
    ],
)
def test_columns_that_are_in_doubt_are_asked_for(header, message, tmp_path):
    table = table_of(tmp_path, header, [[k, -k, k % 2] for k in range(10)])
    with pytest.raises(SettingError, match=message):
        data.load(table)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_marks_than_commas_are_named(mark, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(f"a{mark}label\n1,5{mark}0\n2,5{mark}1\n")
    with pytest.raises(SettingError, match="with commas between them"):
        data.load(str(path))


def test_a_suffix_may_be_in_capitals(tmp_path):
    rows = [[k, k % 2] for k in range(10)]
    path = Path(table_of(tmp_path, ["a", "label"], rows))
    assert len(data.load(str(path.rename(path.with_suffix(".CSV")))).train.labels) == 8


def test_the_column_of_labels_can_be_said(tmp_path):
    table = table_of(tmp_path, ["x", "y", "label"], [[k, -k, k % 2] for k in range(10)])
    dataset = data.load(table, label="label")
    assert sorted(dataset.train.inputs[:, 1]) == sorted(-dataset.train.inputs[:, 0])
    assert set(dataset.train.labels) == {0, 1}
    with pytest.raises(SettingError, match="has no column 'kind'"):
        data.load(table, label="kind")


def test_measured_targets_of_pictures_are_refused(tmp_path):
    """The samples would have no columns."""
    table = table_of(tmp_path, ["path", "age"], [["a.png", 3], ["b.png", 4]])
    with pytest.raises(SettingError, match="the column 'path' names pictures"):
        data.load(table, target="age")


MEASURED = np.arange(40) * 7 + 3


@pytest.mark.parametrize("kind", ["table", "archive", "arrays"])
def test_a_measured_whole_number_is_no_class_unless_it_is_said(kind, tmp_path):
    inputs = MEASURED[:, None].astype(np.float32)
    if kind == "table":
        name = table_of(tmp_path, ["a", "target"], [[k, k] for k in MEASURED])
    elif kind == "archive":
        name = saved(tmp_path, x=inputs, y=MEASURED)

    def loaded(**options):
        if kind == "arrays":
            return data.as_dataset((inputs, MEASURED), "mine", held_out=0.5, **options)
        return data.load(name, held_out=0.5, **options)

    with pytest.raises(
        SettingError, match="has 40 different labels in 40 samples, 3, 10, 17"
    ):
        loaded()
    with pytest.raises(SettingError, match="40 samples cannot be split by classes"):
        loaded(classes=277)


@pytest.mark.parametrize(
    "labels", [[3, 7, 10] * 5, [0, 255, 255] * 5, [10**9] * 15, (BYTES > 99) * 255]
)
def test_class_numbers_with_gaps_are_asked_for(labels):
    with pytest.raises(
        SettingError, match=r"has the labels .*: number them without gaps"
    ):
        data.as_dataset((BYTES, np.array(labels)), "mine")


def test_the_number_of_classes_can_be_said():
    dataset = data.as_dataset((BYTES, np.array([3, 7, 10] * 5)), "mine", classes=11)
    assert len(dataset.classes) == 11
    assert set(dataset.train.labels) == {3, 7, 10}
    with pytest.raises(
        SettingError, match="the label '10', which is none of the 9 classes 0, 1"
    ):
        data.as_dataset((BYTES, np.array([3, 7, 10] * 5)), "mine", classes=9)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding_is_named(encoding, tmp_path):
    (tmp_path / "t.csv").write_text("a,label\n1,\xe9t\xe9\n", encoding)
    with pytest.raises(
        SettingError, match="cannot be read as a table .*save it as CSV in UTF-8"
    ):
        data.load(str(tmp_path / "t.csv"))


def test_data_that_are_no_file_are_refused_before_they_are_opened(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with pytest.raises(SettingError, match="there is no '.*t.csv'"):
        data.load(str(tmp_path / "t.csv"))


@pytest.mark.parametrize("kind", ["cut", "text", "empty", "npy"])
def test_an_archive_that_is_none_is_named(kind, tmp_path):
    path = tmp_path / "mine.npz"
    saved(tmp_path, x=BYTES, y=LABELS)
    content = {"cut": path.read_bytes()[:-40], "text": b"no archive", "empty": b""}
    if kind == "npy":
        np.save(tmp_path / "a.npy", BYTES)
        content["npy"] = (tmp_path / "a.npy").read_bytes()
    path.write_bytes(content[kind])
    with pytest.raises(
        SettingError, match="cannot be read .*: an archive is written by np.savez"
    ):
        data.load(str(path))


def test_a_small_archive_of_huge_arrays_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr("deliralike.data.user_data._ALWAYS_ALLOWED", 2**19)
    np.savez_compressed(
        tmp_path / "mine.npz", x=np.zeros((2, 2**19), np.uint8), y=[0, 1]
    )
    with pytest.raises(
        DeliralikeError, match="claims to hold 1,04.* it is damaged or hostile"
    ):
        data.load(str(tmp_path / "mine.npz"))


@pytest.mark.parametrize(("samples", "held_out"), [(12, 2), (4, 1)])
def test_classes_of_two_samples_are_split_all_the_same(samples, held_out):
    labels = np.arange(samples) // 2
    train, held = data.stratified_split(
        data.Samples(np.zeros((samples, 1)), labels), 0.2
    )
    assert (len(train.labels), len(held.labels)) == (samples - held_out, held_out)
    assert set(train.labels) == set(labels)


def test_texts_that_are_objects_are_classes():
    """pandas keeps texts so."""
    texts = np.array(["dog", "cat", "ape"] * 5, dtype=object)
    assert data.as_dataset((BYTES, texts), "mine").classes == ("ape", "cat", "dog")


def test_rows_with_names():
    rows = [{"image": BYTES[place], "label": LABELS[place]} for place in range(15)]
    dataset = data.as_dataset((rows, rows[:6]), "mine")
    assert_array_equal(dataset.train.labels, LABELS)
    assert_array_equal(dataset.held_out.inputs[:, 0], dataset.train.inputs[:6, 0])
    with pytest.raises(BatchError, match="the batch has no 'data'"):
        data.as_dataset(([{"a": 1, "b": 2}], rows), "mine")


def test_names_of_a_table_that_are_many_numbers_can_be_said_to_be_classes(tmp_path):
    rows = [[k, k] for k in MEASURED] * 2
    dataset = data.load(table_of(tmp_path, ["a", "class"], rows), classes=40)
    assert dataset.classes == tuple(map(str, MEASURED))
    assert paired(dataset) == [(float(k), str(k)) for k in MEASURED]


def test_a_table_with_a_cell_without_an_end_is_named(tmp_path):
    (tmp_path / "t.csv").write_text('a,label\n"' + "1" * 200_000 + ",0\n")
    with pytest.raises(
        SettingError, match="cannot be read as a table .field larger than"
    ):
        data.load(str(tmp_path / "t.csv"))
