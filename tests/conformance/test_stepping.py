"""Level L4: what is forced on optimizers, what is found, and what is not."""

import math

import numpy as np
import optax
import pytest
import torch

from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance.findings import FAILED, NOT_REACHED, PASSED
from deliralike.conformance.levels import stepping
from deliralike.optim import rules
from tests.conformance.optimizing import (
    Laid,
    Large,
    following,
    get,
    of_chainer,
    of_optax,
    of_torch,
    right,
    with_optimizers,
)


def sides(first, second, backend="torch"):
    """The reference on PyTorch with one optimizer, the candidate with another."""
    return with_optimizers(get("torch"), x=first), with_optimizers(
        get(backend), x=second
    )


# What is forced
# -----------------------------------------------------------------------------


def test_the_gradient_is_the_forced_one_in_every_layout(backend):
    """Plain descent at a rate of one: the update is the gradient with its sign flipped, and nothing
    is transposed."""
    subject = right(backend, Laid)
    forced = stepping.Forced.of(subject.network, 12, 0)
    side = stepping._Side(subject.network, following("sgd", lr=1.0), largest=math.inf)
    parameters, gradients = forced.parameters(2), forced.gradients(2)
    side.step(parameters, gradients, None)
    assert set(parameters) == {
        name for name, slot in subject.network.neutral_slots().items() if slot.trainable
    }
    moved = side.moved(parameters)
    for name in parameters:
        update, wanted = moved[name], -gradients[name]
        assert (
            abs(update - wanted).max() <= 4 * 2.0**-52 * abs(parameters[name]).max()
        ), name


def test_forced_numbers_are_portable_varied_and_hold_zeros():
    forced = stepping.Forced.of(right(get("torch")).network, 12, 0)
    assert forced.gradients(5)["fc.bias"] == pytest.approx(
        [0.38954896, 0.51447046], rel=1e-7
    )
    again = stepping.Forced.of(right(get("chainer")).network, 12, 0)
    for step in range(12):
        mine, its = forced.gradients(step), again.gradients(step)
        assert mine.keys() == its.keys()
        assert all(np.array_equal(mine[name], its[name]) for name in mine)
        assert all((value == value.astype(np.float32)).all() for value in mine.values())
    sizes = [np.abs(forced.gradients(step)["fc.weight"]).max() for step in range(4)]
    assert [round(np.log10(size)) for size in sizes] == [-6, 0, -3, 2]
    assert (forced.gradients(5)["hidden.weight"] == 0).all()
    assert (forced.gradients(1)["hidden.weight"].ravel()[::3] == 0).all()
    other = stepping.Forced.of(right(get("torch")).network, 12, 1)
    assert not np.array_equal(
        other.gradients(0)["fc.bias"], forced.gradients(0)["fc.bias"]
    )


def test_a_large_parameter_is_judged_as_a_small_one_with_as_many_axes(backend):
    subject = right(backend, Large)
    side = stepping._Side(subject.network, following("sgd", lr=1.0))
    shapes = {name: slot.shape for name, slot in side.network.neutral_slots().items()}
    assert shapes == {"conv.weight": (8, 6, 1, 1), "conv.bias": (60,)}
    assert subject.network.neutral_slots()["conv.weight"].shape == (60, 41, 3, 2)


def test_parameters_that_cannot_be_resized_are_judged_as_they_are(monkeypatch):
    """As those of a backend of one's own may be."""
    slots = right(get("torch"), Large).network.neutral_slots()
    monkeypatch.setattr(type(slots["conv.weight"]), "is_resizable", False)
    monkeypatch.setattr(type(slots["conv.weight"]), "resize", None)
    subject = right(get("torch"), Large).replace(
        optimizers={"x": following("sgd", lr=0.1)}
    )
    assert stepping.level(subject, subject).status == PASSED


