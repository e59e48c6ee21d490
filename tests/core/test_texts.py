"""What networks, optimizers, data, trainers and histories say of themselves: short, and escaped."""

import re

import numpy as np
import pytest
from flax import nnx

from deliralike import DataParallel, backends, data, rules, zoo
from deliralike.backends.chainer.arrays import chainer
from deliralike.training import Epoch, History, Step

MLP = """\
MLP(
  in_features=3, out_features=2, hidden=(5,)
  (layers): ModuleList(
    (0): Linear(in_features=3, out_features=5, bias=True)
    (1): Linear(in_features=5, out_features=2, bias=True)
  )
  (activation): ReLU()
  (dropouts): ModuleList(
    (0): Dropout(p=0.0)
  )
)"""
ADAM = "AdamW(lr=0.5, weight_decay=0.01, betas=(0.9, 0.999), eps=1e-08, amsgrad=False)"


def mlp(backend, **settings):
    return zoo.build(
        "mlp", backend=backend, in_features=3, out_features=2, hidden=(5,), **settings
    )


@pytest.mark.parametrize("backend", ["chainer", "jax"])
def test_a_network_prints_its_blocks_line_by_line_and_a_replicated_one_its_devices(
    backend,
):
    network = mlp(backend)
    assert repr(network) == str(network) == MLP
    devices = [network.device_name] * 2
    lines = repr(DataParallel(network, devices)).splitlines()
    assert lines[1:3] == [f"  devices={devices}", "  (module): MLP("]


def test_blocks_of_flax_and_functions_in_a_chainer_sequence_are_printed_too():
    class Native(nnx.Module):
        def __init__(self):
            rngs = nnx.Rngs(0)
            self.blocks = nnx.List([nnx.Linear(3, 2, use_bias=False, rngs=rngs)])
            self.drop = nnx.Dropout(0.5, rngs=rngs)

    lines = repr(backends.wrap(Native())).splitlines()
    assert lines[:2] == ["WrappedJaxNetwork(", "  (native): Native("]
    [linear] = [line for line in lines if "Linear" in line]
    assert "(0): Linear(in_features=3, out_features=2, use_bias=False" in linear
    assert len(lines) < 10
    sequence = chainer.Sequential(chainer.links.Linear(3, 2), chainer.functions.relu)
    assert "(1): relu" in repr(backends.wrap(sequence))


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_an_optimizer_prints_its_rule_and_its_updates(backend):
    network = mlp(backend)
    optimizer = network.backend.optimizer(
        rules.rule("adamw", lr=0.5), network, parameters="layers.*"
    )
    kind = type(optimizer).__name__
    assert repr(optimizer) == f"{kind}({ADAM}, steps=0)"


def test_data_print_sizes_instead_of_numbers(tmp_path):
    samples = data.Samples(np.zeros((7, 1, 3, 2), np.float32), np.arange(7) % 2)
    assert repr(samples) == "Samples(inputs: float32 (7, 1, 3, 2), labels: int64 (7,))"
    dataset = data.Dataset("two", samples, samples.take(np.arange(3)), ("<b>", "dog"))
    assert repr(dataset) == (
        "Dataset('two', classification, 2 classes: 7 samples to train on and 3 held out, "
        "of shape (1, 3, 2))"
    )
    html = dataset._repr_html_()
    assert "<b>" not in html
    assert re.findall(r"<td[^>]*>([^<]*)</td>", html) == [
        "&lt;b&gt;",
        "4",
        "2",
        "dog",
        "3",
        "1",
    ]
    loader = data.Loader(samples, 4, shuffle=False)
    assert repr(loader) == (
        "Loader(7 samples, batch_size=4, seed=0, sampler=SequentialSampler(), drop_last=False)"
    )
    assert repr(data.Batches(history)) == "Batches(history, seed=0)"


