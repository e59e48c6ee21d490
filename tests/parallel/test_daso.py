"""What DASO decides at each batch and after each epoch, without processes."""

import math
from dataclasses import replace

import pytest

from deliralike.errors import SettingError
from deliralike.parallel.averaging.daso import (
    BLOCKING,
    Pace,
    Plan,
    Sent,
    State,
    averages_within,
    decide,
    next_epoch,
)

PACES = [
    Pace(between, wait, local)
    for between in range(1, 9)
    for wait in range(10)
    for local in (1, 2, 3)
]
EPOCHS = 2


def epochs(pace, batches, members, count=EPOCHS):
    """The decisions of some epochs at one pace, one list each, and the state after each."""
    state, found = State(pace), []
    for epoch in range(count):
        decisions = []
        for _ in range(batches):
            decision, state = decide(state, batches, members)
            decisions.append(decision)
        found.append((decisions, state))
        state = replace(state, epoch=epoch + 1, batch=0)
    return found


def done(decisions):
    """What was sent and merged, as (batch, what), in the order in which it was done."""
    for batch, decision in enumerate(decisions):
        yield from ((batch, "merge", sent) for sent in decision.merges)
        if decision.sends:
            yield batch, "send", decision.sends
            if decision.sends.wait == 0:
                yield batch, "merge", decision.sends


@pytest.mark.parametrize("batches", [1, 2, 3, 8, 19])
@pytest.mark.parametrize("members", [1, 2, 3, 4])
def test_every_sending_is_merged_once_and_in_time_and_nothing_is_left(batches, members):
    """For every pace, W = B - 1 and W >= B among them."""
    for pace in PACES:
        for decisions, after in epochs(pace, batches, members):
            events = list(done(decisions))
            sent = [each for _, what, each in events if what == "send"]
            merges = {each: batch for batch, what, each in events if what == "merge"}
            assert set(merges) == set(sent) and len(events) == 2 * len(sent), pace
            assert all(
                batch == min(each.batch + pace.wait, batches - 1)
                for each, batch in merges.items()
            ), pace
            assert after.under_way == () and after.batch == batches


@pytest.mark.parametrize("batches", [1, 2, 7, 19])
def test_what_has_arrived_is_merged_before_the_next_is_sent(batches):
    for pace in PACES:
        for decisions, _ in epochs(pace, batches, 2):
            order = list(done(decisions))
            for batch in range(batches):
                here = [
                    (what, each.batch == batch)
                    for at, what, each in order
                    if at == batch
                ]
                assert here == sorted(
                    here, key=lambda event: ("merge", False) != event
                ), pace


def test_a_batch_more_than_was_told_ends_in_a_blocking_average_too():
    state = State(Pace(4, 3))
    for _ in range(5):
        decision, state = decide(state, 5, 2)
    assert averages_within(state, 5)
    decision, state = decide(state, 5, 2)
    assert decision.sends == Sent(5, 0, 0) and state.under_way == ()


def paces(plan, losses):
    """The pace of each epoch, given the loss of each."""
    state, found = State.of(plan), []
    for loss in losses:
        found.append((state.pace.between, state.pace.wait, state.pace.local))
        state = next_epoch(plan, state, loss)
    return found


BLOCK = (BLOCKING.between, BLOCKING.wait, BLOCKING.local)


@pytest.mark.parametrize(
    ("plan", "cycle"),
    [
        (
            Plan(100, 0, 0, largest=16),
            [
                (4, 1, 1),
                (2, 1, 1),
                (1, 1, 1),
                (16, 4, 4),
                (8, 3, 2),
                (4, 2, 1),
                (2, 1, 1),
            ],
        ),
        (Plan(100, 0, 0, largest=2), [(2, 1, 1), (1, 1, 1), (2, 1, 1)]),
        (Plan(100, 0, 0, largest=1), [(1, 1, 1), (1, 1, 1)]),
        (
            Plan(100, 0, 0, largest=9, reduction=3, local_factor=2),
            [(4, 1, 1), (1, 1, 1), (9, 4, 4), (3, 3, 1)],
        ),
        (Plan(100, 0, 0, reduction=8), [(4, 1, 1), (1, 1, 1), (8, 2, 2), (1, 1, 1)]),
    ],
)
def test_cycles_of_other_plans(plan, cycle):
    losses = [1.0] * (3 * len(cycle) + 1)  # the first one is the best
    assert paces(plan, losses)[1::3][: len(cycle)] == cycle


@pytest.mark.parametrize(
    ("losses", "plateau"),
    [
        ([1.0, 0.96, 0.96, 0.951], True),  # never 5 % below the best
        ([1.0, 0.96, 0.96, 0.949], False),
        ([1.0, 2.0, 2.0, 0.9], False),
        ([-1.0, -1.04, -1.04, -1.04], True),  # of losses below zero too, less is better
        ([-1.0, -1.04, -1.04, -1.06], False),
        ([1.0, math.nan, math.nan, math.nan], True),
    ],
)
def test_what_a_plateau_is(losses, plateau):
    pace = paces(Plan(100, warmup=0, cooldown=0), [*losses, 1.0])[-1]
    assert pace == ((2, 1, 1) if plateau else (4, 1, 1))


def test_warm_up_and_cool_down_may_be_all_of_a_run():
    assert paces(Plan(epochs=5, warmup=3, cooldown=4), [1.0] * 7) == [BLOCK] * 7
    assert paces(Plan(epochs=2, warmup=0, cooldown=0), [1.0] * 3) == [(4, 1, 1)] * 2 + [
        BLOCK
    ]


def test_a_state_survives_a_checkpoint():
    state = State(Pace(4, 3), best=0.5, bad=1, epoch=2)
    for _ in range(6):
        _, state = decide(state, 20, 3)
    assert state.under_way
    assert State.from_dict(state.as_dict()) == state


@pytest.mark.parametrize("wrong", ["epochs", "largest", "reduction", "local_factor"])
def test_plans_that_make_no_sense(wrong):
    with pytest.raises(SettingError, match=f"{wrong}=0 must be at least 1"):
        Plan(**{"epochs": 3, wrong: 0})
    with pytest.raises(SettingError, match="warmup=-1 must be at least 0"):
        Plan(3, warmup=-1)
