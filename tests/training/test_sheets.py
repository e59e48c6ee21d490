"""The contact sheet and the confusion matrix, beside NumPy and scikit-learn."""

import numpy as np
import pytest
import sklearn.metrics
from matplotlib.figure import Figure

from deliralike import Network, data
from deliralike.training.experiment import sheets
from tests.training.small_runs import network

CLASSES = ("ape", "bee", "cat")
DRAW = np.random.default_rng(0)


class Scores(Network):
    """Channels of the input are the scores: of the picture, or of each pixel."""

    def forward(self, x):
        return x[:, :, 0, 0] if x.shape[-1] == 2 else x


@pytest.fixture
def figures(monkeypatch):
    """The figures that are saved, by the name of their file."""
    found = {}
    monkeypatch.setattr(
        Figure, "savefig", lambda figure, path: found.update({path.name: figure})
    )
    return found


def draw(backend, inputs, labels, task, tmp_path):
    samples = data.Samples(inputs.astype(np.float32), labels)
    dataset = data.Dataset("own", samples, samples, CLASSES, task)
    loader = data.Loader(samples, 8, shuffle=False)
    sheets.draw_predictions(network(backend.name, Scores), loader, dataset, tmp_path)


def counts_in(figure):
    """The numbers written into a confusion matrix."""
    texts = [text.get_text().replace(",", "") for text in figure.axes[0].texts]
    return np.array(texts, int).reshape(len(CLASSES), -1)


def test_wrong_pictures_come_first_and_the_matrix_is_scikit_learns(
    backend, figures, tmp_path
):
    inputs = DRAW.random((50, 3, 2, 2))
    scores = inputs[:, :, 0, 0]
    predicted = scores.argmax(1)
    labels = predicted.copy()
    labels[::2] = (predicted[::2] + DRAW.integers(1, 3, 25)) % 3  # half of them wrong
    draw(backend, inputs, labels, "classification", tmp_path)
    expected = sklearn.metrics.confusion_matrix(labels, predicted)
    assert np.array_equal(counts_in(figures["confusion.png"]), expected)
    sheet = figures["predictions.png"]
    wrong = np.flatnonzero(predicted != labels)
    title = f"{len(wrong)} of 50 held-out pictures wrong"
    assert sheet.get_suptitle() == title
    exponentials = np.exp(scores)
    certainty = (exponentials / exponentials.sum(1, keepdims=True))[range(50), labels]
    order = wrong[np.argsort(certainty[wrong])]
    titles = [axis.get_title() for axis in sheet.axes]
    assert titles[:12] == [
        f"predicted {CLASSES[predicted[i]]}\ntrue {CLASSES[labels[i]]}"
        for i in order[:12]
    ]
    shown = sheet.axes[0].images[0].get_array()
    assert np.allclose(shown, inputs[order[0]].transpose(1, 2, 0), atol=1e-6)
    assert len(titles) == 24
    assert all("predicted" not in title for title in titles[12:])


def test_masks_go_from_the_worst_dice_to_the_best(backend, figures, tmp_path):
    inputs = DRAW.random((9, 3, 4, 5))
    labels = inputs.argmax(1)
    for number in range(9):  # ever more of the labels are others
        flat = labels[number].reshape(-1)
        flat[: 2 * number] = DRAW.integers(0, 3, 2 * number)
    draw(backend, inputs, labels, "segmentation", tmp_path)
    predicted = inputs.argmax(1)
    expected = sklearn.metrics.confusion_matrix(labels.ravel(), predicted.ravel())
    assert np.array_equal(counts_in(figures["confusion.png"]), expected)
    dice = [
        sklearn.metrics.f1_score(a.ravel(), b.ravel(), average="macro")
        for a, b in zip(labels, predicted, strict=True)
    ]
    titles = [axis.get_title() for axis in figures["predictions.png"].axes][2::3]
    worst_to_best = np.sort(dice)[[0, 2, 4, 6, 8]]
    assert titles == [f"predicted, mean Dice {value:.2f}" for value in worst_to_best]
    below, true, _ = (
        axis.images[0].get_array() for axis in figures["predictions.png"].axes[:3]
    )
    covered = (below != true).any(-1)
    assert np.array_equal(covered, labels[np.argmin(dice)] > 0)


def test_a_volume_is_shown_by_the_slice_with_most_of_a_class(
    backend, figures, tmp_path
):
    inputs = DRAW.normal(size=(2, 3, 4, 5, 6))
    labels = np.zeros((2, 4, 5, 6), int)
    labels[:, 1:3, 2:, 4] = 1
    labels[:, 0, 0, 1] = 2
    draw(backend, inputs, labels, "segmentation", tmp_path)
    below, true, _ = (
        axis.images[0].get_array() for axis in figures["predictions.png"].axes[:3]
    )
    covered = (below != true).any(-1)
    assert covered.shape == (5, 4)
    assert np.array_equal(covered[::-1].T, labels[0, :, :, 4] > 0)


@pytest.mark.parametrize("shape", [(4, 3), (4, 7, 2, 2)], ids=["rows", "channels"])
def test_what_is_no_picture_is_not_drawn(shape, figures, tmp_path, backend):
    draw(backend, DRAW.random(shape), np.zeros(4, int), "classification", tmp_path)
    assert not figures
