"""Accumulation on Chainer, where backward adds gradients to those of a window."""

import numpy as np
import pytest

from deliralike import Network, backends
from deliralike.optim.rules import rule
from tests.parallel.networks import batch_of

X, Y = batch_of(13)
CUTS = (slice(0, 6), slice(6, 7), slice(7, 13))


class Tied(Network):
    """Two layers that share a weight; the output is linear in the bias."""

    def __init__(self):
        super().__init__()
        self.first, self.second = self.nn.Linear(3, 3), self.nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.nn.tanh(self.first(x)))


def mean(network, x, y):
    return network.nn.cross_entropy(network(x), y)


def made(accumulate=len(CUTS)):
    network = Tied.on("chainer", dtype="float64")()
    optimizer = network.backend.optimizer(rule("sgd", lr=1.0), network)
    optimizer.accumulate = accumulate
    return network, optimizer


LABELS = Y % 3


def moved_by(loss, cuts, after_each=lambda network: None):
    """What updates of micro-batches add to each parameter."""
    network, optimizer = made(len(cuts))
    start = network.neutral_state()
    for cut in cuts:
        optimizer.update(loss, X[cut], LABELS[cut])
        after_each(network)
    return {name: value - start[name] for name, value in network.neutral_state().items()}


def assert_equal(found, wanted):
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)


def clearing(network, x, y):
    network.cleargrads()
    return mean(network, x, y)


def running_backward(network, x, y):
    mean(network, x, y).backward()
    return mean(network, x, y)


def of_the_big_batch(loss=mean):
    return moved_by(loss, [slice(None)])


def test_tied_parameters_count_once():
    assert_equal(moved_by(mean, CUTS), of_the_big_batch())


def test_a_loss_function_that_clears_gradients_does_not_clear_the_sum():
    assert_equal(moved_by(clearing, CUTS), of_the_big_batch())


def test_backward_passes_of_a_loss_function_count_as_in_a_single_batch():
    assert_equal(moved_by(running_backward, CUTS), of_the_big_batch(running_backward))


def test_backward_passes_of_others_between_micro_batches_do_not_count():
    def run_backward(network):
        mean(network, *network.backend.prepare((X, LABELS), network)).backward()

    assert_equal(moved_by(mean, CUTS, run_backward), of_the_big_batch())


def test_what_is_written_to_gradients_between_micro_batches_does_not_count():
    def overwrite(network):
        for parameter in network.params():
            if parameter.grad is not None:
                parameter.grad[...] = np.nan

    assert_equal(moved_by(mean, CUTS, overwrite), of_the_big_batch())


def failing(network, x, y):
    raise ValueError("no loss")


def test_an_error_in_a_loss_function_leaves_a_window_as_it_was():
    network, optimizer = made()
    start = network.neutral_state()
    optimizer.update(mean, X[:6], LABELS[:6])
    with pytest.raises(ValueError, match="no loss"):
        optimizer.update(failing, X, LABELS)
    for cut in CUTS[1:]:
        optimizer.update(mean, X[cut], LABELS[cut])
    moved = {name: value - start[name] for name, value in network.neutral_state().items()}
    assert_equal(moved, of_the_big_batch())


def test_an_error_in_backward_leaves_no_part_of_its_gradients():
    """The gradients of the second layer have been added when that of the first fails."""
    import chainer

    class Failing(chainer.FunctionNode):
        def forward(self, inputs):
            return inputs

        def backward(self, indexes, gradients):
            raise ValueError("no gradient")

    def loss(network, x, y):
        (hidden,) = Failing().apply((network.nn.tanh(network.first(x)),))
        return network.nn.cross_entropy(network.second(hidden), y)

    network, optimizer = made()
    start = network.neutral_state()
    optimizer.update(mean, X[:6], LABELS[:6])
    with pytest.raises(ValueError, match="no gradient"):
        optimizer.update(loss, X[6:], LABELS[6:])
    assert not optimizer.window_is_open
    for cut in CUTS:
        optimizer.update(mean, X[cut], LABELS[cut])
    moved = {name: value - start[name] for name, value in network.neutral_state().items()}
    assert_equal(moved, of_the_big_batch())


def test_gradients_that_share_an_array_are_summed_apart():
    """Chainer gives both terms of a sum one array as their gradient."""
    import chainer

    class Sum(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.p = chainer.Parameter(np.zeros(3))
                self.q = chainer.Parameter(np.zeros(3))

        def forward(self, x):
            return x * chainer.functions.broadcast_to(self.p + self.q, x.shape)

    backend = backends.get("chainer")
    network = backend.wrap(Sum())
    optimizer = backend.optimizer(rule("sgd", lr=1.0), network)
    optimizer.accumulate = len(CUTS)
    for cut in CUTS:
        optimizer.update(lambda net, x: chainer.functions.sum(net(x)) / len(x), X[cut])
    for value in network.neutral_state().values():
        np.testing.assert_allclose(value, -X.mean(0), atol=1e-12)
