"""The loop, evaluation and what is recorded, against plain PyTorch and against each other."""

import json

import numpy as np
import pytest
import torch

from deliralike import Network, data, random
from deliralike.errors import BatchError, SettingError
from deliralike.optim import rules
from deliralike.training import (
    Callback,
    History,
    JsonLines,
    Step,
    accuracy,
    classification_loss,
    cross_entropy,
    evaluate,
    fit,
    predict,
)


class Small(Network):
    """Convolution, norm, dropout, linear: something with a mode, running statistics and chance."""

    def __init__(self, p=0.0):
        super().__init__()
        self.conv = self.nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.bn = self.nn.BatchNorm2d(4)
        self.dropout = self.nn.Dropout(p)
        self.fc = self.nn.Linear(4 * 25, 3)

    def forward(self, x):
        return self.fc(self.dropout(self.nn.flatten(self.nn.relu(self.bn(self.conv(x))))))


class Fragile(Small):
    def forward(self, x):
        raise RuntimeError("broken on purpose")


def samples(count=20):
    generator = np.random.default_rng(0)
    return data.Samples(generator.normal(size=(count, 1, 5, 5)), generator.integers(0, 3, count))


def optimizer_of(network, **numbers):
    return network.backend.optimizer(
        rules.rule("sgd", **({"lr": 0.1, "momentum": 0.9} | numbers)), network
    )


def built(backend, p=0.0, network=Small):
    return network.on(backend, seed=1, dtype="float64")(p)


