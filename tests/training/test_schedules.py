"""Learning-rate schedules: those of torch.optim.lr_scheduler to 1e-12, closed formulas, and a table
of plateaus."""

import json
import warnings

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler

from deliralike.errors import ArgumentError, SettingError, StateError, UnknownName
from deliralike.training.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Linear,
    OneCycle,
    Plateau,
    Schedule,
    StepDecay,
    Warmup,
    schedule,
    schedule_of,
)

BASE = 0.3
NAN = float("nan")


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
    line = lr_scheduler.LinearLR(native, start_factor=0.1, total_iters=5)
    cosine = lr_scheduler.CosineAnnealingLR(native, T_max=20)
    return lr_scheduler.SequentialLR(native, [line, cosine], milestones=[5])


# Ours, PyTorch's (``lr`` is the base rate, BASE, wherever a rate is asked for), and how many steps.
SAME = {
    "step: step_size is every": (
        StepDecay(4, gamma=0.5),
        lambda o: lr_scheduler.StepLR(o, 4, gamma=0.5),
        23,
    ),
    "milestones": (
        StepDecay(milestones=(3, 4, 11), gamma=0.3),
        lambda o: lr_scheduler.MultiStepLR(o, [3, 4, 11], gamma=0.3),
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
    "one cycle: max_lr is peak * lr": (
        OneCycle(23),
        one_cycle_of_torch(23, max_lr=BASE),
        23,
    ),
    "one cycle: div_factor is 1 / start, final_div_factor is start / final": (
        OneCycle(30, peak=4.0, warmup=0.25, start=0.2, final=0.01),
        one_cycle_of_torch(
            30, max_lr=4 * BASE, pct_start=0.25, div_factor=5.0, final_div_factor=20.0
        ),
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
    "warm-up: start_factor is start": (
        Warmup(5, Cosine(20), start=0.1),
        warm_then_cosine,
        25,
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_a_schedule_is_that_of_pytorch(case):
    own, make, steps = SAME[case]
    found = [BASE * own.factor(step) for step in range(steps)]
    np.testing.assert_allclose(found, of_torch(make, steps), rtol=1e-12, atol=1e-12)


PLATEAUS = {
    "min": ({}, [3, 2, 2, 2, 2, 1.5, 1.6, 1.6, 1.6, 1.6, 1.6, 1.6]),
    "max": ({"mode": "max"}, [1, 2, 2, 2, 2, 3, 2, 2, 2, 2, 2]),
    "a threshold": (
        {"threshold": 0.1, "patience": 1},
        [10, 9.5, 9.1, 8.9, 8.1, 8.02, 7, 7],
    ),
    "a minimum": ({"patience": 0, "minimum": 0.2}, [1, 1, 1, 1, 1, 1]),
    "NaN": ({"patience": 1}, [NAN, NAN, NAN, 2, NAN, 1, NAN, NAN, 0.5]),
}


@pytest.mark.parametrize("case", PLATEAUS)
def test_a_plateau_is_that_of_pytorch_where_values_are_not_negative(case):
    """PyTorch's factor is gamma, its min_lr is minimum * lr; eps, the smallest change, is 0
    here."""
    settings, values = PLATEAUS[case]
    own = Plateau("loss", **{"gamma": 0.5, "patience": 2} | settings)
    native = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=BASE)
    options = {name: getattr(own, name) for name in ("mode", "patience", "threshold")}
    other = lr_scheduler.ReduceLROnPlateau(
        native, factor=own.gamma, min_lr=own.minimum * BASE, eps=0, **options
    )
    for value in values:
        own.observe(value)
        other.step(value)
        assert BASE * own.factor(0) == pytest.approx(
            native.param_groups[0]["lr"], rel=1e-12
        )


SIGNS = {
    "min, falling below zero": ("min", [-1.0, -2.0, -3.0, -4.0], 0),
    "min, a hair worse is not better": ("min", [-1.0, -0.99995], 1),
    "min, better by less than the threshold": ("min", [-1.0, -1.00005], 1),
    "max, rising towards zero": ("max", [-4.0, -3.0, -2.0, -1.0], 0),
    "max, through zero": ("max", [-1.0, 0.0, 1.0], 0),
    "max, NaN at first": ("max", [NAN, -5.0, NAN], 2),
    "min, never anything but NaN": ("min", [NAN, NAN], 2),
}


@pytest.mark.parametrize("case", SIGNS)
def test_a_plateau_is_right_about_signs_and_nan(case):
    """Without patience each value that is no better halves the factor."""
    mode, values, drops = SIGNS[case]
    plateau = Plateau("score", mode=mode, gamma=0.5, patience=0)
    for value in values:
        plateau.observe(value)
    assert plateau.factor(0) == 0.5**drops


@pytest.mark.parametrize("cut", range(13))
def test_a_plateau_goes_on_from_its_state_in_a_file(cut):
    settings = {"gamma": 0.5, "patience": 1}
    values = [3, 3, 2, NAN, 2, 2, 2, 1, 1, 1, 1, 1, 1]
    whole, first, second = (Warmup(2, Plateau("loss", **settings)) for _ in range(3))
    for value in values:
        whole.observe(value)
    for value in values[:cut]:
        first.observe(value)
    second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
    for value in values[cut:]:
        second.observe(value)
    assert second.state() == whole.state()
    assert second.factor(5) == whole.factor(5) < 1


def test_two_plateaus_have_states_of_their_own():
    one, other = Plateau("loss", patience=0), Plateau("loss", patience=0)
    for value in (1.0, 2.0):
        one.observe(value)
    assert (one.factor(0), other.factor(0)) == (0.1, 1.0)


def test_a_cosine_and_a_cycle_stay_at_their_ends():
    assert (
        Cosine(10, final=0.2).factor(10) == Cosine(10, final=0.2).factor(10**9) == 0.2
    )
    assert OneCycle(10, final=0.01).factor(9) == pytest.approx(0.01, rel=1e-12)
    assert OneCycle(10, final=0.01).factor(10**9) == OneCycle(10, final=0.01).factor(9)


def test_a_cycle_of_one_update_and_one_without_a_fractional_top_are_defined():
    assert OneCycle(1, final=0.5).factor(0) == 0.5
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
    own = Warmup(2, OneCycle(10, peak=4.0, start=0.5))
    assert [own.factor(0), own.factor(1), own.factor(2)] == [0.0, 1.0, 2.0]


def test_a_warm_up_of_no_steps_is_what_follows():
    assert [Warmup(0, Cosine(5)).factor(step) for step in range(6)] == [
        Cosine(5).factor(step) for step in range(6)
    ]


def test_what_a_warm_up_leads_to_is_told_what_is_observed():
    own = Warmup(3, Plateau("loss", patience=0, gamma=0.5))
    for value in (1.0, 1.0):
        own.observe(value)
    assert own.metric == "loss"
    assert [own.factor(0), own.factor(3)] == [0.0, 0.5]


PURE = [Constant(0.5), StepDecay(3), Cosine(7), OneCycle(7), Warmup(3, Cosine(4))]


@pytest.mark.parametrize("own", PURE, ids=repr)
def test_a_function_of_the_steps_has_no_state_and_asks_for_no_metric(own):
    factors = [own.factor(step) for step in range(9)]
    own.observe(1.0)
    own.load_state({})
    assert own.state() == {}
    assert own.metric is None
    assert [own.factor(step) for step in range(9)] == factors
    assert hash(own) == hash(
        type(own)(**{name: getattr(own, name) for name in own.__dataclass_fields__})
    )
    with pytest.raises(
        StateError,
        match=f"{type(own.then if isinstance(own, Warmup) else own).__name__} has no state, "
        "but one came with 'best'",
    ):
        own.load_state({"best": 1.0})


def test_the_state_of_something_else_is_refused_by_a_plateau_and_changes_nothing():
    own = Plateau("loss")
    own.observe(2.0)
    before = own.state()
    with pytest.raises(
        StateError,
        match=r"Plateau: the state has \['best'\], wanted \['best', 'scale', 'wo",
    ):
        own.load_state({"best": 1.0})
    assert own.state() == before


BY_NAME = {
    "constant": {},
    "step": {"every": 3},
    "cosine": {"steps": 100},
    "linear": {"steps": 100},
    "one_cycle": {"steps": 100},
    "warmup": {"steps": 3, "then": {"name": "step", "milestones": [2, 5]}},
    "plateau": {"metric": "loss"},
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
        ("plateau", Plateau("loss")),
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
    "hidden setting": (
        lambda: schedule("plateau", metric="loss", _seen={}),
        ArgumentError,
        "has no setting '_seen'",
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
    "mode": (
        lambda: Plateau("loss", mode="low"),
        SettingError,
        "mode='low' must be 'min' or 'max'",
    ),
    "no drop": (
        lambda: Plateau("loss", gamma=1.0),
        SettingError,
        "gamma=1.0 must be below 1",
    ),
    "no number": (
        lambda: Plateau("loss").observe("low"),
        ArgumentError,
        "Plateau: loss='low' is no number",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_setting_that_makes_no_sense_is_refused(bad):
    make, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        make()