def test_a_mistake_in_a_large_parameter_alone_is_found(backend):
    plain = lambda network: network.backend.optimizer(  # noqa: E731
        rules.rule("sgd", lr=0.1, weight_decay=0.1),
        network,
        groups={"*.weight": {"weight_decay": 0.0}},
    )
    decayed = following("sgd", lr=0.1, weight_decay=0.1)
    reference, candidate = (right(one, Large) for one in (get("torch"), backend))
    found = stepping.level(
        reference.replace(optimizers={"x": decayed}),
        candidate.replace(optimizers={"x": plain}),
    )
    (finding,) = found.findings
    assert finding.what == "update conv.weight at step 1"


# What is right
# -----------------------------------------------------------------------------

RIGHT = {
    "CorrectedMomentumSGD": (
        "chainer",
        following("sgd", lr=0.1, momentum=0.9),
        of_chainer,
        "CorrectedMomentumSGD",
        {"lr": 0.1, "momentum": 0.9},
    ),
    "RMSprop": (
        "chainer",
        following("rmsprop", lr=0.01, alpha=0.95),
        of_chainer,
        "RMSprop",
        {"lr": 0.01, "alpha": 0.95, "eps": 1e-8},
    ),
    "torch AdamW": (
        "torch",
        following("adamw", lr=0.01, weight_decay=0.1),
        of_torch,
        torch.optim.AdamW,
        {"lr": 0.01, "weight_decay": 0.1},
    ),
    "optax sgd": (
        "jax",
        following("sgd", lr=0.1, momentum=0.9, nesterov=True),
        of_optax,
        optax.sgd,
        {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_native_optimizers_that_are_the_same_are_not_accused(case):
    backend, reference, make, kind, settings = RIGHT[case]
    kind = getattr(chainer.optimizers, kind) if isinstance(kind, str) else kind
    found = stepping.level(*sides(reference, make(kind, **settings), backend))
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert found.worst < 1e-13


# What is found
# -----------------------------------------------------------------------------


def test_a_finding_names_optimizer_parameter_and_first_step():
    """The forms of momentum part when the learning rate drops, before the seventh step."""
    candidate = of_chainer(chainer.optimizers.MomentumSGD, lr=0.1, momentum=0.9)
    found = stepping.level(
        *sides(following("sgd", lr=0.1, momentum=0.9), candidate, "chainer")
    )
    (finding,) = found.findings
    assert (found.status, finding.place, finding.what) == (
        FAILED,
        "optimizer x",
        "update hidden.weight at step 7",
    )
    assert finding.remarks == ("It concerns 4 of 4 parameters.",)
    assert finding.explanation.cause == "the learning rate inside the velocity"
    # the velocity, a sum of gradients at the old rate, is ten times what it should be
    assert 8 < finding.difference < 10


def test_optimizers_on_one_side_only_are_named():
    reference, candidate = sides(following("sgd", lr=0.1), following("sgd", lr=0.1))
    other = candidate.replace(optimizers={"y": following("sgd", lr=0.1)})
    found = stepping.level(reference, other)
    assert found.status == NOT_REACHED
    assert found.notes[:2] == (
        "optimizer x is on one side only",
        "optimizer y is on one side only",
    )
    both = candidate.replace(optimizers={**candidate.optimizers, **other.optimizers})
    found = stepping.level(reference, both)
    assert (found.status, found.notes) == (PASSED, ("optimizer y is on one side only",))


def test_parameters_go_by_the_candidates_names():
    """Biases that are exchanged get each other's gradients, which their shapes would show; so do
    equal shapes."""
    subject = with_optimizers(
        get("torch"), x=following("sgd", lr=0.1, weight_decay=0.1)
    )
    names = {"hidden.weight": "hidden.weight", "hidden.bias": "fc.bias"}
    found = stepping.level(subject, subject, names)
    assert (found.status, found.notes) == (
        PASSED,
        ("not judged, without a parameter like it in the candidate: hidden.bias",),
    )
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)
    ).double()
    native = subject.replace(network=get("torch").wrap(net))
    names = {
        f"{mine}.{kind}": f"{its}.{kind}"
        for mine, its in (("hidden", 0), ("fc", 2))
        for kind in ("weight", "bias")
    }
    assert stepping.level(subject, native, names).notes == ()
    assert stepping.level(subject, native, names).status == PASSED
    wrong = native.replace(optimizers={"x": following("sgd", lr=0.1)})
    (finding,) = stepping.level(subject, wrong, names).findings
    assert finding.explanation.cause.startswith("no weight decay")


def test_a_hidden_learning_rate_is_noted_and_a_wrong_one_still_shows():
    hidden = lambda network: network.backend.wrap_optimizer(optax.sgd(0.02), network)  # noqa: E731
    found = stepping.level(*sides(following("sgd", lr=0.01), hidden, "jax"))
    assert found.notes == (
        "optimizer x: a side hides its learning rate, which did not change therefore",
    )
    (finding,) = found.findings
    assert finding.explanation.cause.startswith("learning rate times 2")


# Schedules
# -----------------------------------------------------------------------------


def test_a_schedule_inside_an_optimizer_is_detected():
    def make(network):
        optimizer = following("sgd", lr=0.1)(network)
        optimizer.post_update_hooks.append(
            lambda each: setattr(each, "lr", each.lr * 0.9)
        )
        return optimizer

    (finding,) = stepping.level(*sides(following("sgd", lr=0.1), make)).findings
    assert finding.what.startswith("update ") and finding.what.endswith(" at step 2")


@pytest.mark.parametrize("when", ["made", "stepping"])
def test_what_a_candidate_raises_is_a_finding_and_the_others_are_judged(backend, when):
    def broken(network):
        if when == "made":
            raise ValueError("no such rule")
        optimizer = following("sgd", lr=0.1)(network)
        optimizer.pre_update_hooks.append(lambda *_: 1 / 0)
        return optimizer

    good = {"sgd": following("sgd", lr=0.1)}
    reference = with_optimizers(get("torch"), odd=good["sgd"], **good)
    level = stepping.level(
        reference, with_optimizers(get(backend.name), odd=broken, **good)
    )
    (finding,) = level.findings
    wanted = {
        "made": "raises ValueError: no such rule",
        "stepping": "raises ZeroDivisionError: division by zero",
    }
    assert (finding.place, finding.what) == ("optimizer odd", wanted[when])
    assert level.status == FAILED and set(level.figures["differences"]) == {"sgd"}


# Schedules of the optimizers' own: what counts is the rate that an update uses
# -----------------------------------------------------------------------------


def cosine(step, length=20):
    return 0.5 * (1 + math.cos(math.pi * min(step, length) / length))


def with_lambda(network):
    """PyTorch's way: the rate of the next update is set after each."""
    native = torch.optim.SGD(network.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(native, cosine)
    native.register_step_post_hook(lambda *_: schedule.step())
    return network.backend.wrap_optimizer(native, network)


class SetsRate:
    """A hook of Chainer's that sets the rate before or after the update."""

    name, call_for_each_param = "SetsRate", False

    def __init__(self, timing, rate):
        self.timing, self.rate = timing, rate

    def __call__(self, optimizer):
        optimizer.lr = 0.1 * self.rate(optimizer.t)


def scheduled_by_hook(timing, rate):
    return of_chainer(chainer.optimizers.SGD, SetsRate(timing, rate), lr=0.1)


@pytest.mark.parametrize("timing", ["pre", "post"])
def test_a_rate_may_be_set_before_or_after_the_update(timing):
    found = stepping.level(
        *sides(with_lambda, scheduled_by_hook(timing, cosine), "chainer")
    )
    assert (found.status, found.findings) == (PASSED, ()) and found.worst < 1e-12


def test_a_schedule_of_an_optimizers_own_that_is_late_is_explained():
    late = scheduled_by_hook("post", lambda t: cosine(max(t - 1, 0)))
    (found,) = stepping.level(*sides(with_lambda, late, "chainer")).findings
    assert found.place == "optimizer x" and found.what.startswith("update ")
    assert "schedule one step late" in found.explanation.cause, str(found)
