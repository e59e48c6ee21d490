"""Losses that replicas compute on their own shares are those of the whole batch."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import in_replicas
from deliralike.errors import ArgumentError, SettingError, ShapeError
from tests.arrays import same_named
from tests.losses import cross_entropy
from tests.parallel.networks import (
    Small,
    batch_of,
    built,
    optimizer_of,
    replicated,
    same_runs,
    train,
)

WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0])


def summed(network, x, labels):
    return network.nn.cross_entropy(network(x), labels, reduction="sum")


def weighted(network, x, labels):
    """Class weights and ignored labels: what the sum is divided by is neither one nor the number of
    samples."""
    nn = network.nn
    scores = network(x)
    total = nn.cross_entropy(
        scores,
        labels,
        weight=nn.constant(WEIGHTS, scores),
        ignore_index=2,
        reduction="sum",
    )
    return total, denominator(nn, scores, labels)


def denominator(nn, scores, labels):
    counted = WEIGHTS * (np.arange(4) != 2)
    return nn.sum(nn.one_hot(labels, 4, scores) * nn.constant(counted, scores))


def mean_weighted(network, x, labels):
    nn = network.nn
    scores = network(x)
    return nn.cross_entropy(
        scores, labels, weight=nn.constant(WEIGHTS, scores), ignore_index=2
    )


# Plain networks
# -----------------------------------------------------------------------------


@pytest.fixture
def network(backend):
    return built(backend, Small, 0.0)


def value(network, loss, batch):
    result = loss(network, *network.backend.prepare(batch, network))
    return float(
        network.backend.numpy(result[0] if isinstance(result, tuple) else result)
    )


@pytest.mark.parametrize(
    ("loss", "plain"),
    [
        (in_replicas(cross_entropy), cross_entropy),
        (in_replicas(summed, "sum"), summed),
        (in_replicas(weighted, "denominator"), mean_weighted),
    ],
)
def test_on_a_plain_network_it_is_the_plain_loss(network, loss, plain):
    assert value(network, loss, batch_of(6)) == pytest.approx(
        value(network, plain, batch_of(6)), rel=1e-13
    )


@pytest.mark.parametrize("reduction", ["mean", "denominator"])
def test_what_else_the_function_returned_comes_back(network, reduction):
    count = (6,) if reduction == "denominator" else ()
    loss = in_replicas(
        lambda network, x, labels: (
            summed(network, x, labels),
            *count,
            {"x": x},
            "name",
        ),
        reduction,
    )
    x, labels = network.backend.prepare(batch_of(6), network)
    found, extra, name = loss(network, x, labels)
    assert (tuple(found.shape), name) == ((), "name")
    assert extra["x"] is x


def test_a_batch_in_which_nothing_counts_has_the_loss_zero(network):
    x, _ = batch_of(3)
    assert (
        value(network, in_replicas(weighted, "denominator"), (x, np.full(3, 2))) == 0.0
    )


def test_a_denominator_may_be_a_number(network):
    loss = in_replicas(
        lambda network, x, labels: (summed(network, x, labels), len(x) * 2),
        "denominator",
    )
    assert value(network, loss, batch_of(6)) == pytest.approx(
        value(network, summed, batch_of(6)) / 12, rel=1e-13
    )


def test_the_denominator_has_no_gradient(backend):
    network = built(backend, Small, 0.0)

    def loss(network, x, labels):
        scores = network(x)
        return network.nn.sum(scores * scores), network.nn.sum(scores * scores)

    found = backend.gradients(in_replicas(loss, "denominator"), network, *batch_of(6))
    assert found.loss == pytest.approx(1.0)
    assert np.abs(found.parameters["fc.weight"]).max() > 1e-3


def test_an_unknown_reduction_suggests_the_nearest():
    with pytest.raises(
        SettingError, match="there is no reduction 'means'. Did you mean 'mean'"
    ):
        in_replicas(cross_entropy, "means")


@pytest.mark.parametrize("result", ["a tensor", ("a tensor",)])
def test_a_denominator_that_was_declared_must_be_given(network, result):
    kind = type(result).__name__
    with pytest.raises(
        ArgumentError,
        match=rf"reduction='denominator' gives a tuple \(sum, denominator, ...\), not a {kind}",
    ):
        in_replicas(lambda network: result, "denominator")(network)


def test_equal_losses_are_equal_so_that_they_share_a_compiled_program():
    assert in_replicas(summed, "sum") == in_replicas(summed, "sum")
    assert hash(in_replicas(summed, "sum", spec={"x": "keep"})) == hash(
        in_replicas(summed, "sum")
    )
    assert in_replicas(summed, "sum", spec={"x": "keep"}) != in_replicas(summed, "sum")


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [((3, 2, 2), [3 / 7, 2 / 7, 2 / 7]), ((5,), [1.0]), ((0,), [1.0])],
)
def test_a_mean_counts_by_its_share(sizes, wanted):
    assert in_replicas(summed).weights(sizes) == wanted
    assert in_replicas(summed, "sum").weights(sizes) == [1.0] * len(sizes)


# Replicated networks
# -----------------------------------------------------------------------------

LOSSES = {
    "mean": (in_replicas(cross_entropy), cross_entropy),
    "sum": (in_replicas(summed, "sum"), summed),
    "denominator": (in_replicas(weighted, "denominator"), mean_weighted),
}


def labelled(labels):
    return batch_of(len(labels))[0], np.array(labels)


@pytest.mark.parametrize("reduction", LOSSES)
def test_losses_and_gradients_of_unequal_shares_are_those_of_one_network(
    backend, reduction
):
    """Shares of 3, 2 and 2 whose labels weigh differently, and one in which every label is
    ignored."""
    network = replicated(backend, 3, 0.0, settings={"buffers": "sync"})
    single = built(backend, Small, 0.0)
    in_shares, whole = LOSSES[reduction]
    batches = [labelled([0, 1, 3, 2, 2, 3, 1]), labelled([1, 2, 0, 0, 3, 3, 2])]
    found, wanted = (
        train(network, in_shares, batches, lr=0.01),
        train(single, whole, batches, lr=0.01),
    )
    same_runs(found, wanted)


@pytest.mark.parametrize("reduction", LOSSES)
def test_called_as_a_function_it_has_the_graph_of_all_replicas(backend, reduction):
    """As part of a larger loss, and through `Backend.gradients`."""
    network = replicated(backend, 3, 0.0, settings={"buffers": "sync"})
    in_shares, whole = LOSSES[reduction]
    x, labels = labelled([0, 1, 3, 2, 2, 3, 1])
    found = backend.gradients(part_of(in_shares), network, x, labels)
    wanted = backend.gradients(part_of(whole), built(backend, Small, 0.0), x, labels)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-13)
    same_named(found.parameters, wanted.parameters)
    assert_allclose(found.inputs[0], wanted.inputs[0], rtol=1e-12, atol=1e-13)


def part_of(loss):
    return lambda network, x, labels: (
        loss(network, x, labels) * 3.0 + network.nn.sum(x * x)
    )


def test_what_else_the_replicas_returned_is_gathered(backend):
    network = replicated(backend, 3, 0.0)
    loss = in_replicas(with_extras)
    x, labels = batch_of(7)
    value, seen, first, name = optimizer_of(network).update(loss, x, labels)
    assert_array_equal(backend.numpy(seen), labels)
    assert_allclose(backend.numpy(first), [x[0, 0], x[3, 0], x[5, 0]], rtol=1e-14)
    assert name == "cross-entropy"
    assert tuple(value.shape) == ()


def with_extras(network, x, labels):
    return cross_entropy(network, x, labels), labels, x[0, 0], "cross-entropy"


def test_a_spec_says_what_of_the_batch_is_split(backend):
    """The class weights have as many entries as there are samples, by chance: every replica needs
    all of them."""
    loss = in_replicas(with_weights, "denominator", spec=("split", "split", "copy"))
    network, single = (
        replicated(backend, 2, 0.0, settings={"buffers": "sync"}),
        built(backend, Small, 0.0),
    )
    batch = (*labelled([0, 3, 1, 2]), WEIGHTS)
    values = []
    for each in (network, single):
        result = optimizer_of(each).update(loss, *batch)
        values.append(float(backend.numpy(result)))
    assert values[0] == pytest.approx(values[1], rel=1e-13)
    same_named(network.neutral_state(), single.neutral_state())


def with_weights(network, x, labels, weights):
    nn, scores = network.nn, network(x)
    total = nn.cross_entropy(scores, labels, weight=weights, reduction="sum")
    return total, nn.sum(nn.one_hot(labels, 4, scores) * weights)


def test_a_settings_spec_speaks_of_calls_and_not_of_losses(backend):
    network = replicated(backend, 2, 0.0, settings={"spec": (("split",), {})})
    assert np.isfinite(
        float(
            backend.numpy(
                optimizer_of(network).update(in_replicas(cross_entropy), *batch_of(5))
            )
        )
    )


def test_a_loss_that_is_no_scalar_is_refused(backend):
    network = replicated(backend, 2, 0.0)
    with pytest.raises(ShapeError, match="wanted a scalar"):
        optimizer_of(network).update(
            in_replicas(lambda network, x, labels: network(x)), *batch_of(5)
        )


@pytest.mark.parametrize("count", [1, 2])
def test_an_array_for_a_loss_is_refused_on_gathered_outputs_too(backend, count):
    network = replicated(backend, count, 0.0)
    with pytest.raises(
        ShapeError, match=r"shape \(5, 4\), wanted a scalar.*deliralike.in_replicas"
    ):
        optimizer_of(network).update(
            lambda network, x, labels: network(x), *batch_of(5)
        )
