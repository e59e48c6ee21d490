"""Level L6: right replicas pass for any number and loss, and what is wrong or out of reach is
told."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from flax import nnx

from deliralike import DataParallel, Network, backends, in_replicas
from deliralike.backends.base import Backend
from deliralike.conformance import compare
from deliralike.conformance.explain.share_norms import Norms
from deliralike.conformance.explain.shares import Shares
from deliralike.conformance.findings import FAILED, NOT_REACHED, PASSED
from deliralike.conformance.levels import replicas
from deliralike.conformance.one_step import take_step, take_updates
from deliralike.conformance.subject import Subject
from deliralike.errors import CapabilityError
from deliralike.optim.clipping import ClipNorm
from deliralike.optim.rules import rule
from deliralike.parallel import partition
from tests.conftest import BACKENDS
from tests.planted import replicas as planted
from tests.planted.fixtures import fixture
from tests.planted.replica_mistakes import (
    Weighting,
    batch_norm,
    counting,
    right_statistics,
    with_class,
    with_hooks,
)

LOSSES = {
    "in replicas, by a denominator": lambda: in_replicas(planted.sum_and_weight, "denominator"),
    "on gathered outputs": lambda: planted.gathered_loss,
    "in replicas, the mean": lambda: in_replicas(cross_entropy),
}


def cross_entropy(network, x, labels):
    return network.nn.cross_entropy(network(x), labels)


def right(backend="torch", loss="in replicas, by a denominator"):
    return planted.subject(backend, LOSSES[loss]())


class OnTorch(torch.nn.Module):
    """Channels first."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.Linear(90, 4)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


class OnFlax(nnx.Module):
    """The same with channels last, and other names."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Conv(2, 3, (3, 3), padding=1, rngs=rngs)
        self.last = nnx.Linear(90, 4, rngs=rngs)

    def __call__(self, x):
        y = jax.nn.relu(self.first(x)).transpose(0, 3, 1, 2)
        return self.last(y.reshape(len(x), 90))


def causes(found):
    return [
        each.explanation.cause
        for each in found.findings
        if each.explanation is not None and each.explanation.known
    ]


# Right replicas
# -----------------------------------------------------------------------------


def test_a_right_port_of_another_layout_is_proved_over_replicas():
    batch = np.random.default_rng(0).normal(size=(7, 2, 5, 6)), np.arange(7) % 4
    options = {"loss": planted.gathered_loss, "weights": "load", "levels": ("L0", "L1", "L6")}
    found = compare(OnTorch(), OnFlax(), batch, replicas=(2,), **options)
    assert found.proved, found


@pytest.mark.parametrize(
    ("backend", "loss", "counts"),
    [(name, loss, (1, 2, 3, 4)) for name in ("torch", "chainer") for loss in LOSSES]
    + [("jax", "in replicas, by a denominator", (3,))],
)
def test_right_replicas_pass_for_any_number(backend, loss, counts):
    """Batch norm, dropout, class weights, ignored labels, clipping; shares of unequal size."""
    found = replicas.level(right(loss=loss), right(backend, loss), planted.batch(), counts)
    assert (found.status, found.findings, found.notes) == (PASSED, (), ())
    assert set(found.figures["differences"]) == {str(count) for count in counts}
    assert found.worst < 1e-12


@pytest.mark.parametrize("seed", range(2))
def test_no_false_alarm_for_any_seed(seed):
    random = np.random.default_rng(seed)
    batch = random.normal(0.2, 1.4, (7, 2, 5, 7)), random.permutation([0, 1, 3, 0, 1, 2, 3])
    found = replicas.level(right(), right("torch"), batch, (2, 3))
    assert (found.status, found.findings) == (PASSED, ())


def test_a_batch_that_divides_evenly_loses_its_last_sample_on_both_sides():
    seen = {"reference": set(), "candidate": set()}

    def side(name):
        def loss(network, x, labels):
            seen[name].add(len(labels))
            return right().loss(network, x, labels)

        return right().but(loss=loss)

    found = replicas.level(side("reference"), side("candidate"), planted.batch(6), (3, 4))
    assert found.status == PASSED
    assert found.notes == (
        "3 replicas: the last of 6 samples is left out, so that shares are unequal.",
    )
    assert seen == {"reference": {5, 6}, "candidate": {5, 6}}


def test_networks_are_left_as_they_were():
    reference, candidate = right(), right("chainer" if "chainer" in BACKENDS else "torch")
    before = [subject.network.neutral_state() for subject in (reference, candidate)]
    replicas.level(reference, candidate, planted.batch(), (2,))
    for state, subject in zip(before, (reference, candidate), strict=True):
        for name, value in subject.network.neutral_state().items():
            np.testing.assert_array_equal(value, state[name])


@pytest.mark.parametrize("name", ["tasks", "recurrent"])
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "jax"])
def test_inputs_are_what_the_loss_hands_to_the_network(backend, name):
    """Two targets after the input: everything but the last argument is not the same as the
    inputs."""
    (reference, batch), (candidate, _) = fixture(name, "torch"), fixture(name, backend)
    found = replicas.level(reference, candidate, batch, (1, 2))
    assert (found.status, found.findings) == (PASSED, ())


class BiasBeforeNorm(Network):
    def __init__(self):
        super().__init__()
        self.first, self.bn, self.fc = (
            self.nn.Linear(3, 4),
            self.nn.BatchNorm1d(4),
            self.nn.Linear(4, 4),
        )

    def forward(self, x):
        return self.fc(self.nn.tanh(self.bn(self.first(x))))


def test_null_gradients_are_named_and_their_updates_do_not_count():
    """Adam makes full steps of the rounding errors in the gradient of a bias before a norm."""
    adam = {"adam": lambda network: network.backend.optimizer(rule("adam", lr=0.01), network)}
    sides = [
        Subject(BiasBeforeNorm.on("torch", dtype="float64")(), optimizers=adam) for _ in range(2)
    ]
    batch = np.random.default_rng(0).normal(size=(7, 3)), np.arange(7) % 4
    found = replicas.level(*sides, batch, (2,))
    assert found.status == PASSED
    assert found.notes == (
        "2 replicas: gradients of zero up to rounding, not compared: first.bias.",
    )


class AtRest(Network):
    """Two weights; for `AT_REST` the first has a gradient of rounding errors, since it is where it
    is best."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(2, 1, bias=False)

    def forward(self, x):
        return self.fc(x)


