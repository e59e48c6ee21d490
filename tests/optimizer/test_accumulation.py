"""Accumulation: micro-batches make the update of the big batch, whatever their sizes, losses and
replicas."""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose

from deliralike import DataParallel, Network, backends, in_replicas, random
from deliralike.errors import BatchError, SettingError
from deliralike.optim.rules import rule
from deliralike.parallel.replicas.network import CopyParameters
from tests.arrays import same_named
from tests.losses import cross_entropy, mean_square
from tests.parallel.networks import Small, batch_of, devices

X, Y = batch_of(13)
CUTS = (
    slice(0, 6),
    slice(6, 7),
    slice(7, 13),
)  # of the one sample in the middle the second replica has no share
WEIGHTS = np.array([1.0, 2.0, 0.5, 4.0])
IGNORED = np.where(np.arange(13) % 3 == 1, -100, Y)


def total(network, x, y):
    return network.nn.cross_entropy(network(x), y, reduction="sum")


def weighted(network, x, y):
    """With class weights and ignored labels: the sum, and the weights of the labels that count."""
    nn, scores = network.nn, network(x)
    weight = nn.constant(WEIGHTS, scores)
    kept = y != -100
    counted = nn.select(weight, nn.where(kept, y, y * 0), 0) * nn.cast(kept, scores)
    return nn.cross_entropy(scores, y, weight, reduction="sum"), nn.sum(counted)


class Total:
    """A loss function of one's own that says by an attribute that it is a sum."""

    reduction = "sum"

    def __call__(self, network, x, y):
        return total(network, x, y)


LOSSES = {
    "plain": (cross_entropy, Y),
    "attribute": (Total(), Y),
    "mean": (in_replicas(cross_entropy), Y),
    "sum": (in_replicas(total, "sum"), Y),
    "denominator": (in_replicas(weighted, "denominator"), IGNORED),
}


def build(backend, count=1, p=0.0, name="adam"):
    net = Small.on(backend, dtype="float64")(p=p, norm=False)
    net = DataParallel(net, devices(backend, count)) if count > 1 else net
    return net, backend.optimizer(rule(name, lr=0.05), net)


@cache
def of_the_big_batch(backend, case, p=0.0):
    """The weights after two updates with all samples at once."""
    return after(backend, *LOSSES[case], (slice(None),), p=p)[0]


def after(backend, loss, labels, cuts, count=1, p=0.0):
    """The weights after two updates, and the losses, of micro-batches cut so."""
    net, optimizer = build(backend, count, p)
    optimizer.accumulate = len(cuts)
    losses = []
    for step in range(2):
        with random.portable(seed=3, step=step):
            losses += [optimizer.update(loss, X[cut], labels[cut]) for cut in cuts]
    assert optimizer.steps == 2
    return net.neutral_state(), [float(backend.numpy(value)) for value in losses]


@pytest.mark.parametrize(
    ("case", "count"),
    [
        ("plain", 1),
        ("attribute", 1),
        ("mean", 2),
        ("sum", 2),
        ("denominator", 2),
    ],
)
def test_unequal_micro_batches_make_the_update_of_the_big_batch(backend, case, count):
    loss, labels = LOSSES[case]
    found, _ = after(backend, loss, labels, CUTS, count)
    same_named(found, of_the_big_batch(backend, case))


def test_each_micro_batch_gives_its_own_loss_and_nothing_else(backend):
    _, whole = after(backend, *LOSSES["denominator"], CUTS[:1])
    _, found = after(backend, *LOSSES["denominator"], CUTS)
    assert found[0] == pytest.approx(whole[0], rel=1e-12)
    assert len(found) == 6


@pytest.mark.parametrize("count", [1, 2])
def test_a_partial_window_counts_its_own_samples_alone(backend, count):
    wanted, plain = build(backend)
    plain.update(cross_entropy, X[:7], Y[:7])
    net, optimizer = build(backend, count)
    optimizer.accumulate = 3
    for cut in CUTS[:2]:
        optimizer.update(cross_entropy, X[cut], Y[cut])
    assert (optimizer.steps, optimizer.window_is_open) == (0, True)
    optimizer.flush()
    assert (optimizer.steps, optimizer.window_is_open) == (1, False)
    same_named(net.neutral_state(), wanted.neutral_state())
    optimizer.flush()
    assert optimizer.steps == 1


@pytest.mark.parametrize("count", [1, 2])
def test_dropout_in_micro_batches_is_that_of_the_big_batch(backend, count):
    """Portable masks belong to a sample's index in the window."""
    found, _ = after(backend, cross_entropy, Y, CUTS, count, p=0.5)
    same_named(found, of_the_big_batch(backend, "plain", p=0.5))
    without = of_the_big_batch(backend, "plain")
    assert any(abs(found[name] - without[name]).max() > 1e-3 for name in found)


def test_replicas_are_brought_together_once_a_window(backend, monkeypatch):
    calls = {"accumulate": 0, "copy": 0}

    def counted(kind, method, name):
        original = getattr(kind, method)

        def call(self, *args):
            calls[name] += 1
            return original(self, *args)

        monkeypatch.setattr(kind, method, call)

    net, optimizer = build(backend, 2)
    counted(type(optimizer), "replica_gradients", "accumulate")
    counted(CopyParameters, "__call__", "copy")
    copies = []
    copy = type(net).copy_parameters
    monkeypatch.setattr(
        type(net),
        "copy_parameters",
        lambda self, *names: (copies.append(1), copy(self, *names))[1],
    )
    optimizer.accumulate = 3
    for cut in CUTS:
        assert calls == {"accumulate": 0, "copy": 0}
        optimizer.update(in_replicas(cross_entropy), X[cut], Y[cut])
    assert calls == {"accumulate": 1, "copy": 1}
    assert len(copies) == 1


