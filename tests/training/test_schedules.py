"""Learning-rate schedules: those of torch.optim.lr_scheduler to 1e-12, and closed formulas."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from deliralike.errors import ArgumentError, SettingError, UnknownName
from deliralike.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Linear,
    OneCycle,
    Schedule,
    StepDecay,
    Warmup,
    schedule,
    schedule_of,
)

BASE = 0.3


def of_torch(make, steps, lr=BASE):
    """The learning rate of each of the first updates, as a scheduler of PyTorch's sets it."""
    native = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=lr)
    scheduler, trace = make(native), []
    trace.append(native.param_groups[0]["lr"])
    for _ in range(steps - 1):
        native.step()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", UserWarning
            )  # SequentialLR warns of its own way to step
            scheduler.step()
        trace.append(native.param_groups[0]["lr"])
    return np.array(trace)


def one_cycle_of_torch(steps, **settings):
    """PyTorch refuses to go on after the end, and needs a momentum unless told."""
    return lambda native: lr_scheduler.OneCycleLR(
        native, total_steps=steps, cycle_momentum=False, **settings
    )


def warm_then_cosine(native):
    line = lr_scheduler.LambdaLR(native, lambda step: step / 5)
    cosine = lr_scheduler.CosineAnnealingLR(native, T_max=20)
    return lr_scheduler.SequentialLR(native, [line, cosine], milestones=[5])