AT_REST = np.array([[0.1, 0.0], [0.7, 0.0], [0.3, 0.0], [0.0, 0.9], [0.0, 1.1]])
BESIDE = np.array(
    [[0.5], [-0.2], [0.3], [0.0], [0.0]]
)  # residuals that cancel: 0.1 * 0.5 - 0.7 * 0.2 + 0.3 * 0.3 = 0


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_rounding_that_an_optimizer_magnifies_is_no_mistake_and_a_mistake_is(backend):
    """Adam moves the first weight by its rounding errors over 5e-8, and these depend on the order
    of the sums."""

    def subject(backend, factor=1.0):
        network = AtRest.on(backend, dtype="float64")()
        network.load_neutral_state({"fc.weight": np.array([[0.7, -0.3]])})
        loss = in_replicas(lambda net, x, y: factor * ((net(x) - y) ** 2).mean())
        adam = {"adam": lambda net: net.backend.optimizer(rule("adam", lr=0.01, eps=5e-8), net)}
        return Subject(network, loss, optimizers=adam)

    batch = AT_REST, AT_REST @ np.array([[0.7], [0.4]]) + BESIDE
    found = replicas.level(subject("torch"), subject(backend), batch, (2, 3))
    assert found.status == PASSED and 1e-10 < found.worst < 1e-4, found
    assert "rounding is magnified here" in found.notes[0] and "update by adam" in found.notes[0]
    assert (
        replicas.level(subject("torch"), subject(backend, 1 + 1e-8), batch, (3,)).status == FAILED
    )


