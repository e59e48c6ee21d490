"""Curves and images: what is drawn is read back from the figure; files are whole and nothing global
changes."""

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from deliralike import Network, data
from deliralike.errors import BatchError, SettingError
from deliralike.optim import rules
from deliralike.training import Curves, Epoch, History, Images, Step, Trainer
from deliralike.training.callbacks import pictures
from deliralike.training.curves import draw_curves, figure_of
from tests.training.small_runs import Do, fail, samples, trainer


class Pixels(Network):
    """Scores of three classes for each pixel or voxel of a picture with one channel."""

    def __init__(self, spatial=2):
        super().__init__()
        self.conv = (self.nn.Conv2d if spatial == 2 else self.nn.Conv3d)(1, 3, 1)

    def forward(self, x):
        return self.conv(x)


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, as they are saved."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(
        Figure,
        "savefig",
        lambda figure, path: (figures.append(figure), save(figure, path))[1],
    )
    return figures


def titles(figure):
    return [axis.get_title(loc="left") or axis.get_title() for axis in figure.axes]


def history(**metrics):
    steps = [
        Step(i, i // 2, 1.0 / (i + 1), 0.1, 4, {}, 0.1 / (i + 1)) for i in range(4)
    ]
    return History(
        steps,
        [
            Epoch(e, 2 * e + 2, {name: values[e] for name, values in metrics.items()})
            for e in (0, 1)
        ],
    )


# Curves
# -----------------------------------------------------------------------------


def test_every_metric_and_the_learning_rate_have_a_panel(tmp_path, drawn):
    draw_curves(
        {"run": history(accuracy=[0.5, 0.75], loss=[1.0, 0.5])}, tmp_path / "c.png"
    )
    assert titles(drawn[0]) == [
        "training loss, every step",
        "validation: accuracy, every epoch",
        "validation: loss, every epoch",
        "learning rate, every step",
    ]
    loss, accuracy, _, rate = drawn[0].axes
    assert loss.lines[0].get_ydata().tolist() == [1.0, 0.5, 1 / 3, 0.25]
    assert accuracy.lines[0].get_xydata().tolist() == [[1.0, 0.5], [3.0, 0.75]]
    assert rate.lines[0].get_ydata().tolist() == [0.1, 0.05, 0.1 / 3, 0.025]


def test_metrics_of_a_family_share_a_panel_and_intervals_are_bands(tmp_path, drawn):
    metrics = {
        "dice/1": [0.1, 0.2],
        "dice/2": [0.3, 0.4],
        "dice/2/low": [0.2, 0.3],
        "dice/2/high": [0.4, 0.6],
    }
    draw_curves({"run": history(**metrics)}, tmp_path / "c.svg")
    assert titles(drawn[0])[1] == "validation: dice, every epoch"
    panel = drawn[0].axes[1]
    assert [line.get_label() for line in panel.lines] == ["1", "2"]
    band = panel.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (0.2, 0.6)
    assert (tmp_path / "c.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize("differences", [True, False])
def test_differences_to_the_first_run_are_drawn_unless_they_are_left_out(differences):
    runs = {name: history(accuracy=[0.5, 0.75]) for name in ("first", "second")}
    figure = figure_of(runs, with_differences=differences)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert (
        any(title.startswith("relative difference") for title in titles) is differences
    )


def test_runs_lie_over_one_another_with_their_differences(tmp_path, drawn):
    first, second = history(accuracy=[0.5, 0.75]), history(accuracy=[0.25, 0.5])
    draw_curves(
        {"torch": first, "jax": second}, tmp_path / "c.png", metrics=["accuracy"]
    )
    assert titles(drawn[0])[-1].startswith("relative difference of the loss to torch")
    assert [line.get_label() for line in drawn[0].axes[1].lines] == ["torch", "jax"]


def test_nothing_of_matplotlib_that_others_share_changes(tmp_path):
    before, interface = (
        dict(matplotlib.rcParams),
        matplotlib.get_backend(auto_select=False),
    )
    draw_curves({"run": history(accuracy=[0.5, 0.75])}, tmp_path / "c.png")
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.get_backend(auto_select=False) == interface


@pytest.mark.parametrize(
    "losses", [[1.0, float("nan")], [float("inf")], [-1.0, 2.0], [0.0], []]
)
def test_losses_of_any_kind_can_be_drawn(tmp_path, losses):
    run = History([Step(i, 0, loss, 0.1, 1) for i, loss in enumerate(losses)])
    draw_curves({"run": run}, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        assert picture.size[0] > 500


def test_a_long_run_has_a_moving_median(tmp_path, drawn):
    losses = np.random.default_rng(0).uniform(1, 2, 200)
    draw_curves(
        {"run": History([Step(i, 0, loss, 0.1, 1) for i, loss in enumerate(losses)])},
        tmp_path / "c.png",
    )
    each, median = drawn[0].axes[0].lines
    assert each.get_ydata().tolist() == losses.tolist()
    assert median.get_xydata()[0].tolist() == [3, np.median(losses[:4])]


def test_a_run_draws_after_epochs_and_when_it_fails(tmp_path, drawn):
    curves = Curves(tmp_path / "new" / "c.png", every_epochs=2)
    stop = Do("on_epoch", lambda run, epoch: fail() if epoch.epoch == 4 else None)
    with pytest.raises(RuntimeError):
        trainer("torch", [stop, curves]).fit(samples(), samples(3), epochs=9)
    assert [len(figure.axes[0].lines[0].get_ydata()) for figure in drawn] == [2, 4, 5]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["c.png"]


# Images
# -----------------------------------------------------------------------------


def drawn_of(inputs, targets, outputs):
    figure = pictures.new_figure()
    pictures.draw(figure, np.asarray(inputs), np.asarray(targets), np.asarray(outputs))
    figure.draw_without_rendering()
    return figure


def test_labels_stand_above_images_and_wrong_ones_say_what_is_right():
    figure = drawn_of(
        np.zeros((3, 1, 7, 5)), [1, 0, 2], [[0, 1, 0], [0, 0, 1], [0, 0, 1]]
    )
    assert titles(figure) == ["1", "2 (is 0)", "2"]


def test_regions_are_outlined_along_the_edges_of_their_pixels():
    targets = np.zeros((1, 7, 5), int)
    targets[0, 2:4, 1:4] = 1  # two rows, three columns: 10 edges
    scores = np.stack([1 - targets, targets], 1)
    figure = drawn_of(np.zeros((1, 1, 7, 5)), targets, scores)
    for axis in figure.axes[1:]:
        edges = np.concatenate([lines.get_segments() for lines in axis.collections])
        assert len(edges) == 10
        assert (edges.min((0, 1)).tolist(), edges.max((0, 1)).tolist()) == (
            [0.5, 1.5],
            [3.5, 3.5],
        )


def test_one_channel_of_scores_is_a_region_above_zero():
    scores = np.full((1, 1, 7, 5), -1.0)
    scores[0, 0, 6, 4] = 0.5
    figure = drawn_of(np.zeros((1, 1, 7, 5)), np.zeros((1, 1, 7, 5), int), scores)
    assert sum(len(lines.get_segments()) for lines in figure.axes[2].collections) == 4


def test_volumes_show_their_middle_slices():
    volume = np.arange(5.0)[None, None, :, None, None] * np.ones((1, 1, 5, 7, 3))
    targets = np.zeros((1, 5, 7, 3), int)
    targets[0, 2, 0, 0] = 1
    figure = drawn_of(volume, targets, np.stack([1 - targets, targets], 1))
    assert (np.asarray(figure.axes[0].images[0].get_array()) == 2.0).all()
    assert sum(len(lines.get_segments()) for lines in figure.axes[1].collections) == 4


def test_what_is_no_image_is_an_error():
    with pytest.raises(
        BatchError,
        match=r"not of shape \(4,\): give Images a draw function of your own",
    ):
        drawn_of(np.zeros((3, 4)), [0, 1, 0], np.zeros((3, 2)))


@pytest.mark.parametrize("spatial", [2, 3])
def test_a_run_leaves_a_picture_every_few_epochs_and_the_network_as_it_is(
    backend, tmp_path, spatial
):
    shape = (4, 5, 7, 3)[: spatial + 1]
    generator = np.random.default_rng(0)
    batch = data.Samples(
        generator.normal(size=(4, 1, *shape[1:])), generator.integers(0, 3, shape)
    )
    ends = []
    for callbacks in ([], [Images(tmp_path / "images", batch, 2)]):
        net = Pixels.on(backend, dtype="float64")(spatial)
        Trainer(net, rules.rule("sgd", lr=0.1), callbacks=callbacks).fit(
            batch, epochs=4
        )
        ends.append(net.neutral_state())
    assert sorted(path.name for path in (tmp_path / "images").iterdir()) == [
        "epoch-0002.png",
        "epoch-0004.png",
    ]
    assert all((ends[0][name] == value).all() for name, value in ends[1].items())


def test_a_drawing_of_ones_own_gets_what_the_network_gives(tmp_path):
    seen = []
    images = Images(
        tmp_path, samples(), draw=lambda figure, *arrays: seen.append(arrays)
    )
    each = trainer("torch", [images])
    each.fit(samples())
    inputs, targets, outputs = seen[0]
    assert (inputs == samples().inputs).all() and (targets == samples().labels).all()
    assert np.allclose(outputs, next(each.predict(samples().inputs)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Curves("c.png", every_epochs=0),
            "every_epochs=0 must be a whole number of at least 1",
        ),
        (
            lambda: Images("folder", samples(), 0),
            "every_epochs=0 must be a whole number of at least 1",
        ),
        (
            lambda: Images("folder", samples(), draw="nice"),
            "draw must be a function .* not 'nice'",
        ),
        (lambda: Images("folder", 3), "a batch is a dict, tuple or list, not a int"),
        (lambda: Images("folder", (np.zeros((3, 2)), np.zeros(4))), "must agree"),
    ],
    ids=[
        "no epochs",
        "no epochs of images",
        "no function",
        "no batch",
        "other lengths",
    ],
)
def test_options_that_make_no_sense_are_refused(make, message):
    with pytest.raises((SettingError, BatchError), match=message):
        make()


def test_values_are_shown_in_the_range_of_the_target():
    figure = drawn_of(
        np.zeros((2, 3, 7, 5)), np.full((2, 1, 7, 5), 2.0), np.full((2, 1, 7, 5), 9.0)
    )
    assert len(figure.axes) == 6
    assert figure.axes[4].images[0].get_clim() == figure.axes[2].images[0].get_clim()
