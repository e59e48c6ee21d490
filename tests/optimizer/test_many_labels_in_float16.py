"""Networks of float16 with more labels in a batch than float16 can count, 65,504: loss and gradient
are PyTorch's in double precision."""

import numpy as np
import pytest
import torch

from deliralike import DataParallel, Network, build, in_replicas
from deliralike.optim.loss import as_loss
from deliralike.optim.rules import rule
from tests.parallel.networks import devices

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 1, 150, 300)).astype(np.float16)
LABELS = RNG.integers(0, 3, (2, 150, 300))  # 90,000 of them
WEIGHTS = [0.5, 1.0, 2.0]


class Scores(Network):
    """One factor for each class."""

    def __init__(self):
        super().__init__()
        self.conv = self.nn.Conv2d(1, 3, 1, bias=False)

    def forward(self, x):
        return self.conv(x)


def mean(network, x, y):
    return network.nn.cross_entropy(network(x), y, weight=WEIGHTS)


def counted(network, x, y):
    total = network.nn.sum(network(x) * x) * 1e-3
    return total, network.nn.sum(y * 0 + 1)


def wanted(network, loss):
    """The loss and the gradient of the factors."""
    factors = network.neutral_state()["conv.weight"].astype(np.float64)
    factors = torch.tensor(factors, requires_grad=True)
    x = torch.tensor(X, dtype=torch.float64)
    scores = torch.nn.functional.conv2d(x, factors)
    if loss is counted:
        value = (scores * x).sum() * 1e-3 / LABELS.size
    else:
        weights = torch.tensor(WEIGHTS, dtype=torch.float64)
        labels = torch.tensor(LABELS)
        value = torch.nn.functional.cross_entropy(scores, labels, weights)
    value.backward()
    return value.item(), factors.grad.numpy()


@pytest.mark.parametrize(
    ("loss", "replicas", "micro_batches"),
    [(mean, 1, 1), (mean, 2, 1), (mean, 1, 2), (counted, 2, 1)],
)
def test_a_batch_of_many_labels_has_its_mean_and_gradient(
    backend, loss, replicas, micro_batches
):
    network = build(Scores.on(backend), dtype="float16")
    value, gradient = wanted(network, loss)
    before = network.neutral_state()["conv.weight"].astype(np.float64)
    if replicas > 1:
        network = DataParallel(network, devices(backend, replicas))
    function = in_replicas(loss, "denominator" if loss is counted else "mean")
    optimizer = backend.optimizer(rule("sgd", lr=1.0), network)
    optimizer.accumulate = micro_batches
    for _ in range(micro_batches):
        found = optimizer.update(function, X, LABELS)
    found = backend.number(backend.nn.stop_gradient(found))
    assert found == pytest.approx(value, rel=1e-2, abs=1e-6)
    after = network.neutral_state()["conv.weight"].astype(np.float64)
    np.testing.assert_allclose(before - after, gradient, rtol=0.02, atol=2e-3)


def test_the_loss_of_many_labels_comes_with_what_it_was_divided_by(backend):
    network = build(Scores.on(backend), dtype="float16")
    loss = as_loss(mean).recorded().with_denominator()
    batch = backend.prepare((X, LABELS), network)
    value, denominator = loss(network, *batch)
    value = backend.number(backend.nn.stop_gradient(value))
    assert value == pytest.approx(wanted(network, mean)[0], rel=1e-2)
    assert backend.number(denominator) == np.take(WEIGHTS, LABELS).sum()
