"""``deliralike predict``: held-out data of every form and task, and new pictures, beside NumPy."""

import csv

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from deliralike import data
from deliralike.errors import SettingError
from deliralike.pictures import open_picture
from deliralike.training import evaluate
from deliralike.training.experiment import Experiment, load_result, predict_pictures
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
    with (place / "run" / f"pictures-{backend}.csv").open(newline="") as file:
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
        next(predict_pictures("run", ["photos"]))
