"""Buffers: what the declared policies make of running statistics, and synchronised batch
normalisation."""

import importlib

import numpy as np
import pytest
from numpy.testing import assert_allclose

from deliralike import DataParallel, Network, in_replicas
from tests.arrays import same_named
from tests.losses import mean_square
from tests.parallel import native_norms
from tests.parallel.networks import built, devices, optimizer_of, replicated

RNG = np.random.default_rng(2)


class Norm(Network):
    """Batch normalisation alone, with a weight and bias that are not one and zero."""

    def __init__(self, n=1, momentum=0.1):
        super().__init__()
        self.bn = (self.nn.BatchNorm1d if n == 1 else self.nn.BatchNorm2d)(
            3, momentum=momentum
        )

    def forward(self, x):
        return self.bn(x)


class Counting(Network):
    """A buffer of whole numbers and a floating one, both changed by what the replica sees."""

    def __init__(self):
        super().__init__()
        self.seen = self.nn.Buffer(np.zeros((), np.int64))
        self.level = self.nn.Buffer(np.zeros(2))
        self.fc = self.nn.Linear(2, 2)

    def forward(self, x):
        self.seen = self.seen + x.shape[0]
        self.level = self.level + self.nn.mean(x, dim=0)
        return self.fc(x)


def run(network, *inputs):
    return network.backend.to_numpy(network(*network.backend.prepare(inputs, network)))


def statistics(x):
    return x.mean(0), x.var(0, ddof=1)


# Local policies
# -----------------------------------------------------------------------------


def running(batches, sizes, policy):
    """Running mean and variance in NumPy, from the shares of each batch."""
    mean, var = np.zeros(3), np.ones(3)
    for x in batches:
        found = [statistics(share) for share in np.split(x, np.cumsum(sizes)[:-1])]
        means = [0.9 * mean + 0.1 * each for each, _ in found]
        variances = [0.9 * var + 0.1 * each for _, each in found]
        share = [1.0, 0.0, 0.0] if policy == "root" else np.array(sizes) / sum(sizes)
        mean, var = np.average(means, 0, share), np.average(variances, 0, share)
    return {
        "bn.running_mean": mean,
        "bn.running_var": var,
        "bn.num_batches_tracked": np.array(len(batches)),
    }