def test_without_optimizers_gradient_descent_is_compared(monkeypatch):
    subject = right().but(optimizers={})
    wanted = take_updates(subject, subject.network, planted.batch())
    assert list(wanted) == ["update by sgd", "second update by sgd"]
    gradient = take_step(subject, subject.network, planted.batch())["gradient"]["fc.bias"]
    np.testing.assert_allclose(wanted["update by sgd"]["fc.bias"], -0.1 * gradient, rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_is_what_the_backend_says_of_loss_and_gradients(backend):
    """Measured by what an optimizer moves, and told by the backend."""
    subject = right(backend, "on gathered outputs").but(
        network=planted.Statistical.on(backend, dtype="float64")(p=0.0)
    )
    step = take_step(subject, subject.network, planted.batch())
    told = subject.network.backend.gradients(subject.loss, subject.network, *planted.batch())
    assert step["loss"]["loss"] == pytest.approx(told.loss, rel=1e-14)
    for name, value in told.parameters.items():
        np.testing.assert_allclose(step["gradient"][name], value, rtol=1e-11, atol=1e-15)


# Out of reach
# -----------------------------------------------------------------------------


def test_a_backend_without_replicas_is_not_reached():
    candidate = right().but(
        replicate=lambda network, count: Backend.replicate(network.backend, network, None)
    )
    found = replicas.level(right(), candidate, planted.batch(), (2, 3))
    assert (found.status, found.findings, found.worst) == (NOT_REACHED, (), None)
    assert (
        found.notes[0]
        == "2 replicas: not reached: backend 'torch' has no replicated networks: use one device"
    )


@pytest.mark.skipif("jax" not in BACKENDS, reason="JAX is left out")
def test_too_few_devices_are_told_with_how_to_get_more():
    """A backend whose replicas run in threads may share a device; there are never too few."""
    found = replicas.level(right(), right("jax"), planted.batch(37), (30,))
    assert found.status == NOT_REACHED
    assert found.notes[0].startswith("30 replicas: not reached: ")
    assert "JAX_NUM_CPU_DEVICES" in found.notes[0]


def test_one_number_out_of_reach_leaves_the_level_open():
    found = replicas.level(right(), right(), planted.batch(), (3, 8))
    assert (found.status, list(found.figures["differences"])) == (NOT_REACHED, ["3"])
    assert found.notes == ("8 replicas: not reached: 7 samples are too few.",)


def test_what_a_candidate_raises_is_a_finding():
    def broken(network, count):
        return with_class(replicas.replicated(network, count), forward=fail)

    def fail(self, x):
        raise ValueError("no such share")

    found = replicas.level(right(), right().but(replicate=broken), planted.batch(), (2,))
    assert found.status == FAILED
    assert (found.findings[0].place, found.findings[0].what) == ("replicas 2", "step")
    assert found.findings[0].remarks == ("The candidate raised ValueError: no such share",)


# Explanations
# -----------------------------------------------------------------------------


def shares_of(subject, count=3):
    batch = planted.batch()
    return Shares(subject, batch, count, take_step(subject, subject.network, batch))


@pytest.mark.parametrize("loss", ["in replicas, by a denominator", "on gathered outputs"])
def test_what_shares_count_is_found_without_knowing_the_loss(loss):
    """Their part of the class weights of labels that are not ignored."""
    labels = planted.batch()[1]
    counted = np.where(labels == planted.IGNORED, 0.0, planted.CLASS_WEIGHTS[labels])
    parts = [
        part.sum() / counted.sum() for part in np.split(counted, np.cumsum(partition(7, 3))[:-1])
    ]
    np.testing.assert_allclose(shares_of(right(loss=loss)).weights, parts, rtol=1e-12)


def test_shares_count_by_their_sizes_where_the_loss_is_not_made_of_their_means():
    """The squares of each class's mean are no sum of the shares' squares."""

    def squared(network, x, labels):
        y = network.nn.mean(network(x), 0)
        return network.nn.sum(y * y)

    np.testing.assert_allclose(shares_of(right().but(loss=squared)).weights, [3 / 7, 2 / 7, 2 / 7])


def test_statistics_that_are_written_out_by_hand_change_nothing():
    """So it is the mistake that is found of those that are planted in them."""
    rewritten = batch_norm(right_statistics)(right())
    found = replicas.level(right(), rewritten, planted.batch(), (3,))
    assert (found.status, found.findings) == (PASSED, ())


class OnesOwnNorm(torch.nn.Module):
    """A batch norm over the last axis, of a class that nobody knows."""

    def __init__(self):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.tensor([0.2, -0.4, 1.5]))
        self.spread = torch.nn.Parameter(torch.tensor([1.3, 0.6, -0.7]))
        self.register_buffer("seen", torch.tensor([0.3, 0.1, -0.2]))
        self.register_buffer("wide", torch.tensor([1.1, 0.7, 2.0]))

    def forward(self, x):
        mean, var = x.mean((0, 1)), x.var((0, 1), correction=0)
        count = len(x) * x.shape[1]
        self.seen = 0.75 * self.seen + 0.25 * mean.detach()
        self.wide = 0.6 * self.wide + 0.4 * var.detach() * count / (count - 1)
        return (x - mean) / torch.sqrt(var + 3e-3) * self.spread + self.shift