# Ours, PyTorch's (``lr`` is the base rate, BASE, wherever a rate is asked for), and how many steps.
SAME = {
    "step: step_size is every": (
        StepDecay(4, gamma=0.5),
        lambda o: lr_scheduler.StepLR(o, 4, gamma=0.5),
        23,
    ),
    "cosine: T_max is steps": (
        Cosine(21),
        lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=21),
        22,
    ),
    "cosine: eta_min is final * lr": (
        Cosine(21, final=0.2),
        lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=21, eta_min=0.2 * BASE),
        22,
    ),
    "linear: end_factor is final": (
        Linear(21, final=0.2),
        lambda o: lr_scheduler.LinearLR(o, 1.0, 0.2, total_iters=21),
        25,
    ),
    "milestones": (
        StepDecay(milestones=(3, 4, 11), gamma=0.3),
        lambda o: lr_scheduler.MultiStepLR(o, [3, 4, 11], gamma=0.3),
        23,
    ),
    "one cycle: max_lr is lr": (
        OneCycle(23),
        one_cycle_of_torch(23, max_lr=BASE),
        23,
    ),
    "one cycle: pct_start is warmup": (
        OneCycle(30, warmup=0.25),
        one_cycle_of_torch(30, max_lr=BASE, pct_start=0.25),
        30,
    ),
    "one cycle, all up": (
        OneCycle(7, warmup=1.0),
        one_cycle_of_torch(7, max_lr=BASE, pct_start=1.0),
        7,
    ),
    "one cycle, all down": (
        OneCycle(7, warmup=0.0),
        one_cycle_of_torch(7, max_lr=BASE, pct_start=0.0),
        7,
    ),
    "warm-up": (
        Warmup(5, Cosine(20)),
        warm_then_cosine,
        25,
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_a_schedule_is_that_of_pytorch(case):
    own, make, steps = SAME[case]
    found = [BASE * own.factor(step) for step in range(steps)]
    np.testing.assert_allclose(found, of_torch(make, steps), rtol=1e-12, atol=1e-12)


def test_a_cosine_and_a_cycle_stay_at_their_ends():
    assert (
        Cosine(10, final=0.2).factor(10) == Cosine(10, final=0.2).factor(10**9) == 0.2
    )
    assert OneCycle(10).factor(9) == pytest.approx(1 / 25e4, rel=1e-9)
    assert OneCycle(10).factor(10**9) == OneCycle(10).factor(9)


def test_a_cycle_of_one_update_and_one_without_a_fractional_top_are_defined():
    assert OneCycle(1).factor(0) == 1 / 25e4
    assert OneCycle(4, warmup=0.25).factor(0) == 1.0


def test_a_warm_up_starts_at_zero_and_what_follows_counts_from_its_end():
    own = Warmup(4, StepDecay(3, gamma=0.5))
    assert [own.factor(step) for step in range(11)] == [
        0,
        0.25,
        0.5,
        0.75,
        1,
        1,
        1,
        0.5,
        0.5,
        0.5,
        0.25,
    ]


def test_a_warm_up_leads_to_where_the_next_schedule_begins():
    own = Warmup(2, OneCycle(10))
    assert [own.factor(step) for step in range(3)] == pytest.approx([0.0, 0.02, 0.04])


def test_a_warm_up_of_no_steps_is_what_follows():
    assert [Warmup(0, Cosine(5)).factor(step) for step in range(6)] == [
        Cosine(5).factor(step) for step in range(6)
    ]


PURE = [Constant(), StepDecay(3), Cosine(7), OneCycle(7), Warmup(3, Cosine(4))]


@pytest.mark.parametrize("own", PURE, ids=repr)
def test_a_schedule_is_a_value(own):
    fields = {name: getattr(own, name) for name in own.__dataclass_fields__}
    assert hash(own) == hash(type(own)(**fields))


BY_NAME = {
    "constant": {},
    "step": {"every": 3},
    "cosine": {"steps": 100},
    "linear": {"steps": 100},
    "one_cycle": {"steps": 100},
    "warmup": {"steps": 3, "then": {"name": "step", "milestones": [2, 5]}},
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_is_found_by_its_name_with_settings_from_a_file(name):
    own = schedule(name, **json.loads(json.dumps(BY_NAME[name])))
    assert isinstance(own, Schedule)
    assert type(own) is SCHEDULES[name]
    assert 0 <= own.factor(2) <= 1


def test_a_nested_schedule_is_made_by_its_own_name():
    assert schedule("warmup", **BY_NAME["warmup"]) == Warmup(
        3, StepDecay(milestones=(2, 5))
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("cosine", Cosine(40)),
        ("one_cycle", OneCycle(40)),
        ({"name": "linear", "final": 0.1}, Linear(40, final=0.1)),
        ({"name": "cosine", "steps": 7}, Cosine(7)),
        ({"name": "warmup", "steps": 10, "then": "cosine"}, Warmup(10, Cosine(30))),
        ({"name": "warmup", "steps": 10}, Warmup(10, Constant())),
        (Cosine(3), Cosine(3)),
    ],
)
def test_a_schedule_by_name_is_as_long_as_the_run(given, wanted):
    assert schedule_of(given, 40) == wanted


BAD = {
    "no length": (
        lambda: schedule_of("cosine"),
        SettingError,
        "'cosine' goes over a run, and the data have no length: schedule={'name': 'cosine', 'st",
    ),
    "unknown": (
        lambda: schedule("cosin"),
        UnknownName,
        "there is no schedule 'cosin'. Did you mean 'cosine'",
    ),
    "unknown setting": (
        lambda: schedule("cosine", step=3),
        ArgumentError,
        "schedule 'cosine' has no setting 'step'. Did you mean 'steps'",
    ),
    "missing setting": (
        lambda: schedule("one_cycle"),
        ArgumentError,
        "schedule 'one_cycle' needs a setting 'steps'",
    ),
    "nested without a name": (
        lambda: schedule("warmup", steps=1, then={"steps": 1}),
        ArgumentError,
        "a schedule needs a name",
    ),
    "steps": (
        lambda: Cosine(0),
        SettingError,
        "Cosine: steps=0 must be a whole number of at least 1",
    ),
    "below zero": (
        lambda: Cosine(3, final=-0.1),
        SettingError,
        "Cosine: final=-0.1 must be at least 0",
    ),
    "neither": (
        lambda: StepDecay(),
        SettingError,
        r"StepDecay: give either every=... or milestones=",
    ),
    "not rising": (
        lambda: StepDecay(milestones=(3, 3)),
        SettingError,
        r"milestones=\(3, 3\) must rise",
    ),
    "no milestones": (
        lambda: StepDecay(milestones=3),
        SettingError,
        "milestones=3 must be whole numbers",
    ),
    "more than all": (
        lambda: OneCycle(3, warmup=1.5),
        SettingError,
        "warmup=1.5 is a part of the cycle",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_setting_that_makes_no_sense_is_refused(bad):
    make, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        make()