def test_losses_and_weights_are_those_of_a_hand_written_torch_loop():
    network, reference = built("torch"), built("torch")
    native = torch.optim.SGD(reference.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for epoch in range(2):
        for index in np.array_split(data.order(20, 7, epoch), [6, 12, 18]):
            inputs, labels = (torch.from_numpy(array[index]) for array in samples())
            native.zero_grad()
            loss = torch.nn.functional.cross_entropy(reference(inputs), labels)
            loss.backward()
            native.step()
            losses.append(loss.item())
    history = fit(optimizer_of(network), samples(), epochs=2, batch_size=6, seed=7)
    assert history.losses.tolist() == pytest.approx(losses, rel=1e-12)
    wanted = reference.state_dict()
    assert all(
        np.allclose(value, wanted[name], rtol=1e-11)
        for name, value in network.neutral_state().items()
    )


def test_histories_are_equal_on_all_backends_with_dropout():
    histories = {
        name: fit(
            optimizer_of(built(name, p=0.3)), samples(), samples(9), epochs=5, batch_size=5, seed=2
        )
        for name in ("torch", "chainer", "jax")
    }
    reference = histories.pop("torch")
    assert len(reference.losses) == 20
    for history in histories.values():
        assert history.losses.tolist() == pytest.approx(reference.losses.tolist(), rel=1e-10)
        assert history.held_out("loss").tolist() == pytest.approx(
            reference.held_out("loss").tolist(), rel=1e-10
        )
        assert history.held_out("accuracy").tolist() == reference.held_out("accuracy").tolist()


def test_every_step_has_its_own_place_in_the_portable_stream():
    seen = []

    def watched(network, inputs, labels):
        seen.append(random.current())
        return classification_loss(network, inputs, labels)

    fit(
        optimizer_of(built("torch")),
        samples(),
        epochs=2,
        batch_size=10,
        seed=4,
        loss_function=watched,
    )
    assert seen == [random.Stream(4, step) for step in range(4)]
    assert random.current() is None


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_leaves_no_trace(backend, training):
    network = built(backend.name, p=0.5).train(training)
    before = network.neutral_state()
    first, second = evaluate(network, samples()), evaluate(network, samples(), batch_size=3)
    assert first == pytest.approx(second, rel=1e-12)
    assert [
        block.training for _, block in network.named_blocks() if hasattr(block, "training")
    ] == [training] * 5
    assert all((value == before[name]).all() for name, value in network.neutral_state().items())


def test_the_mode_of_every_block_is_restored_when_the_network_raises(backend):
    network = built(backend.name, network=Fragile).train(True)
    network.bn.train(False)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        evaluate(network, samples())
    assert (network.training, network.bn.training) == (True, False)


def test_the_mode_is_restored_between_two_batches(backend):
    network = built(backend.name).train(True)
    for _ in predict(network, samples().inputs, batch_size=8):
        assert network.training
        fit(
            optimizer_of(network), samples(), batch_size=20
        )  # no inference mode leaks out of the generator


def test_predictions_come_batch_by_batch_in_order(backend):
    network = built(backend.name)
    parts = list(predict(network, samples().inputs, batch_size=8))
    assert [part.shape for part in parts] == [(8, 3), (8, 3), (4, 3)]
    (whole,) = predict(network, samples().inputs)
    assert np.allclose(np.concatenate(parts), whole, rtol=1e-12)


def test_fit_restores_the_mode_when_a_callback_raises():
    class Stop(Callback):
        ended = False

        def on_step(self, run, step):
            assert run.optimizer.network.training
            raise KeyboardInterrupt

        def on_end(self, run):
            self.ended = True

    network, stop = built("torch").eval(), Stop()
    with pytest.raises(KeyboardInterrupt):
        fit(optimizer_of(network), samples(), callbacks=[stop])
    assert stop.ended
    assert not network.training


def test_callbacks_see_every_moment_in_order():
    class Listen(Callback):
        def __init__(self):
            self.seen = []

        def on_start(self, run):
            self.seen.append(f"start {run.epochs}x{run.steps_per_epoch}")

        def on_step(self, run, step):
            self.seen.append(f"step {step.step} of {step.samples}")

        def on_epoch(self, run, epoch):
            self.seen.append(f"epoch {epoch.epoch} after {epoch.steps}")

        def on_end(self, run):
            self.seen.append("end")

    listen = Listen()
    fit(optimizer_of(built("torch")), samples(), epochs=2, batch_size=12, callbacks=[listen])
    steps = [
        "step 0 of 12",
        "step 1 of 8",
        "epoch 0 after 2",
        "step 2 of 12",
        "step 3 of 8",
        "epoch 1 after 4",
    ]
    assert listen.seen == ["start 2x2", *steps, "end"]


def test_a_run_without_epochs_is_refused():
    with pytest.raises(SettingError, match="epochs=0 must be a whole number of at least 1"):
        fit(optimizer_of(built("torch")), samples(), epochs=0)


def test_arrays_of_different_lengths_are_refused_before_the_first_step():
    network = built("torch")
    before = network.neutral_state()
    with pytest.raises(BatchError, match="batch\\[0\\] has 20, batch\\[1\\] has 9"):
        fit(optimizer_of(network), (samples().inputs, samples(9).labels))
    assert all((value == before[name]).all() for name, value in network.neutral_state().items())


def test_metrics_are_those_of_torch():
    scores, labels = (
        np.random.default_rng(1).normal(size=(11, 4, 3)) * 30,
        np.random.default_rng(2).integers(0, 4, (11, 3)),
    )
    tensors = torch.from_numpy(scores), torch.from_numpy(labels)
    assert cross_entropy(scores, labels) == pytest.approx(
        float(torch.nn.functional.cross_entropy(*tensors)), rel=1e-13
    )
    assert accuracy(scores, labels) == float((tensors[0].argmax(1) == tensors[1]).double().mean())


def test_scores_that_do_not_fit_the_labels_are_refused():
    with pytest.raises(
        BatchError, match=r"scores of shape \(3, 2\) do not fit labels of shape \(4,\)"
    ):
        accuracy(np.zeros((3, 2)), np.zeros(4, np.int64))


def test_the_time_of_a_step_leaves_out_the_first_and_the_smaller_ones():
    seconds = [(9.0, 8), (1.0, 8), (3.0, 8), (0.1, 4), (2.0, 8)]
    history = History([Step(i, 0, 1.0, time, count) for i, (time, count) in enumerate(seconds)])
    assert history.seconds_per_step == 2.0
    assert np.isnan(History().seconds_per_step)


def test_every_record_is_one_line_of_strict_json(tmp_path):
    def nan_loss(network, inputs, labels):
        return network.nn.sum(network(inputs)) * float("nan")

    log = JsonLines(tmp_path / "metrics.jsonl", backend="torch")
    with pytest.warns(RuntimeWarning, match="the loss is nan in step 0"):
        fit(
            optimizer_of(built("torch")),
            samples(),
            samples(),
            batch_size=10,
            loss_function=nan_loss,
            callbacks=[log],
        )

    def refuse(constant):
        raise ValueError(constant)

    lines = [json.loads(line, parse_constant=refuse) for line in log.path.read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["step", "step", "epoch"]
    assert lines[0]["loss"] is None
    assert lines[0]["backend"] == "torch"
    assert set(lines[-1]["held_out"]) == {"accuracy", "loss"}


def test_drawing_changes_no_global_state_and_shows_every_run(tmp_path):
    import matplotlib
    from PIL import Image

    from deliralike.training.curves import draw_curves

    before = dict(matplotlib.rcParams)
    network = built("torch")
    history = fit(optimizer_of(network), samples(), samples(), epochs=2, batch_size=5)
    picture = draw_curves({"one": history, "two": history}, tmp_path / "curves.png", "title")
    assert dict(matplotlib.rcParams) == before
    pixels = np.asarray(Image.open(picture).convert("RGB"))
    assert (pixels != 255).any(axis=2).mean() > 0.01
    colours = {tuple(colour) for colour in pixels.reshape(-1, 3)}
    assert {(0x56, 0xB4, 0xE9), (0xE6, 0x9F, 0x00)} <= colours
