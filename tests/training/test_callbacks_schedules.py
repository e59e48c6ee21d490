"""Schedules that watch a metric: the same learning rates on every backend, replicated or not, and
after a resume."""

import math

import pytest
import torch

from deliralike import data
from deliralike.errors import SettingError, UnknownName
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, Trainer
from deliralike.training.schedules import Plateau
from tests.training.small_runs import network, samples, scripted, trainer

VALUES = (3.0, 2.0, 2.0, 2.5, 2.4, 2.3, 1.0, 1.0, 1.0, 1.0)


def plateau():
    return Plateau("score", gamma=0.5, patience=1, threshold=0.0)


def rates_of_torch():
    """What PyTorch's own schedule gives for the same values, one rate an epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, threshold=0.0
    )
    rates = []
    for value in VALUES:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(value)
    return rates


def trace(backend, **options):
    each = trainer(
        backend, metrics={"score": scripted(*VALUES)}, schedule=plateau(), **options
    )
    return [
        step.lr
        for step in each.fit(
            samples(8), samples(3), epochs=len(VALUES), batch_size=4
        ).steps
    ]


def test_a_plateau_is_that_of_torch_with_two_steps_an_epoch(backend):
    wanted = [rate for rate in rates_of_torch() for _ in range(2)]
    assert trace(backend.name) == pytest.approx(wanted, rel=1e-12)
    assert len(set(wanted)) > 2


@pytest.mark.filterwarnings("ignore:accumulate=2 with batch normalisation")
def test_accumulated_batches_have_the_same_rates_epoch_by_epoch():
    assert trace("torch", accumulate=2) == trace("torch")[::2]


def test_a_plateau_of_two_optimizers_sees_each_value_once():
    net = network("torch")
    both = {
        "default": net.backend.optimizer(
            rules.rule("sgd", lr=0.1), net, parameters="first.*"
        ),
        "last": net.backend.optimizer(
            rules.rule("sgd", lr=0.1), net, parameters="last.*"
        ),
    }
    each = Trainer(net, both, metrics={"score": scripted(*VALUES)}, schedule=plateau())
    steps = each.fit(samples(8), samples(3), epochs=len(VALUES), batch_size=4).steps
    assert (
        [step.lr["last"] for step in steps]
        == [step.lr["default"] for step in steps]
        == trace("torch")
    )


def test_a_resumed_plateau_goes_on_with_the_same_rates(tmp_path):
    first = trainer(
        "torch",
        [Checkpoint(tmp_path)],
        metrics={"score": scripted(*VALUES[:4])},
        schedule=plateau(),
    )
    before = first.fit(samples(8), samples(3), epochs=4, batch_size=4)
    second = trainer(
        "torch", metrics={"score": scripted(*VALUES[4:])}, schedule=plateau()
    )
    latest = Checkpoints.latest(tmp_path)
    after = second.fit(
        samples(8), samples(3), epochs=len(VALUES), batch_size=4, resume=latest
    )
    rates = {
        step.step: step.lr for history in (before, after) for step in history.steps
    }
    assert [rates[step] for step in sorted(rates)] == trace("torch")


def test_a_metric_that_a_schedule_lacks_is_named_with_those_there_are():
    each = trainer("torch", metrics=["accuracy", "loss"], schedule=Plateau("acuracy"))
    with pytest.raises(
        UnknownName,
        match="no metric 'acuracy' on validation data. Did you mean 'accuracy'",
    ):
        each.fit(samples(), samples(3))


def test_a_schedule_by_name_goes_over_the_run():
    """Three updates an epoch, two epochs: half a cosine of six."""
    each = trainer("torch", schedule="cosine")
    steps = each.fit(samples(10), epochs=2, batch_size=4).steps
    wanted = [0.05 * (1 + math.cos(math.pi * number / 6)) for number in range(6)]
    assert [step.lr for step in steps] == pytest.approx(wanted, abs=1e-15)


def test_a_schedule_by_name_is_checked_before_the_first_step():
    with pytest.raises(UnknownName, match="no schedule 'cosin'. Did you mean 'cosine'"):
        trainer("torch", schedule="cosin")
    with pytest.raises(UnknownName, match="no metric 'loss': nothing was validated"):
        trainer("torch", schedule="plateau").fit(samples())
    stream = data.Batches(lambda: zip(*samples(), strict=True), batch_size=4)
    with pytest.raises(
        SettingError, match="'linear' goes over a run, and the data have no length"
    ):
        trainer("torch", schedule={"name": "linear"}).fit(stream)
