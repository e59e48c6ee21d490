"""Level L5: free steps."""

import numpy as np
import pytest
import torch

from deliralike import Network, backends, random
from deliralike.conformance.findings import FAILED, NOT_REACHED, PASSED
from deliralike.conformance.levels import curve
from deliralike.conformance.matching import propose
from deliralike.conformance.subject import Subject
from deliralike.optim import rules
from tests.conformance.optimizing import following, get, right, with_optimizers
from tests.planted.optimizers import MISTAKES, equipped, schedule

RANDOM = np.random.default_rng(3)
BATCHES = [(RANDOM.normal(size=(size, 3)), RANDOM.integers(0, 2, size)) for size in (7, 5)]


class Dropping(Network):
    """A bias in front of a norm, whose gradient is zero, and dropout."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.hidden, self.norm, self.fc = nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.fc(self.dropout(self.nn.relu(self.norm(self.hidden(x)))))


def dropping(backend):
    return equipped(Subject(Dropping.on(backend, dtype="float64")()))


def test_right_backends_have_one_curve_and_null_gradients_are_named(backend):
    candidate = dropping(backend)
    candidate.network.eval()  # it is trained all the same
    before = candidate.network.neutral_state()
    found = curve.level(dropping(get("torch")), candidate, BATCHES)
    assert (found.status, found.findings) == (PASSED, ())
    assert found.notes == ("the gradient of hidden.bias is zero up to rounding: not compared",)
    assert found.worst < 1e-12
    after = candidate.network.neutral_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_hundred_steps_of_adam_agree():
    """The null gradient's noise, which Adam turns into steps, is all that differs in the end."""
    subjects = [dropping(get(name)) for name in ("torch", "chainer")]
    subjects = [
        each.but(optimizers={"adam": each.optimizers["adamw"]}, schedule=None) for each in subjects
    ]
    found = curve.level(*subjects, BATCHES, steps=120)
    assert (found.status, len(found.figures["curves"]["candidate"])) == (PASSED, 120)


def test_the_curve_is_that_of_a_loop_of_ones_own(backend):
    """Update by update with the schedule, batches in turn, masks by step."""
    subject = dropping(backend)
    found = curve.level(subject, subject, BATCHES, steps=10)
    network = Dropping.on("chainer", dtype="float64")()
    optimizer = following("sgd", lr=1.0, momentum=0.9, weight_decay=0.01)(network)
    for step, loss in enumerate(found.figures["curves"]["reference"]):
        optimizer.lr = schedule(step)
        with random.portable(step=step):
            wanted = optimizer.update(subject.loss, *BATCHES[step % 2])
        assert loss == pytest.approx(float(wanted.array), rel=1e-11)


def test_the_first_step_that_differs_is_named(backend):
    """A schedule that drops one step late shows in the loss after it: the tenth."""
    candidate = right(backend)
    late = candidate.but(schedule=lambda step: schedule(max(step - 1, 0)))
    found = curve.level(right(get("torch")), late, BATCHES, steps=12)
    parameter, loss = found.findings
    assert (found.status, loss.place, loss.what) == (FAILED, "loss", "first at step 10")
    assert loss.remarks == ("It concerns 3 of 12 steps.",)
    assert (parameter.what, parameter.kind) == ("first after step 9", "Linear")
    assert parameter.place in candidate.network.neutral_state()
    rates = schedule(8), schedule(7)
    words = "The learning rate of this step is {1:.6g} instead of {0:.6g}.".format(*rates)
    assert parameter.remarks[1:] == ("Up to the step before, all of them are the same.", words)


def test_the_layer_that_parts_first_is_named(backend):
    """A rate of one layer's own: what a group of parameters of a port may have."""

    def slower(network):
        optimizer = following("sgd", lr=0.1)(network)
        optimizer.pre_update_hooks.append(
            lambda _, gradients: gradients | {"fc.bias": gradients["fc.bias"] * 0.5}
        )
        return optimizer

    plain = [right(get(name)).but(schedule=None) for name in ("torch", backend.name)]
    one, two = (
        side.but(optimizers={"sgd": make})
        for side, make in zip(plain, (following("sgd", lr=0.1), slower), strict=True)
    )
    found = curve.level(one, two, BATCHES, steps=4)
    parameter, loss = found.findings
    assert (parameter.place, parameter.what) == ("fc.bias", "first after step 1")
    assert parameter.remarks == ("It concerns 1 of 4 parameters and buffers.",)
    assert loss.what == "first at step 2"


def test_a_mistake_that_the_losses_do_not_show_is_found_in_the_parameters():
    """After one step the first loss is the same, and the update is not."""
    mistake = next(mistake for mistake in MISTAKES if mistake.name == "sgd: nesterov")
    subject = right(get("torch"))
    found = curve.level(subject, mistake.plant(subject), BATCHES, steps=1)
    assert [finding.what for finding in found.findings] == ["first after step 1"]


def test_names_of_the_candidate():
    subject = with_optimizers(get("torch"), x=following("sgd", lr=0.1))
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2)
    ).double()
    native = subject.but(network=get("torch").wrap(net))
    names = {
        f"{mine}.{kind}": f"{its}.{kind}"
        for mine, its in (("hidden", 0), ("fc", 2))
        for kind in ("weight", "bias")
    }
    native.network.load_neutral_state(
        {names[name]: value for name, value in subject.network.neutral_state().items()}
    )
    match = propose(subject.network, native.network)
    assert curve.level(subject, native, BATCHES, match=match).status == PASSED
    assert curve.level(subject, native, BATCHES).status == FAILED


def test_without_optimizer_or_batches_there_is_nothing_to_judge():
    subject = right(get("torch"))
    assert curve.level(subject, subject, []).status == NOT_REACHED
    found = curve.level(subject, subject.but(optimizers={}), BATCHES)
    assert (found.status, found.notes) == (NOT_REACHED, ("there is no optimizer on both sides",))


class Weight(torch.nn.Module):
    """One parameter."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.3], dtype=torch.float64))

    def forward(self, x):
        return self.weight * x


def _chaotic(power):
    """A loss whose descent at a rate of one is the logistic map w → 4 w (1 - w), which doubles any
    error each step."""
    subject = Subject(
        backends.get("torch").wrap(Weight()),
        lambda net, x: (power(net(x)) - 1.5 * net(x) ** 2).sum(),
    )
    return subject.but(
        optimizers={"sgd": lambda net: net.backend.optimizer(rules.rule("sgd", lr=1.0), net)}
    )


def test_rounding_that_free_steps_magnify_is_no_mistake_and_a_mistake_is():
    one, batches = _chaotic(lambda w: 4.0 / 3.0 * w * w * w), [(np.ones(1),)]
    other, wrong = (
        _chaotic(lambda w: w * (w * (w / 3.0)) * 4.0),
        _chaotic(lambda w: (4.0 / 3.0 + 1e-9) * w * w * w),
    )
    level = curve.level(one, other, batches, 30)
    assert level.status == "passed" and 1e-10 < level.worst < 1e-4, level
    assert "magnify rounding" in level.notes[0]
    assert curve.level(one, wrong, batches, 30).status == "failed"