def test_what_a_norm_of_ones_own_is_shows_in_its_call():
    native = torch.nn.Sequential(torch.nn.Linear(3, 3), OnesOwnNorm()).double()
    subject = Subject(backends.get("torch").wrap(native), lambda net, x: (net(x) ** 3).mean())
    batch = (np.random.default_rng(0).normal(size=(7, 5, 3)),)
    shares = Shares(subject, batch, 3, take_step(subject, subject.network, batch))
    (path, norm), *others = Norms(shares).norms.items()
    assert (path, norm.axis, norm.weight, norm.bias, others) == ("1", 2, "1.spread", "1.shift", [])
    assert norm.eps == pytest.approx(3e-3, rel=1e-9)
    rates = {name: (pytest.approx(rate), kind) for name, (rate, kind) in norm.rates.items()}
    assert rates == {"1.seen": (0.25, False), "1.wide": (0.4, True)}


def test_an_explanation_needs_no_replicas_of_the_reference():
    """Those that do are left out: nothing fits then, and it is said so."""

    def none(network, count):
        raise CapabilityError("none here")

    lost = partial(with_hooks, before=partial(Weighting, factors=lambda count: [1.0, 0.0]))
    wrong = right().but(replicate=lambda network, count: lost(replicas.replicated(network, count)))
    found = replicas.level(right().but(replicate=none), wrong, planted.batch(), (2,))
    assert found.status == FAILED
    assert not causes(found)
    assert "Cause unknown" in str(found.findings[0])
    assert causes(replicas.level(right(), wrong, planted.batch(), (2,))) == [
        "only the gradient of replica 0 is used"
    ]


# Mistakes that no list names
# -----------------------------------------------------------------------------


def cause_of(candidate, count=3, reference=None):
    found = replicas.level(reference or right(), candidate, planted.batch(), (count,))
    assert found.status == FAILED
    return " | ".join(causes(found))


def but_replicated(change):
    """The right candidate whose replicated network is changed."""
    return right().but(replicate=lambda network, count: change(replicas.replicated(network, count)))


def with_lr_times_count(network):
    count = len(network.settings.places) if network.parallelism.is_replicated else 1
    return network.backend.optimizer(rule("sgd", lr=0.1 * count), network)


def test_a_learning_rate_that_grows_with_the_replicas():
    plain = {"sgd": lambda network: network.backend.optimizer(rule("sgd", lr=0.1), network)}
    wrong, reference = (
        right().but(optimizers={"sgd": with_lr_times_count}),
        right().but(optimizers=plain),
    )
    assert "updates times 3 (the learning rate)" in cause_of(wrong, reference=reference)


@pytest.mark.parametrize("count", [2, 4])
def test_other_numbers_of_replicas_are_explained_as_well(count):
    wrong = right().but(loss=counting(right().loss, lambda sizes: [1 / len(sizes)] * len(sizes)))
    assert "the mean of the shares' means" in cause_of(wrong, count)


def test_a_loss_on_gathered_outputs_and_shares_normalised_by_themselves():
    wrong = right(loss="on gathered outputs").but(
        replicate=lambda network, count: DataParallel(network, ["cpu"] * count, buffers="mean")
    )
    reference = right(loss="on gathered outputs")
    found = cause_of(wrong, reference=reference)
    assert "taken by itself, not synchronised" in found
    assert "averaged by the sizes of the shares" in found


def test_clipping_and_its_bound_belong_to_the_whole_gradient():
    """A bound that no gradient reaches hides the mistake, as it should."""

    def loose(network):
        optimizer = network.backend.optimizer(rule("sgd", lr=0.1), network)
        optimizer.pre_update_hooks.append(ClipNorm(1e6))
        return optimizer

    (mistake,) = [
        each for each in planted.MISTAKES if each.name == "replicas: clip before accumulation"
    ]
    sides = [right().but(optimizers={"sgd": loose}) for _ in range(2)]
    assert replicas.level(sides[0], mistake.plant(sides[1]), planted.batch(), (3,)).status == PASSED


def test_the_plainest_of_several_causes_is_named():
    """Every share's weight times 1.2 is the whole loss times 1.2; the outputs stay unexplained."""

    def forward(self, x):
        return type(self).__mro__[1].forward(self, x) + 0.5

    def loss(network, x, labels):
        return right().loss(network, x, labels) * 1.2

    wrong = but_replicated(lambda network: with_class(network, forward=forward))
    found = replicas.level(right(), wrong.but(loss=loss), planted.batch(), (2,))
    assert set(causes(found)) == {"loss and gradients times 1.2"}, found.findings