def history(epochs=12):
    steps = [
        Step(n, n // 2, loss=1.0 / (n + 1), seconds=0.5, samples=3)
        for n in range(2 * epochs)
    ]
    return History(
        steps, [Epoch(n, 2 * n + 2, {"accuracy": n / 100}, 0.25) for n in range(epochs)]
    )


def test_a_history_prints_its_latest_epochs_in_the_width_of_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    title, head, *rows = repr(history()).splitlines()
    assert title == "History: 24 steps, 12 epochs (the last 10 are shown)"
    assert head.split() == ["epoch", "steps", "training", "loss", "accuracy"]
    # By hand: the last epoch has the losses 1/23 and 1/24, whose mean is 0.04257.
    assert (len(rows), rows[-1].split()) == (10, ["11", "24", "0.04257", "0.11"])
    assert repr(History()) == "History: 0 steps, 0 epochs"


def test_a_history_shows_its_curves_in_a_notebook_and_opens_no_window():
    import matplotlib

    before = matplotlib.get_backend(), dict(matplotlib.rcParams)
    run = history()
    figure = run.plot()
    assert [len(axes.lines) for axes in figure.axes] == [1, 1]
    assert figure.axes[0].lines[0].get_ydata().tolist() == run.losses.tolist()
    html = run._repr_html_()
    assert html.count("<tr>") == 11
    assert figure._repr_png_().startswith(b"\x89PNG")
    run.stopped = "<script>"
    assert "<script>" not in run._repr_html_()
    assert (matplotlib.get_backend(), dict(matplotlib.rcParams)) == before


def two_losses(count=4):
    """Records of a network with two losses by name, as a GAN has, and of many metrics."""
    steps = [
        Step(n, n // 2, 2.5 - n / 8, 0.5, 3, {"critic": 2.0, "generator": 0.5 - n / 8})
        for n in range(count)
    ]
    cells = {f"confusion/{n}/{m}": 1.0 for n in range(4) for m in range(4)}
    ious = {f"iou/{n}": n / 100 for n in range(13)} | {"iou/mean": 0.06}
    figures = {**cells, **ious, "accuracy": 0.5}
    epochs = [Epoch(n, 2 * n + 2, figures) for n in range(count // 2)]
    return History(steps, epochs)


def test_each_loss_has_a_column_and_a_line_and_many_figures_have_none(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, head, first, _ = repr(two_losses()).splitlines()
    names = ["epoch", "steps", "training loss", "iou/mean", "accuracy"]
    names += ["training critic", "training generator"]
    assert re.split(" {2,}", head) == names
    # by hand: the means of 2.5 and 2.375, and of 0.5 and 0.375
    assert first.split() == ["0", "2", "2.438", "0.06", "0.5", "2", "0.4375"]
    monkeypatch.setenv("COLUMNS", "50")
    _, head, *_, rest = repr(two_losses()).splitlines()
    assert re.split(" {2,}", head) == names[:5]
    assert rest.startswith("and training critic, training generator: write_csv")
    axes = two_losses().plot().axes
    assert [line.get_label() for line in axes[0].lines] == ["critic", "generator"]
    assert axes[0].lines[1].get_ydata().tolist() == [0.5, 0.375, 0.25, 0.125]
    assert [each.get_title(loc="left") for each in axes[1:]] == [
        "validation: iou/mean, every epoch",
        "validation: accuracy, every epoch",
    ]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.9, 0.5, 0.2], ["0.2", "0.3", "0.4", "0.5", "0.6", "0.7", "0.8", "0.9"]),
        (
            [2.44, 2.36],
            ["2.36", "2.37", "2.38", "2.39", "2.4", "2.41", "2.42", "2.43", "2.44"],
        ),
        ([12.0, 0.15], ["0.2", "0.5", "1", "2", "5", "10"]),
    ],
)
def test_ticks_of_losses_are_plain_numbers(losses, expected):
    steps = [Step(n, 0, loss, 0.5, 3) for n, loss in enumerate(losses)]
    figure = History(steps, []).plot()
    figure._repr_png_()  # draws the labels
    axis = figure.axes[0].yaxis
    ticks = axis.get_major_ticks() + axis.get_minor_ticks()
    low, high = figure.axes[0].get_ylim()
    texts = [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high]
    assert sorted(filter(None, texts), key=float) == expected


def test_an_optimizer_of_a_framework_prints_its_class():
    import torch

    network = backends.wrap(torch.nn.Linear(3, 2))
    native = torch.optim.RMSprop(network.native.parameters(), lr=0.25)
    text = repr(network.backend.wrap_optimizer(native, network))
    assert text == "TorchOptimizer(RMSprop(lr=0.25), steps=0)"


def test_an_outline_fits_a_terminal_and_cuts_paths_behind_dots_alone(monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    outline = zoo.outline("unet", dims=3)
    lines = str(outline).splitlines()
    assert max(map(len, lines)) <= 72
    heading = next(line for line in lines if line.startswith("layer"))
    end = heading.index("type")
    beginnings = [line[:end].rstrip() for line in lines[lines.index(heading) + 1 :]]
    assert "".join(beginnings) == "".join(row.name for row in outline.rows)
    names = {part for row in outline.rows for part in row.name.split(".")}
    pieces = {part for each in beginnings for part in each.split(".") if part}
    assert pieces == names
