"""Learning rates by a schedule or a metric: the same on every backend, and after a resume."""

import math

import pytest
import torch

from deliralike import data
from deliralike.errors import SettingError, UnknownName
from deliralike.optim import rules
from deliralike.training import Checkpoint, Checkpoints, ReduceLROnPlateau, Trainer
from deliralike.training.schedules import StepDecay
from tests.training.small_runs import network, samples, scripted, trainer

NAN = math.nan
VALUES = (3.0, 2.0, 2.0, 2.5, 2.4, 2.3, 1.0, 1.0, 1.0, 1.0)


def plateau(**settings):
    return ReduceLROnPlateau("score", **{"factor": 0.5, "patience": 2} | settings)


def rates_of_torch(values, factor=0.5, patience=2, min_delta=0.0, **more):
    """What PyTorch's own schedule gives for the same values, one rate an epoch; it is more patient
    by one epoch."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        factor=factor,
        patience=patience - 1,
        threshold=min_delta,
        threshold_mode="abs",
        eps=0,
        **more,
    )
    rates = []
    for value in values:
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(value)
    return rates


def trace(backend, values=VALUES, settings=None, **options):
    callback = plateau(**settings or {})
    each = trainer(backend, [callback], metrics={"score": scripted(*values)}, **options)
    steps = each.fit(samples(8), samples(3), epochs=len(values), batch_size=4).steps
    return [step.lr for step in steps]


def test_a_plateau_is_that_of_torch_with_two_steps_an_epoch(backend):
    wanted = [rate for rate in rates_of_torch(VALUES) for _ in range(2)]
    assert trace(backend.name) == pytest.approx(wanted, rel=1e-12)
    assert len(set(wanted)) > 2


PLATEAUS = {
    "max": ({"mode": "max"}, [1, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2]),
    "a least difference": ({"min_delta": 0.5}, [10, 9.6, 9.4, 8.8, 8.5, 8.2, 7, 7]),
    "NaN": ({}, [NAN, NAN, NAN, 2, NAN, 1, NAN, NAN, 0.5]),
    "below zero": ({"patience": 1}, [-1.0, -2.0, -3.0, -2.0, -2.5]),
    "rising through zero": ({"mode": "max"}, [-1.0, 0.0, 1.0, 0.0, 0.5, 0.0]),
}


@pytest.mark.parametrize("case", PLATEAUS)
def test_a_plateau_is_that_of_torch_whatever_the_settings(case):
    settings, values = PLATEAUS[case]
    wanted = rates_of_torch(values, **settings)
    found = trace("torch", values, settings)[::2]
    assert found == pytest.approx(wanted, rel=1e-12)


def test_a_plateau_lowers_the_rates_of_a_schedule():
    values = (1.0, 1.0, 1.0)
    found = trace("torch", values, {"patience": 1}, schedule=StepDecay(4, gamma=0.1))
    assert found == pytest.approx([0.1] * 4 + [0.005] * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "low"}, "mode='low' is unknown"),
        ({"factor": 1.0}, "factor=1.0 must be below 1"),
        ({"patience": -1}, "patience=-1 must be a whole number"),
    ],
)
def test_settings_of_a_plateau_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        plateau(**settings)


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
    score = {"score": scripted(*VALUES)}
    each = Trainer(net, both, metrics=score, callbacks=[plateau()])
    steps = each.fit(samples(8), samples(3), epochs=len(VALUES), batch_size=4).steps
    assert (
        [step.lr["last"] for step in steps]
        == [step.lr["default"] for step in steps]
        == trace("torch")
    )


def test_a_resumed_plateau_goes_on_with_the_same_rates(tmp_path):
    first = trainer(
        "torch",
        [Checkpoint(tmp_path), plateau()],
        metrics={"score": scripted(*VALUES[:4])},
    )
    before = first.fit(samples(8), samples(3), epochs=4, batch_size=4)
    second = trainer("torch", [plateau()], metrics={"score": scripted(*VALUES[4:])})
    latest = Checkpoints.latest(tmp_path)
    after = second.fit(
        samples(8), samples(3), epochs=len(VALUES), batch_size=4, resume=latest
    )
    rates = {
        step.step: step.lr for history in (before, after) for step in history.steps
    }
    assert [rates[step] for step in sorted(rates)] == trace("torch")


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
        trainer("torch", [ReduceLROnPlateau()]).fit(samples())
    stream = data.Batches(lambda: data.Loader(samples(), 4).batches())
    with pytest.raises(
        SettingError, match="'linear' goes over a run, and the data have no length"
    ):
        trainer("torch", schedule={"name": "linear"}).fit(stream)
