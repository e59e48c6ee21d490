"""Which parameters a loss does not reach: named, and nothing of the network is changed by
looking."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, in_replicas
from deliralike.network.anomalies import Anomalies
from deliralike.optim.rules import rule
from tests.parallel.networks import devices

X = np.random.default_rng(2).normal(size=(7, 3))


class Branches(Network):
    """A layer that is used, one that is not, one behind a ReLU that is never active, one that gives
    no number.

    The normalisation stands before the layer that is used: behind it, the bias's gradient would be
    zero up to rounding.
    """

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)
        self.dead, self.broken = nn.Linear(3, 2), nn.Linear(3, 2, bias=False)
        self.bn, self.dropout = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x, bad=1.0):
        nn = self.nn
        dead = nn.relu(nn.abs(self.dead(x)) * 0.0 - 1.0)
        return self.dropout(self.used(self.bn(x))) + dead + self.broken(x) * bad


def loss(network, x, bad):
    y = network(x, bad)
    return network.nn.mean(y * y)


def build(backend, count=1):
    backend.seed(4)  # what dropout keeps, alone and in replicas
    net = Branches.on(backend, dtype="float64")()
    return DataParallel(net, devices(backend, count)) if count > 1 else net


@pytest.mark.parametrize(("count", "inside"), [(1, False), (2, False), (2, True)])
def test_unused_and_zero_parameters_are_named_apart(backend, count, inside):
    net = build(backend, count)
    found = net.detect_anomalous_params(in_replicas(loss) if inside else loss, X, 1.0)
    assert found == Anomalies(
        unused=("unused.weight", "unused.bias"), zero=("dead.weight", "dead.bias")
    )
    assert found
    assert str(found) == (
        "took no part in the loss: unused.weight, unused.bias\n"
        "took part, but have a gradient of zero: dead.weight, dead.bias"
    )


def test_gradients_that_are_not_finite_are_named(backend):
    found = build(backend).detect_anomalous_params(loss, X, float("nan"))
    assert "broken.weight" in found.not_finite and Anomalies(
        not_finite=found.not_finite
    )
    assert set(found.unused) == {"unused.weight", "unused.bias"}
    assert "have a gradient that is not finite: " in str(found)


@pytest.mark.parametrize("count", [1, 2])
def test_looking_changes_neither_weights_nor_buffers_nor_modes_nor_what_follows(
    backend, count
):
    """Two networks take the same steps, native dropout included; in one of them somebody looks
    before the second."""

    def run(looks):
        backend.seed(5)
        net = build(backend, count)
        optimizer = backend.optimizer(rule("adam", lr=0.1), net)
        optimizer.update(loss, X, 1.0)
        net.set_trainable("dead.bias", False)
        before = (
            net.neutral_state(),
            [block.training for _, block in net.named_blocks()],
        )
        if looks:
            net.detect_anomalous_params(loss, X, 1.0)
        np.testing.assert_equal(net.neutral_state(), before[0])
        assert [block.training for _, block in net.named_blocks()] == before[1]
        optimizer.update(loss, X, 1.0)
        return net.neutral_state()

    looked, plain = run(True), run(False)
    np.testing.assert_equal(looked, plain)
