"""Losses that replicas compute on their own shares are those of the whole batch."""

import numpy as np
import pytest

from deliralike import in_replicas
from deliralike.errors import ArgumentError, SettingError
from deliralike.parallel.loss import InReplicas
from tests.parallel.networks import Convolutional, batch_of, built, cross_entropy, optimizer_of, same_named

WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0])


def summed(network, x, labels):
    return network.nn.cross_entropy(network(x), labels, reduction="sum")


def weighted(network, x, labels):
    """Class weights and ignored labels: what the sum is divided by is neither one nor the number of samples."""
    nn = network.nn
    scores = network(x)
    total = nn.cross_entropy(scores, labels, weight=nn.constant(WEIGHTS, scores), ignore_index=2, reduction="sum")
    return total, denominator(nn, scores, labels)


def denominator(nn, scores, labels):
    counted = WEIGHTS * (np.arange(4) != 2)
    return nn.sum(nn.one_hot(labels, 4, scores) * nn.constant(counted, scores))


def mean_weighted(network, x, labels):
    nn = network.nn
    scores = network(x)
    return nn.cross_entropy(scores, labels, weight=nn.constant(WEIGHTS, scores), ignore_index=2)


# Plain networks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def network(backend):
    return built(backend, Convolutional, 0.0)


def value(network, loss, batch):
    result = loss(network, *network.backend.prepare(batch, network))
    return float(network.backend.numpy(result[0] if isinstance(result, tuple) else result))


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        (in_replicas(cross_entropy), cross_entropy),
        (in_replicas(summed, "sum"), summed),
        (in_replicas(weighted, "denominator"), mean_weighted),
    ],
)
def test_on_a_plain_network_it_is_the_plain_loss(network, loss, plain):
    assert value(network, loss, batch_of(6)) == pytest.approx(value(network, plain, batch_of(6)), rel=1e-13)


def test_on_a_plain_network_it_can_be_minimised(backend):
    networks = [built(backend, Convolutional, 0.0) for _ in range(2)]
    for network, loss in zip(networks, (in_replicas(weighted, "denominator"), mean_weighted), strict=True):
        optimizer_of(network).update(loss, *batch_of(6))
    same_named(networks[0].neutral_state(), networks[1].neutral_state())


@pytest.mark.parametrize("reduction", ["mean", "denominator"])
def test_what_else_the_function_returned_comes_back(network, reduction):
    count = (6,) if reduction == "denominator" else ()
    loss = in_replicas(lambda network, x, labels: (summed(network, x, labels), *count, {"x": x}, "name"), reduction)
    x, labels = network.backend.prepare(batch_of(6), network)
    found, extra, name = loss(network, x, labels)
    assert (tuple(found.shape), name) == ((), "name")
    assert extra["x"] is x


def test_a_batch_in_which_nothing_counts_has_the_loss_zero(network):
    x, _ = batch_of(3)
    assert value(network, in_replicas(weighted, "denominator"), (x, np.full(3, 2))) == 0.0


def test_a_denominator_may_be_a_number(network):
    loss = in_replicas(lambda network, x, labels: (summed(network, x, labels), len(x) * 2), "denominator")
    assert value(network, loss, batch_of(6)) == pytest.approx(value(network, summed, batch_of(6)) / 12, rel=1e-13)


def test_the_denominator_has_no_gradient(backend):
    network = built(backend, Convolutional, 0.0)

    def loss(network, x, labels):
        scores = network(x)
        return network.nn.sum(scores * scores), network.nn.sum(scores * scores)

    found = backend.gradients(in_replicas(loss, "denominator"), network, *batch_of(6))
    assert found.loss == pytest.approx(1.0)
    assert np.abs(found.parameters["fc.weight"]).max() > 1e-3


def test_an_unknown_reduction_suggests_the_nearest():
    with pytest.raises(SettingError, match="there is no reduction 'means'. Did you mean 'mean'"):
        in_replicas(cross_entropy, "means")


@pytest.mark.parametrize("result", ["a tensor", ("a tensor",)])
def test_a_denominator_that_was_declared_must_be_given(network, result):
    kind = type(result).__name__
    with pytest.raises(
        ArgumentError, match=rf"reduction='denominator' gives a tuple \(sum, denominator, ...\), not a {kind}"
    ):
        in_replicas(lambda network: result, "denominator")(network)


def test_equal_losses_are_equal_so_that_they_share_a_compiled_program():
    assert in_replicas(summed, "sum") == in_replicas(summed, "sum")
    assert hash(in_replicas(summed, "sum", spec={"x": "keep"})) == hash(in_replicas(summed, "sum"))
    assert in_replicas(summed, "sum", spec={"x": "keep"}) != in_replicas(summed, "sum")


@pytest.mark.parametrize(("sizes", "wanted"), [((3, 2, 2), [3 / 7, 2 / 7, 2 / 7]), ((5,), [1.0]), ((0,), [1.0])])
def test_a_mean_counts_by_its_share(sizes, wanted):
    assert InReplicas(summed).weights(sizes) == wanted
    assert InReplicas(summed, "sum").weights(sizes) == [1.0] * len(sizes)
