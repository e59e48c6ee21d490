"""The loop, evaluation and what is recorded, against plain PyTorch and against each other."""

import json

import numpy as np
import pytest
import torch

from deliralike import data, random
from deliralike.optim import rules
from deliralike.training import (
    Callback,
    History,
    JsonLines,
    Step,
    Trainer,
    classification_loss,
    predict,
)
from tests.training import runs


def samples(count=20):
    return runs.samples(count)


def optimizer_of(network, **numbers):
    return network.backend.optimizer(
        rules.rule("sgd", **({"lr": 0.1, "momentum": 0.9} | numbers)), network
    )


def fit(
    optimizer,
    *parts,
    loss_function=classification_loss,
    callbacks=(),
    seed=0,
    **options,
):
    trainer = Trainer(
        optimizer.network,
        optimizer,
        loss_function,
        ["accuracy", "loss"],
        callbacks,
        seed=seed,
    )
    return trainer.fit(*parts, **options)


def built(backend, p=0.0, network=runs.Small):
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
            optimizer_of(built(name, p=0.3)),
            samples(),
            samples(9),
            epochs=5,
            batch_size=5,
            seed=2,
        )
        for name in ("torch", "chainer", "jax")
    }
    reference = histories.pop("torch")
    assert len(reference.losses) == 20
    for history in histories.values():
        assert history.losses.tolist() == pytest.approx(
            reference.losses.tolist(), rel=1e-10
        )
        assert history.held_out("loss").tolist() == pytest.approx(
            reference.held_out("loss").tolist(), rel=1e-10
        )
        assert (
            history.held_out("accuracy").tolist()
            == reference.held_out("accuracy").tolist()
        )


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
    assert [stream[:3] for stream in seen] == [(4, step, 0) for step in range(4)]
    assert random.current() is None


def test_the_mode_is_restored_between_two_batches(backend):
    network = built(backend.name).train(True)
    for _ in predict(network, samples().inputs, batch_size=8):
        assert network.training
        fit(
            optimizer_of(network), samples(), batch_size=20
        )  # no inference mode leaks out of the generator


def test_fit_restores_the_mode_when_a_callback_raises():
    class Stop(Callback):
        ended = False

        def on_step(self, run, step):
            assert run.optimizers["default"].network.training
            raise KeyboardInterrupt

        def on_end(self, run):
            self.ended = True

    network, stop = built("torch").eval(), Stop()
    with pytest.raises(KeyboardInterrupt):
        fit(optimizer_of(network), samples(), callbacks=[stop])
    assert stop.ended
    assert not network.training


def test_the_time_of_a_step_leaves_out_the_first_and_the_smaller_ones():
    seconds = [(9.0, 8), (1.0, 8), (3.0, 8), (0.1, 4), (2.0, 8)]
    history = History(
        [Step(i, 0, 1.0, time, count) for i, (time, count) in enumerate(seconds)]
    )
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

    lines = [
        json.loads(line, parse_constant=refuse)
        for line in log.path.read_text().splitlines()
    ]
    assert [line["kind"] for line in lines] == ["step", "step", "epoch"]
    assert lines[0]["loss"] is None
    assert lines[0]["backend"] == "torch"
    assert set(lines[-1]["held_out"]) == {"accuracy", "loss"}
