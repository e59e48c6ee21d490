"""``deliralike predict``: held-out data and new inputs of every form and task, beside NumPy."""

import csv
import json

import nibabel
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from deliralike import data
from deliralike.errors import SettingError
from deliralike.pictures import open_picture
from deliralike.training import evaluate
from deliralike.training.experiment import Experiment, load_result, predict_files
from tests.cli.test_commands import run

MODELS = """
from deliralike import Network


class Pixels(Network):
    def __init__(self, in_channels, num_classes, dims=2):
        super().__init__()
        nn = self.nn
        self.one = (nn.Conv2d if dims == 2 else nn.Conv3d)(in_channels, num_classes, 1)

    def forward(self, x):
        return self.one(x)


class Row(Network):
    def __init__(self, in_features, num_classes):
        super().__init__()
        self.one = self.nn.Linear(in_features, num_classes)

    def forward(self, x):
        return self.one(self.nn.reshape(x, (x.shape[0], -1)))


class Words(Network):
    def __init__(self, num_classes, words=50):
        super().__init__()
        self.one = self.nn.Embedding(words, num_classes)

    def forward(self, x):
        return self.nn.mean(self.one(x), dim=1)


class Mean(Network):
    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.one = self.nn.Linear(in_channels, num_classes)

    def forward(self, x):
        return self.one(self.nn.mean(x, dim=(2, 3)))
"""
DATA = """
import numpy as np

from deliralike import data


def made():
    x = np.random.default_rng(3).random((20, 3, 5, 7)).astype(np.float32)
    return x, (x[:, 0].mean((1, 2)) > 0.5).astype(np.int64)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with classes, and data of every form."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    (tmp_path / "samples.py").write_text(DATA)
    draw = np.random.default_rng(0)
    x = draw.random((10, 3, 7, 9)).astype(np.float32)
    np.savez("masks.npz", x=x, y=(x[:, 0] > 0.5).astype(np.int64) + (x[:, 1] > 0.8))
    volumes = draw.random((5, 1, 4, 5, 6)).astype(np.float32)
    np.savez("volumes.npz", x=volumes, y=(volumes[:, 0] > 0.5).astype(np.int64))
    rows = ["path,label"]
    for number in range(10):
        name = ("cat", "dog")[number % 2]
        path = tmp_path / "photos" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (11 + number, 13, 3)
        pixels = draw.integers(0, 90, shape) + 150 * (number % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
        rows.append(f"photos/{name}/{number}.png,{name}")
    (tmp_path / "pictures.csv").write_text("\n".join(rows))
    numbers = [f"{a:.3f},{b:.3f},{int(a > b)}" for a, b in draw.random((20, 2))]
    (tmp_path / "numbers.csv").write_text("\n".join(["a,b,label", *numbers]))
    return tmp_path


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write_volume(path, array, turn=1.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    affine = np.array([[0, turn, 0, 4], [-1.5, 0, 0, 5], [0, 0, 2.0, 6], [0, 0, 0, 1]])
    nibabel.save(nibabel.Nifti1Image(array, affine), path)


@pytest.fixture
def forms(place):
    """Tables of measured targets, sequences, texts, and folders with masks, beside those of place.

    Masks of pictures lie in a folder for each patient; volumes are in an orientation of their own.
    """
    draw = np.random.default_rng(1)
    rows = [",".join(f"{value:.3f}" for value in row) for row in draw.random((20, 4))]
    (place / "houses.csv").write_text("\n".join(["a,price,b,rent", *rows]))
    np.savez("sequences.npz", x=draw.random((20, 2, 6)), y=np.arange(20) % 2)
    np.savez("texts.npz", x=draw.integers(0, 50, (20, 7)), y=np.arange(20) % 2)
    for number in range(6):
        for folder in ("images", "masks"):
            path = place / "cells" / folder / f"p{number // 2}" / f"{number % 2}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            size = (32, 32, 3)[: 3 if folder == "images" else 2]
            high = 256 if folder == "images" else 2
            pixels = draw.integers(0, high, size).astype(np.uint8)
            Image.fromarray(pixels).save(path)
    for number in range(4):
        mask = np.kron(draw.integers(0, 2, (4, 3, 5)), np.ones((5, 5, 5), int))
        volume = (mask + 0.2 * draw.random(mask.shape)).astype(np.float32)
        write_volume(place / "scans" / "images" / f"{number}.nii.gz", volume)
        write_volume(place / "scans" / "masks" / f"{number}.nii.gz", mask.astype("u1"))
        for channel in (volume, 1 - draw.random(mask.shape).astype(np.float32)):
            name = f"c{number}_000{int(channel is not volume)}.nii.gz"
            write_volume(place / "raw" / "imagesTr" / name, channel)
        write_volume(
            place / "raw" / "labelsTr" / f"c{number}.nii.gz", mask.astype("u1")
        )
    labels = {"labels": {"background": 0, "liver": 1}}
    (place / "raw" / "dataset.json").write_text(json.dumps(labels))
    return place


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def linear(inputs, weights):
    return inputs @ weights["one.weight"].T + weights["one.bias"]


def check_classes(rows, scores, classes):
    for row, one in zip(rows, scores, strict=True):
        found = [float(row[f"probability {name}"]) for name in classes]
        np.testing.assert_allclose(found, softmax(one), rtol=1e-4)
        assert row["predicted"] == classes[np.argmax(one)]


def scaled_inputs(rows):
    """Columns by the run's numbers, which tests/cli/test_tasks.py holds beside scikit-learn's."""
    (scaling,) = load_result("run").settings.held_out_transforms
    inputs = np.array([[float(row["a"]), float(row["b"])] for row in rows])
    return (inputs - scaling["mean"]) / scaling["std"], scaling


def check_numbers(out, weights):
    rows = read_csv(out)
    check_classes(rows, linear(scaled_inputs(rows)[0], weights), ("0", "1"))
    assert [row["who"] for row in rows] == ["Ann", "Bob", "Cid"]


def check_measured(out, weights):
    rows = read_csv(out)
    inputs, scaling = scaled_inputs(rows)
    found = [[row["predicted price"], row["predicted rent"]] for row in rows]
    wanted = linear(inputs, weights) * scaling["target_std"] + scaling["target_mean"]
    np.testing.assert_allclose(np.array(found, float), wanted, rtol=1e-4, atol=1e-6)


def check_sequences(out, weights):
    inputs = np.load("new_sequences.npz")["x"].reshape(3, -1)
    check_classes(read_csv(out), linear(inputs, weights), ("0", "1"))


def check_texts(out, weights):
    words = np.load("new_texts.npz")["x"]
    check_classes(read_csv(out), weights["one.weight"][words].mean(1), ("0", "1"))


def check_listed_pictures(out, weights):
    rows = read_csv(out)
    assert [row["seen"] for row in rows] == ["1", "2", "3"]
    scores = [scores_by_hand(row["path"], (8, 8), weights) for row in rows]
    check_classes(rows, [one.mean((0, 1)) for one in scores], ("cat", "dog"))


def check_patients(out, weights):
    for patient in range(3):
        file = f"cells/images/p{patient}/1.png"
        wanted = scores_by_hand(file, (32, 32), weights).argmax(2)
        found = np.asarray(open_picture(out / f"p{patient}" / "1-mask.png"))
        np.testing.assert_array_equal(found, wanted)


def check_volumes(out, weights, files=("scans/images/{}.nii.gz",), name="{}"):
    for number in range(4):
        images = [nibabel.load(file.format(number)) for file in files]
        channels = [np.asarray(image.dataobj, np.float64) for image in images]
        scaled = np.stack([(each - each.mean()) / each.std() for each in channels], -1)
        weight = weights["one.weight"].reshape(2, -1)
        margin = (scaled @ weight.T + weights["one.bias"]) @ [-1, 1]
        found = nibabel.load(out / f"{name.format(number)}-mask.nii.gz")
        np.testing.assert_allclose(found.affine, images[0].affine)
        certain = np.abs(margin) > 1e-4
        mask = np.asarray(found.dataobj)
        np.testing.assert_array_equal(mask[certain], (margin > 0)[certain])
        assert 0.05 < mask.mean() < 0.95
        assert open_picture(out / f"{name.format(number)}-overlay.png").size == (15, 20)


def check_channels(out, weights):
    files = ("raw/imagesTr/c{}_0000.nii.gz", "raw/imagesTr/c{}_0001.nii.gz")
    check_volumes(out, weights, files, "c{}")


WINDOWS = "transforms=({'name': 'crop', 'size': (16, 8, 16)},)"


@pytest.mark.parametrize(
    ("train_on", "new", "check"),
    [
        (("Row", "numbers.csv"), "new.csv", check_numbers),
        (("Row", "houses.csv", "--target", "price,rent"), "new.csv", check_measured),
        (("Row", "sequences.npz"), "new_sequences.npz", check_sequences),
        (("Words", "texts.npz"), "new_texts.npz", check_texts),
        (
            ("Mean", "photos/", "--set", "data.size=8"),
            "new_pictures.csv",
            check_listed_pictures,
        ),
        (("Pixels", "cells/"), "cells/images", check_patients),
        (
            ("Pixels", "scans/", "--set", "dims=3", "--set", WINDOWS),
            "scans/images",
            check_volumes,
        ),
        (("Pixels", "raw/", "--set", "dims=3"), "raw/imagesTr", check_channels),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_new_inputs_of_every_form_are_predicted_on_every_backend(
    forms, train_on, new, check
):
    draw = np.random.default_rng(2)
    (forms / "new.csv").write_text("who,b,a\nAnn,0.1,0.9\nBob,0.8,0.3\nCid,-1,4\n")
    paths = [
        f"photos/{name}.png,{number}" for name, number in (("dog/1", 1), ("cat/2", 2))
    ]
    (forms / "new_pictures.csv").write_text(
        "\n".join(["path,seen", *paths, paths[0][:-1] + "3"])
    )
    np.savez("new_sequences.npz", x=draw.random((3, 2, 6)))
    np.savez("new_texts.npz", x=draw.integers(0, 50, (3, 7)))
    network, samples, *options = train_on
    train(f"models.py:{network}", samples, *options)
    run("predict", "run")
    weights = {}
    for name, each in load_file("run/weights.safetensors").items():
        weights[name] = draw.normal(size=each.shape)
    if "one.bias" in weights:
        weights["one.bias"] = np.array([0.1, 0.0])
    save_file(
        {name: each.astype(np.float32) for name, each in weights.items()},
        "run/weights.safetensors",
    )
    for backend in ("torch", "chainer", "jax"):
        out = forms / backend
        run("predict", "run", new, "--backend", backend, "--out", out)
        check(out, weights)


def train(network, samples, *options):
    run("train", network, "--data", samples, "--epochs", 1, "--out", "run", *options)


@pytest.mark.parametrize(
    ("network", "samples", "options"),
    [
        ("mlp", "digits", ()),
        ("models.py:Mean", "samples.py:made", ()),
        ("models.py:Mean", "photos/", ("--set", "data.size=8")),
        ("models.py:Mean", "pictures.csv", ("--set", "data.size=8")),
        ("mlp", "numbers.csv", ()),
        ("models.py:Pixels", "masks.npz", ()),
        ("models.py:Pixels", "volumes.npz", ("--set", "dims=3")),
    ],
)
def test_what_can_be_trained_can_be_predicted(place, network, samples, options):
    train(network, samples, *options)
    shown = run("predict", "run").stdout
    metrics = load_result("run").metrics
    if "accuracy" in metrics:
        assert f"accuracy {metrics['accuracy']:.2%}, " in shown
        with (place / "run" / "predictions-torch.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert (
            np.mean([row["label"] == row["predicted"] for row in rows])
            == metrics["accuracy"]
        )
    else:
        assert f"dice/mean {metrics['dice/mean']:.4g}" in shown
        predicted = np.load(place / "run" / "predictions-torch.npz")["predicted"]
        assert (
            predicted.ndim == np.load(samples)["y"].ndim and predicted.dtype.kind == "i"
        )


def test_held_out_samples_are_transformed_as_in_training(place):
    scaled = [{"name": "normalise", "mean": 4.0, "std": 0.5}]
    settings = {"network": "mlp", "epochs": 1, "transforms": scaled}
    result = Experiment(settings | {"held_out_transforms": scaled}).run("run")
    raw = evaluate(result.network, data.load("digits").held_out)
    assert result.metrics["accuracy"] != raw["accuracy"]
    shown = run("predict", "run").stdout
    assert f"accuracy {result.metrics['accuracy']:.2%}, " in shown
    assert "of 359 held-out samples" in shown


def scores_by_hand(file, size, weights):
    """Return the scores of each pixel: the picture scaled by Pillow, the rest by NumPy."""
    picture = open_picture(file).convert("RGB").resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(picture, np.float64) / 255
    return pixels @ weights["one.weight"].reshape(-1, 3).T + weights["one.bias"]


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_new_pictures_are_scaled_classified_and_named(place, backend):
    train("models.py:Mean", "photos/", "--set", "data.size=8", "--lr", 0.5)
    shown = run(
        "predict", "run", "photos/dog", "photos/cat/2.png", "--backend", backend
    ).stdout
    weights = load_file("run/weights.safetensors")
    with (place / "run" / f"new-{backend}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    for row in rows:
        scores = scores_by_hand(row["file"], (8, 8), weights).mean((0, 1))
        wanted = np.exp(scores) / np.exp(scores).sum()
        found = [float(row["probability cat"]), float(row["probability dog"])]
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
        assert row["predicted"] == ("cat", "dog")[wanted.argmax()]
        assert f"{row['file']}" in shown and f"{wanted.max():.1%}" in shown


def test_masks_of_new_pictures_have_the_pictures_size(place):
    train("models.py:Pixels", "masks.npz")
    weights = load_file("run/weights.safetensors")
    weights["one.weight"][:] = np.array([[0, 0, 0], [2, 0, 0], [0, 2, 0]])[
        ..., None, None
    ]
    weights["one.bias"][:] = 1.5, 0, 0
    save_file(weights, "run/weights.safetensors")
    run("predict", "run", "photos/dog/1.png", "--out", "masks")
    picture = open_picture("photos/dog/1.png")
    mask, overlaid = (
        open_picture(f"masks/1-{name}.png") for name in ("mask", "overlay")
    )
    assert mask.size == overlaid.size == picture.size == (13, 12)
    scores = scores_by_hand("photos/dog/1.png", (9, 7), weights)
    by_hand = Image.fromarray(scores.argmax(2).astype(np.uint8))
    by_hand = np.asarray(by_hand.resize(picture.size, Image.Resampling.NEAREST))
    np.testing.assert_array_equal(np.asarray(mask), by_hand)
    assert len(np.unique(by_hand)) == 3
    overlaid = np.asarray(overlaid)
    kept = by_hand == 0
    np.testing.assert_array_equal(overlaid[kept], np.asarray(picture)[kept])
    assert (overlaid[~kept] != np.asarray(picture)[~kept]).any(axis=-1).all()
    with (place / "masks" / "shares.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert float(row["share 1"]) == pytest.approx(np.mean(by_hand == 1), rel=1e-5)


def test_what_is_no_picture_is_refused_before_anything_is_written(place):
    train("models.py:Pixels", "masks.npz")
    before = sorted((place / "run").iterdir())
    assert (
        "no picture or folder 'nothing.png'"
        in run("predict", "run", "nothing.png", code=2).stderr
    )
    assert (
        "'models.py' is no picture (.bmp"
        in run("predict", "run", "models.py", code=2).stderr
    )
    assert (
        "leave it out"
        in run("predict", "run", "photos", "--data", "x.npz", code=2).stderr
    )
    (place / "other").mkdir()
    (place / "photos/dog/1.png").rename("other/0.png")
    twins = run("predict", "run", "photos/cat/0.png", "other", code=2).stderr
    assert "would have one name" in twins
    assert sorted((place / "run").iterdir()) == before


def test_pictures_are_no_samples_of_a_run_on_volumes(place):
    train("models.py:Pixels", "volumes.npz", "--set", "dims=3")
    with pytest.raises(
        SettingError, match=r"\(1, 4, 5, 6\), which a picture file cannot have"
    ):
        next(predict_files("run", ["photos"]))


def test_volumes_in_another_spacing_come_back_to_the_voxels_of_their_files(forms):
    train("models.py:Pixels", "scans/", "--set", "dims=3", "--set", "data.spacing=1.25")
    weights = load_file("run/weights.safetensors")
    weights["one.weight"][:] = np.array([-1, 1]).reshape(2, 1, 1, 1, 1)
    weights["one.bias"][:] = 0
    save_file(weights, "run/weights.safetensors")
    run("predict", "run", "scans/images/2.nii.gz", "--out", "masks")
    image = nibabel.load("scans/images/2.nii.gz")
    mask = nibabel.load("masks/2-mask.nii.gz")
    np.testing.assert_allclose(mask.affine, image.affine)
    bright = np.asarray(image.dataobj) > 0.6  # all blocks of 5 x 5 x 5 voxels
    agreement = np.mean(np.asarray(mask.dataobj) == bright)
    assert agreement > 0.95


def test_masks_may_lie_beside_their_pictures_and_are_no_new_ones(forms):
    train("models.py:Pixels", "cells/")
    for _ in range(2):
        run("predict", "run", "cells/images", "--out", "cells/images")
    assert len(read_csv("cells/images/shares.csv")) == 6
    assert len(list((forms / "cells" / "images").rglob("*.png"))) == 18
    run("predict", "run", "cells/images/p0/0-overlay.png", "--out", "again")
    assert read_csv("again/shares.csv")[0]["file"].endswith("0-overlay.png")


def test_inputs_that_do_not_fit_say_what_was_wanted(forms):
    train("models.py:Row", "numbers.csv")
    lacking = run("predict", "run", "houses.csv", "photos", code=2).stderr
    assert (
        "'houses.csv' is predicted alone: give 'photos' to a call of its own" in lacking
    )
    (forms / "other.csv").write_text("a,c\n1,2\n")
    lacking = run("predict", "run", "other.csv", code=2).stderr
    assert "has the columns ['a', 'c']: wanted are" in lacking
    assert "['a', 'b']" in lacking
    (forms / "empty.csv").write_text("a,b\n")
    assert "no row below" in run("predict", "run", "empty.csv", code=2).stderr
    other = run("predict", "run", "sequences.npz", code=2).stderr
    assert "holds samples of shape (2, 6)" in other
    assert "there is no file" in run("predict", "run", "nothing.csv", code=2).stderr
    table = (forms / "numbers.csv").read_text()
    same = run("predict", "run", "numbers.csv", "--out", "./numbers.csv", code=2).stderr
    assert "is among the inputs" in same
    assert (forms / "numbers.csv").read_text() == table
    flat = run("predict", "run", "--data", "photos/cat", code=2).stderr
    assert "without --data: deliralike predict run photos/cat" in flat


def test_volumes_with_other_channels_are_named(forms):
    train("models.py:Pixels", "raw/", "--set", "dims=3")
    shown = run("predict", "run", "raw/imagesTr/c0_0000.nii.gz", code=2).stderr
    assert "c0_0000.nii.gz have 1 channels, and the samples of the run have 2" in shown


def test_other_data_are_scaled_to_the_size_of_the_runs_samples(place):
    train("models.py:Mean", "photos/", "--set", "data.size=8", "--lr", 0.5)
    files = ["photos/dog/1.png", "photos/cat/2.png"]
    rows = [f"{file},{file[7:10]},val" for file in files]
    rows += [f"{file},{file[7:10]},train" for file in files]
    (place / "others.csv").write_text("\n".join(["path,label,split", *rows]))
    run("predict", "run", "--data", "others.csv", "--out", "found.csv")
    weights = load_file("run/weights.safetensors")
    scores = [scores_by_hand(file, (8, 8), weights).mean((0, 1)) for file in files]
    rows = read_csv("found.csv")
    assert [row["label"] for row in rows] == ["dog", "cat"]
    check_classes(rows, scores, ("cat", "dog"))
