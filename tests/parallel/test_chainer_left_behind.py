"""Replicas on Chainer that do not have the root's weights, whatever has changed them; copies of
replicated networks."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends
from deliralike.errors import StateError, StructureError
from tests.arrays import same_named
from tests.losses import cross_entropy
from tests.parallel.networks import batch_of, optimizer_of

CHAINER = backends.get("chainer")
import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402

from deliralike.backends.chainer import (  # noqa: E402
    DataParallelChainerNetwork,
    DataParallelChainerOptimizer,
)

MESSAGE = "has changed while gradients of it are left in the replicas"


def over(link, replicas=2):
    return DataParallelChainerNetwork(link, ["@numpy"] * replicas)


def perceptron(seed=1):
    """A link, and a batch."""
    np.random.seed(seed)
    link = chainer.Sequential(L.Linear(6, 5), F.tanh, L.Linear(5, 3))
    return link, np.random.rand(7, 6).astype(np.float32)


def test_a_file_that_is_written_hides_no_replica_left_behind():
    link, x = perceptron()
    network = over(link)
    F.sum(network(x)).backward()
    chainer.optimizers.SGD(0.5).setup(link).update()
    chainer.serializers.save_npz(io.BytesIO(), network)
    with pytest.raises(StateError, match=MESSAGE):
        network(x)


@pytest.mark.parametrize(
    "write",
    [
        lambda link, other: link.copyparams(other),
        lambda link, other: link[0].b.array.fill(3.0),
        lambda link, other: setattr(link[2].W, "array", link[2].W.array * 2),
    ],
    ids=["copyparams", "in place", "replaced"],
)
def test_weights_written_to_or_replaced_reach_the_replicas(write):
    link, x = perceptron()
    network = over(link)
    write(link, perceptron(8)[0])
    assert_allclose(network(x).array, link(x).array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("then", [DataParallelChainerNetwork.cleargrads, optimizer_of])
def test_a_step_without_the_replicas_gradients_is_noticed_before_they_are_dropped(then):
    link, x = perceptron()
    network = over(link)
    F.sum(network(x)).backward()
    chainer.optimizers.SGD(0.5).setup(link).update()
    with pytest.raises(StateError, match=MESSAGE):
        then(network)
        optimizer_of(network).update(cross_entropy, *batch_of(5))


@pytest.mark.parametrize(
    "begin",
    [
        lambda network, x: network(x),
        lambda network, x: network.zerograds(),
    ],
    ids=["shapes were given", "zeros were set"],
)
def test_what_is_no_gradient_of_a_batch_is_none_that_is_left_out(begin):
    """Chainer begins the gradients of parameters that get their shapes with NaNs."""
    link, x = perceptron()
    link = chainer.Sequential(L.Linear(None, 6), *link)
    link[0].cleargrads()
    network = over(link)
    begin(network, x)
    link[3].W.array[...] *= 2
    assert_allclose(network(x).array, link(x).array, rtol=1e-5, atol=1e-6)


def test_layers_that_are_added_are_trained_as_on_one_device():
    results = []
    for wrap in (CHAINER.wrap, over):
        link, x = perceptron()
        network = wrap(link)
        optimizer_of(network).update(cross_entropy, x, np.arange(7) % 3)
        link.append(L.PReLU())  # without axes
        link.append(L.Linear(3, 3, initialW=1.0))
        optimizer_of(network).update(cross_entropy, x, np.arange(7) % 3)
        results.append(network.neutral_state())
    same_named(*results, tolerance=1e-5)


def test_frozen_parameters_stay_where_they_are_after_a_layer_is_added():
    link, x = perceptron()
    network = over(link)
    CHAINER.wrap(link).set_trainable("0.*", False)
    link.append(L.Linear(3, 3))
    before = link[0].W.array.copy()
    optimizer = DataParallelChainerOptimizer(chainer.optimizers.SGD(0.5)).setup(network)
    optimizer.update(lambda: F.sum(network(x)))
    assert_array_equal(link[0].W.array, before)


def test_another_type_of_numbers_reaches_the_replicas():
    link, x = perceptron()
    network = over(link, 3)
    CHAINER.set_dtype(network, "float64")
    found = network(x.astype(np.float64)).array
    assert_allclose(found, link(x.astype(np.float64)).array, rtol=1e-13)
    assert {str(p.dtype) for replica in network.replicas for p in replica.params()} == {
        "float64"
    }


@pytest.mark.parametrize("tied", [False, True])
def test_a_copy_that_shares_arrays_shares_those_of_the_replicas(tied):
    class Same(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.last = L.Linear(4, 4)
                self.first = self.last if tied else L.Linear(4, 4)

        def forward(self, x):
            return self.last(F.tanh(self.first(x)))

    np.random.seed(3)
    network, x = over(Same(), 3), np.random.rand(7, 4).astype(np.float32)
    shared = network.copy()
    optimizer = DataParallelChainerOptimizer(chainer.optimizers.Adam(0.1)).setup(
        network
    )
    optimizer.update(lambda: F.sum(network(x) ** 2))
    assert_allclose(shared(x).array, network.module(x).array, rtol=1e-5)
    assert (
        len(list(shared.params())) == len(list(network.params())) == (2 if tied else 4)
    )


def test_a_replicated_network_over_one_device_has_its_weights():
    network = over(perceptron()[0])
    same_named(over(network, 1).neutral_state(), network.neutral_state(), tolerance=0)


class Other(chainer.Chain):
    """Copies of it have a link more, as a mistake in ``__deepcopy__`` makes them."""

    def __init__(self, more=False):
        super().__init__()
        with self.init_scope():
            self.first = L.Linear(6, 3)
            if more:
                self.second = L.Linear(3, 3)

    def __deepcopy__(self, memo):
        return Other(more=True)

    def __data_parallel_replicate__(self, context, copy_id):
        pass


def test_copies_that_are_built_otherwise_are_an_error_that_lists_both():
    with pytest.raises(
        StructureError,
        match=r"Other, Linear on replica 0 and .*Other, Linear, Linear on replica 1: a",
    ):
        over(Other())
