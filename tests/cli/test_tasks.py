"""``deliralike train`` on pictures with masks and on measured targets, beside NumPy and MONAI."""

import csv

import numpy as np
import pytest
import sklearn.metrics
import torch
from monai.losses import DiceCELoss
from PIL import Image
from sklearn.preprocessing import StandardScaler

from deliralike.pictures import open_picture
from deliralike.training.experiment import (
    Experiment,
    load_result,
    load_run,
    predict_held_out,
    sheets,
)
from tests.cli.test_commands import run

MODEL = """
from deliralike import Network


class Pixels(Network):
    def __init__(self, in_channels, num_classes):
        super().__init__()
        self.one = self.nn.Conv2d(in_channels, num_classes, 3, padding=1)

    def forward(self, x):
        return self.one(x)
"""
DRAW = sheets.draw_predictions
DOUBLE = ("--set", "dtype=float64", "--epochs", 1)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Pictures with masks of three values, and a table with two measured columns."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    draw = np.random.default_rng(0)
    for folder in ("images", "masks"):
        (tmp_path / "cells" / folder).mkdir(parents=True)
    for number in range(10):
        mask = np.kron(draw.integers(0, 3, (4, 4)), np.ones((8, 8), int))
        pixels = 80 * mask[..., np.newaxis] + draw.integers(0, 60, (32, 32, 3))
        name = f"{number}.png"
        Image.fromarray(pixels.astype(np.uint8)).save(f"cells/images/{name}")
        stored = np.array([0, 128, 255], np.uint8)[mask]
        Image.fromarray(stored).save(f"cells/masks/{name}")
    rows = ["a,length,b,weight,split"]
    for number, row in enumerate(draw.normal(size=(40, 4))):
        part = "val" if number % 4 == 0 else "train"
        rows.append(",".join([*(f"{value:.4f}" for value in row), part]))
    (tmp_path / "t.csv").write_text("\n".join(rows))
    return tmp_path


def test_masks_are_learned_by_dice_and_cross_entropy_with_dice_by_class(place, backend):
    out = f"runs/{backend.name}"
    options = ("--backend", backend.name, "--out", out, *DOUBLE)
    shown = run("train", "model.py:Pixels", "--data", "cells/", *options).stdout
    assert "segmentation, 3 classes '0', '128', '255': 8 samples to train on" in shown
    result = load_result(out)
    names = [entry["name"] for entry in result.settings.transforms]
    assert names == ["flip", "crop"]
    scores, labels = predict_held_out(*load_run(out))
    monai = DiceCELoss(to_onehot_y=True, softmax=True)
    loss = monai(torch.tensor(scores), torch.tensor(labels[:, None])).item()
    assert result.metrics["loss"] == pytest.approx(loss, rel=1e-5)
    predicted = scores.argmax(1).ravel()
    dice = sklearn.metrics.f1_score(labels.ravel(), predicted, average=None)
    for name, value in zip(("0", "128", "255"), dice, strict=True):
        assert result.metrics[f"dice/{name}"] == pytest.approx(value)
    # the transforms are on: without them the first loss is another
    plain = Experiment(out, transforms=(), backend=backend.name).run("plain")
    assert plain.history.losses[0] != result.history.losses[0]
    assert f"dice/128 {result.metrics['dice/128']:.4g}" in run("predict", out).stdout