class Pair(Network):
    """Two blocks, each with an optimizer of its own; the loss of the first reaches both."""

    def __init__(self):
        super().__init__()
        self.generator, self.critic = self.nn.Linear(3, 3), self.nn.Linear(3, 1)

    def forward(self, x):
        return self.critic(self.generator(x))


def judged(network, x):
    return network.nn.mean(network.critic(x) * network.critic(x))


def test_windows_of_two_optimizers_stay_apart(backend):
    """Both run backward through the critic, alternately; neither takes gradients of the other.

    The critic moves at its last micro-batch: only the generator's last gradients see the new one.
    By hand in NumPy.
    """
    net = Pair.on(backend, dtype="float64")()
    start = net.neutral_state()
    generator, critic = (
        backend.optimizer(rule("sgd", lr=0.1), net, name)
        for name in ("generator.*", "critic.*")
    )
    generator.accumulate = critic.accumulate = len(CUTS)
    for cut in CUTS:
        critic.update(judged, X[cut])
        generator.update(mean_square, X[cut])
    found = net.neutral_state()
    assert (generator.steps, critic.steps) == (1, 1)
    w, b, v, c = (
        start[name]
        for name in (
            "generator.weight",
            "generator.bias",
            "critic.weight",
            "critic.bias",
        )
    )
    by_critic = 2 * (X @ v.T + c)  # (13, 1)
    new_v, new_c = v - 0.1 * by_critic.T @ X / 13, c - 0.1 * by_critic.mean(0)
    seen = [(v, c)] * 7 + [
        (new_v, new_c)
    ] * 6  # the critic that each sample's generator gradient saw
    hidden = X @ w.T + b
    slopes = np.stack(
        [2 * (h @ v.T + c) * v[0] for h, (v, c) in zip(hidden, seen, strict=True)]
    )  # (13, 3)
    assert_allclose(found["critic.weight"], new_v, atol=1e-12)
    assert_allclose(found["critic.bias"], new_c, atol=1e-12)
    assert_allclose(found["generator.weight"], w - 0.1 * slopes.T @ X / 13, atol=1e-12)
    assert_allclose(found["generator.bias"], b - 0.1 * slopes.mean(0), atol=1e-12)


def test_a_parameter_that_only_one_micro_batch_reaches_counts_all_samples(backend):
    class Branch(Network):
        def __init__(self):
            super().__init__()
            self.always, self.sometimes = self.nn.Linear(3, 4), self.nn.Linear(3, 4)

        def forward(self, x, both):
            return self.always(x) + self.sometimes(x) if both else self.always(x)

    def loss(network, x, y, both):
        return network.nn.sum(network(x, both)) * (1.0 / len(y))

    net = Branch.on(backend, dtype="float64")()
    before = net.neutral_state()
    optimizer = backend.optimizer(rule("sgd", lr=1.0), net)
    optimizer.accumulate = 2
    optimizer.update(loss, X[:8], Y[:8], False)
    optimizer.update(loss, X[8:], Y[8:], True)
    moved = {name: value - net.neutral_state()[name] for name, value in before.items()}
    assert_allclose(moved["always.weight"], [X.mean(0)] * 4, atol=1e-12)
    assert_allclose(moved["sometimes.weight"], [X[8:].sum(0) / 13] * 4, atol=1e-12)


@pytest.mark.parametrize("bad", [0, -1, 1.5, None])
def test_a_window_has_a_whole_number_of_micro_batches(backend, bad):
    _, optimizer = build(backend)
    with pytest.raises(SettingError, match="must be a whole number of at least 1"):
        optimizer.accumulate = bad


def test_the_size_of_a_window_cannot_change_while_it_is_open(backend):
    _, optimizer = build(backend)
    optimizer.accumulate = 3
    optimizer.update(cross_entropy, X[:6], Y[:6])
    with pytest.raises(
        SettingError, match="while micro-batches wait for an update: call flush"
    ):
        optimizer.accumulate = 2
    optimizer.flush()
    optimizer.accumulate = 2
    assert optimizer.accumulate == 2


def test_a_batch_without_arrays_is_an_error_where_samples_count(backend):
    _, optimizer = build(backend)
    optimizer.accumulate = 2
    with pytest.raises(
        BatchError,
        match="a batch needs an array whose axis 0 counts the samples, and this one has",
    ):
        optimizer.update(
            lambda network, scale: network.nn.sum(network.fc.weight) * scale, 2.0
        )
    assert not optimizer.window_is_open


def test_sparse_gradients_are_accumulated():
    """Rows of a table that two micro-batches have in common, and rows that one of them has
    alone."""
    import torch

    backend = backends.get("torch")
    table = torch.nn.Embedding(5, 2, sparse=True, dtype=torch.float64)
    net, before = backend.wrap(table), table.weight.detach().numpy().copy()
    optimizer = backend.wrap_optimizer(torch.optim.SGD(table.parameters(), lr=1.0), net)
    optimizer.accumulate = 2
    for rows in ([0, 1, 1], [1, 4]):
        optimizer.update(
            lambda network, index: network(index).sum(1).mean(), np.array(rows)
        )
    counts = np.array([1, 3, 0, 0, 1])
    assert_allclose(
        before - table.weight.detach().numpy(),
        np.stack([counts, counts], 1) / 5,
        atol=1e-14,
    )