@pytest.mark.parametrize("policy", ["root", "mean"])
def test_running_statistics_follow_the_policy_in_every_replica(backend, policy):
    batches, network = (
        RNG.normal(2, 3, size=(3, 8, 3)),
        replicated(backend, 3, network=Norm, settings={"buffers": policy}),
    )
    for x in batches:
        outputs = run(network, x)
    wanted = running(batches, (3, 3, 2), policy)
    for replica in network.replicas:
        found = {
            name: value
            for name, value in replica.neutral_state().items()
            if name in wanted
        }
        same_named(found, wanted)
    shares = np.split(batches[-1], [3, 6])
    local = np.concatenate(
        [(share - share.mean(0)) / np.sqrt(share.var(0) + 1e-5) for share in shares]
    )
    assert_allclose(outputs, local, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("policy", ["root", "mean"])
def test_the_policy_holds_in_updates_too(backend, policy):
    """Also with the loss in the replicas; the parameters of batch normalisation do not reach its
    statistics."""
    x = RNG.normal(2, 3, size=(8, 3))
    for wrap in (lambda loss: loss, in_replicas):
        network = replicated(backend, 3, network=Norm, settings={"buffers": policy})
        optimizer = optimizer_of(network)
        loss = wrap(mean_square)
        for _ in range(2):
            optimizer.update(loss, x)
        wanted = running([x, x], (3, 3, 2), policy)
        for replica in network.replicas:
            state = replica.neutral_state()
            same_named({name: state[name] for name in wanted}, wanted)


@pytest.mark.parametrize(
    ("policy", "level"), [("root", [1.0, 2.0]), ("mean", [2.2, 3.2])]
)
def test_whole_numbers_are_the_roots_and_floats_follow_the_policy(
    backend, policy, level
):
    network = replicated(backend, 2, network=Counting, settings={"buffers": policy})
    x = np.array([[1.0, 2.0]] * 3 + [[4.0, 5.0]] * 2)
    run(network, x)
    for replica in network.replicas:
        state = replica.neutral_state()
        assert (state["seen"], state["seen"].dtype) == (3, np.int64)
        assert_allclose(state["level"], level, rtol=1e-14)


def test_replicas_that_took_no_part_do_not_count(backend):
    network = replicated(backend, 4, network=Counting, settings={"buffers": "mean"})
    run(network, np.array([[1.0, 2.0], [3.0, 6.0]]))
    for replica in network.replicas:
        assert_allclose(replica.neutral_state()["level"], [2.0, 4.0], rtol=1e-14)


# Synchronised
# -----------------------------------------------------------------------------


def shares_of(sizes, monkeypatch):
    scatter = importlib.import_module(
        "deliralike.parallel.batches.scatter"
    )  # of that name there is a function, too
    monkeypatch.setattr(scatter, "partition", lambda size, parts: sizes)


@pytest.mark.parametrize("kind", native_norms.KINDS)
def test_a_frameworks_own_batch_norm_is_synchronised_wherever_it_stands(backend, kind):
    """In a subclass of the native base, and as a layer of a portable network; by NumPy, over the
    whole batch."""
    rows = RNG.normal(1, 2, size=(7, native_norms.CHANNELS))
    network = DataParallel(
        native_norms.KINDS[kind](backend.name), devices(backend, 3), buffers="sync"
    )
    found, wanted = (
        native_norms.stepped(network, rows),
        native_norms.stepped_by_numpy(backend.name, rows),
    )
    same_named(found, wanted, 1e-10)


def weighted_sum(network, x, cotangent):
    return network.nn.sum(network(x) * cotangent)


SHARES = [((1, 1, 1, 1), 1), ((4, 4), 2), ((1, 4), 1), ((2, 1, 4), 2)]


@pytest.mark.parametrize(("sizes", "n"), SHARES)
def test_synchronised_statistics_are_those_of_the_whole_batch(
    backend, monkeypatch, sizes, n
):
    """Output, gradients of input, weight and bias, running statistics: against one network and
    against NumPy."""
    shape = (sum(sizes), 3) if n == 1 else (sum(sizes), 3, 3, 2)
    x, cotangent = RNG.normal(1, 2, size=(2, *shape))
    state = {
        "bn.weight": RNG.normal(size=3),
        "bn.bias": RNG.normal(size=3),
        "bn.running_mean": RNG.normal(size=3),
        "bn.running_var": RNG.uniform(1, 2, size=3),
        "bn.num_batches_tracked": np.array(4),
    }
    shares_of(sizes, monkeypatch)
    network = replicated(
        backend, len(sizes), n, network=Norm, settings={"buffers": "sync"}
    )
    of_replicas, of_one = (
        backend.gradients(weighted_sum, loaded(each, state), x, cotangent)
        for each in (network, built(backend, Norm, n))
    )
    assert of_replicas.loss == pytest.approx(of_one.loss, rel=1e-12)
    same_named(of_replicas.parameters, of_one.parameters, where="gradients")
    for mine, other in zip(
        of_replicas.inputs, of_one.inputs, strict=True
    ):  # that of the cotangent is the output
        assert_allclose(mine, other, rtol=1e-12, atol=1e-12)
    rows = np.moveaxis(x, 1, -1).reshape(-1, 3)
    mean, var = statistics(rows)
    after = network.neutral_state()
    assert_allclose(
        after["bn.running_mean"],
        0.9 * state["bn.running_mean"] + 0.1 * mean,
        rtol=1e-12,
    )
    assert_allclose(
        after["bn.running_var"], 0.9 * state["bn.running_var"] + 0.1 * var, rtol=1e-12
    )
    assert after["bn.num_batches_tracked"] == 5
    for replica in network.replicas[1:]:
        same_named(replica.neutral_state(), after, tolerance=1e-14)


def loaded(network, state):
    network.load_neutral_state(state)
    return network


# Instance normalisation
# -----------------------------------------------------------------------------


class InstanceNorm(Network):
    """Instance normalisation alone, with running statistics."""

    def __init__(self):
        super().__init__()
        self.norm = self.nn.InstanceNorm1d(3, affine=True, track_running_stats=True)

    def forward(self, x):
        return self.norm(x)


def test_running_statistics_of_instances_are_those_of_the_whole_batch(backend):
    settings = {"buffers": "sync"}
    network = replicated(backend, 2, network=InstanceNorm, settings=settings).train()
    batches = [RNG.normal(1.0, 2.0, (5, 3, 4)) for _ in range(2)]  # shares of 3 and 2
    mean, var = np.zeros(3), np.ones(3)
    for x in batches:
        run(network, x)
        mean = 0.9 * mean + 0.1 * x.mean(2).mean(0)
        var = 0.9 * var + 0.1 * x.var(2, ddof=1).mean(0)
    state = network.neutral_state()
    assert_allclose(state["norm.running_mean"], mean, rtol=1e-12)
    assert_allclose(state["norm.running_var"], var, rtol=1e-12)
