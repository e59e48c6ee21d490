"""The loss of data does not depend on their batches: it is that of PyTorch on all of them."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from deliralike import DataParallel, data, in_replicas, rules
from deliralike.training import Trainer
from deliralike.training.validation_losses import mean_by_weights
from tests.losses import cross_entropy
from tests.parallel.networks import devices
from tests.training.networks import Linear

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(10, 4)), RNG.integers(0, 3, 10)
IGNORED = np.where(
    np.isin(np.arange(10), [0, 1, 2, 5, 6]), -100, Y
)  # no label in the first three

WEIGHTS = np.array([1.0, 5.0, 0.2])

pytestmark = pytest.mark.filterwarnings("ignore:cross_entropy. every label is ignored")


def built(backend):
    return Linear.on(backend.name, seed=0, dtype="float64")()


def summed(network, x, labels):
    nn = network.nn
    return nn.cross_entropy(network(x), labels, reduction="sum"), nn.sum(labels != -100)


def class_weights(network):
    weight = network.backend.array(WEIGHTS)
    return {
        "ce": lambda scores, labels: network.nn.cross_entropy(scores, labels, weight)
    }


CASES = {
    # name: (the losses for a network, the weights of the classes)
    "default": (lambda network: None, None),
    "class weights": (class_weights, WEIGHTS),
    "a function": (lambda network: cross_entropy, None),
    "a declared denominator": (
        lambda network: in_replicas(summed, "denominator"),
        None,
    ),
}


def by_pytorch(network, weights, labels=IGNORED):
    """The loss on all data at once, and the weight matrix after a step of it."""
    state = network.neutral_state()
    weight = torch.tensor(state["fc.weight"], requires_grad=True)
    scores = torch.from_numpy(X) @ weight.T + torch.from_numpy(state["fc.bias"])
    weights = None if weights is None else torch.from_numpy(weights)
    loss = functional.cross_entropy(scores, torch.from_numpy(labels), weights)
    loss.backward()
    return loss.item(), (weight - 0.5 * weight.grad).detach().numpy()


@pytest.mark.parametrize("case", CASES)
def test_the_loss_of_validation_is_that_of_all_data_at_once(backend, case):
    losses, weights = CASES[case]
    network = built(backend)
    wanted, _ = by_pytorch(network, weights)
    trainer = Trainer(network, rules.rule("sgd", lr=0.5), losses(network))
    for batch_size in (10, 4, 3):
        found = trainer.evaluate((X, IGNORED), batch_size=batch_size)["loss"]
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_an_accumulated_update_and_its_logged_loss_are_those_of_all_data_at_once(
    backend, case
):
    losses, weights = CASES[case]
    network = built(backend)
    wanted, matrix = by_pytorch(network, weights)
    trainer = Trainer(network, rules.rule("sgd", lr=0.5), losses(network), accumulate=4)
    history = trainer.fit(data.Loader((X, IGNORED), 3, shuffle=False))
    assert history.losses == pytest.approx([wanted], rel=1e-12)
    np.testing.assert_allclose(network.neutral_state()["fc.weight"], matrix, rtol=1e-12)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_means_in_replicas_are_weighted_by_the_labels_that_count(backend, accumulate):
    network = built(backend)
    wanted, matrix = by_pytorch(network, None)
    trainer = Trainer(
        DataParallel(network, devices(backend, 2)),
        rules.rule("sgd", lr=0.5),
        in_replicas(cross_entropy),
        accumulate=accumulate,
    )
    history = trainer.fit(
        data.Loader((X, IGNORED), -(-10 // accumulate), shuffle=False)
    )
    assert history.losses == pytest.approx([wanted], rel=1e-12)
    np.testing.assert_allclose(
        trainer.network.neutral_state()["fc.weight"], matrix, rtol=1e-12, atol=1e-14
    )


def test_each_of_several_losses_of_validation_has_its_own_denominator(backend):
    network = built(backend)
    nn = network.nn
    losses = {
        "ce": nn.cross_entropy,
        "size": lambda scores, labels: nn.mean(scores * scores),
    }
    trainer = Trainer(network, rules.rule("sgd", lr=0.5), losses)
    wanted, _ = by_pytorch(network, None)
    state = network.neutral_state()
    size = ((X @ state["fc.weight"].T + state["fc.bias"]) ** 2).mean()
    assert trainer.evaluate((X, IGNORED), batch_size=3) == {
        "loss": pytest.approx(wanted + size, rel=1e-12),
        "ce": pytest.approx(wanted, rel=1e-12),
        "size": pytest.approx(size, rel=1e-12),
    }


def test_data_without_a_label_that_counts_have_a_loss_of_zero_as_their_batches():
    network = Linear.on("torch", dtype="float64")()
    trainer = Trainer(network, rules.rule("sgd", lr=0.5))
    assert trainer.evaluate((X, np.full(10, -100)), batch_size=4) == {"loss": 0.0}


def test_the_loss_of_a_batch_without_a_label_that_counts_may_be_nan():
    assert mean_by_weights([np.nan, 2.0, 5.0], [0, 1, 3]) == 4.25