def test_columns_of_targets_are_measured_one_by_one(place, backend):
    out = f"runs/{backend.name}"
    options = ("--target", "length,weight", "--backend", backend.name, "--out", out)
    shown = run("train", "mlp", "--data", "t.csv", *options, *DOUBLE).stdout
    assert "regression, 2 targets 'length', 'weight': 30 samples to train on" in shown
    metrics = load_result(out).metrics
    run("predict", out)
    with open(f"{out}/predictions-{backend.name}.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for name in ("length", "weight"):
        wanted = [float(row[name]) for row in rows]
        predicted = [float(row[f"predicted {name}"]) for row in rows]
        r2 = sklearn.metrics.r2_score(wanted, predicted)
        mae = sklearn.metrics.mean_absolute_error(wanted, predicted)
        assert metrics[f"r2/{name}"] == pytest.approx(r2, abs=1e-4)
        assert metrics[f"mae/{name}"] == pytest.approx(mae, abs=1e-4)
    source = np.genfromtxt("t.csv", delimiter=",", skip_header=1)[::4]
    assert np.allclose([float(row["weight"]) for row in rows], source[:, 3])


@pytest.fixture
def prices(place):
    """A table whose columns have very different units, and the rows that are held out."""
    draw = np.random.default_rng(0)
    area, year = draw.normal(90, 30, 90), draw.normal(1980, 20, 90)
    tax = np.full(90, 0.02)
    price = 200_000 + 3_000 * (area - 90) + 500 * (year - 1980)
    lines = ["area,year,tax,price,split"]
    for number, row in enumerate(zip(area, year, tax, price, strict=True)):
        lines.append(",".join([*map(str, row), "val" if number % 3 == 0 else "train"]))
    (place / "prices.csv").write_text("\n".join(lines))
    (place / "new.csv").write_text("\n".join([lines[0], *lines[1::3]]))
    return np.stack([area, year, tax], 1)[np.arange(90) % 3 > 0]


def test_columns_and_targets_of_a_table_are_scaled(prices, backend):
    """In float32, with the usual optimizer, which ends in NaN without."""
    out = f"runs/{backend.name}"
    options = ("--target", "price", "--backend", backend.name, "--out", out)
    run("train", "mlp", "--data", "prices.csv", *options, "--epochs", 20)
    result = load_result(out)
    (entry,) = result.settings.held_out_transforms
    scaler = StandardScaler().fit(prices)
    np.testing.assert_allclose(entry["mean"], scaler.mean_, rtol=1e-6)
    np.testing.assert_allclose(entry["std"], scaler.scale_, rtol=1e-5)
    assert result.metrics["r2"] > 0.9
    outputs, wanted = predict_held_out(*load_run(out))
    mae = sklearn.metrics.mean_absolute_error(wanted, outputs)
    assert result.metrics["mae"] == pytest.approx(mae, rel=1e-4)
    assert wanted.mean() == pytest.approx(200_000, rel=0.1)
    run("predict", out, "new.csv")  # the rows that were held out
    with open(f"{out}/new-{backend.name}.csv", newline="") as file:
        found = [float(row["predicted price"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(found, outputs[:, 0], rtol=1e-4)
    assert f"mae {mae:.4g}" in run("predict", out).stdout


def test_folds_that_are_scaled_by_their_own_samples_are_one_line(prices):
    options = ("--target", "price", "--folds", 2, "--epochs", 1, "--out", "runs/a")
    run("train", "mlp", "--data", "prices.csv", *options)
    first, second = (load_run(f"runs/a/fold-{fold}")[1] for fold in (1, 2))
    assert first.transforms != second.transforms
    table = run("runs", "runs", "--mean").stdout
    assert "fold-*" in table
    assert "transforms" not in table


def test_classes_among_measured_targets_are_told_of_labels(place):
    (place / "t.csv").write_text("a,kind\n1,red\n2,blue\n")
    failed = run("train", "mlp", "--data", "t.csv", "--target", "kind", code=2)
    assert "--set data.label=kind" in failed.stderr


def test_what_is_drawn_is_named_on_the_last_line(place, monkeypatch):
    monkeypatch.setattr(sheets, "draw_predictions", DRAW)
    shown = run("train", "model.py:Pixels", "--data", "cells/", *DOUBLE, "--out", "run")
    names = ("curves.png", "predictions.png", "confusion.png")
    for name in names:
        assert open_picture(place / "run" / name).width > 300
    listed = ", ".join(f"run/{name}" for name in names)
    expected = f"see {listed}; try: deliralike predict run"
    assert shown.stdout.splitlines()[-1] == expected


def test_a_confusion_matrix_is_a_table(place):
    settings = ("--set", "metrics=('confusion', 'accuracy')", "--epochs", 2)
    shown = run("train", "mlp", *settings, "--out", "run").stdout
    scores, labels = predict_held_out(*load_run("run"))
    matrix = sklearn.metrics.confusion_matrix(labels, scores.argmax(1))
    for text in (shown, run("predict", "run").stdout):
        lines = text.splitlines()
        head = next(n for n, line in enumerate(lines) if "true \\ predicted" in line)
        assert lines[head].split()[3:] == list("0123456789")
        rows = [line.split() for line in lines[head + 2 : head + 12]]
        assert [row[0] for row in rows] == list("0123456789")
        np.testing.assert_array_equal(np.array([row[1:] for row in rows], int), matrix)
        assert "confusion/" not in text
    assert load_result("run").metrics["confusion/3/3"] == matrix[3, 3]


def test_wrong_columns_of_targets_are_refused(place):
    failed = run("train", "mlp", "--data", "t.csv", "--target", "length,wait", code=2)
    assert "'t.csv' has no column 'wait', but ['a', 'length'" in failed.stderr


def test_a_task_is_a_setting_of_a_folder(place):
    options = (
        "--set",
        "data.task=classification",
        "--set",
        "data.size=8",
        "--epochs",
        1,
    )
    shown = run("train", "mlp", "--data", "cells/", *options, "--out", "run").stdout
    assert "classification, 2 classes: 16 samples to train on" in shown


def test_an_error_in_a_users_network_shows_the_users_lines(place):
    broken = MODEL.replace("self.one(x)", "self.one(x).no_such_thing")
    (place / "broken.py").write_text(broken)
    arguments = ("train", "broken.py:Pixels", "--data", "cells/", "--out", "run")
    shown = run(*arguments, code=1).stderr
    files = [line for line in shown.splitlines() if line.startswith("  File")]
    assert len(files) == 1
    assert "broken.py" in files[0]
    assert "no attribute 'no_such_thing'" in shown
    assert not (place / "run").exists()
    assert isinstance(run("--debug", *arguments, code=1).exception, AttributeError)
