"""Accumulation where backward leaves gradients in the parameters, as on PyTorch and Chainer."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from deliralike import DataParallel, backends, in_replicas
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.losses import cross_entropy
from tests.parallel.networks import Small, batch_of, devices

X, Y = batch_of(13)
CUTS = (slice(0, 6), slice(6, 7), slice(7, 13))
WEIGHTS = [6 / 13, 1 / 13, 6 / 13]
BOTH = pytest.mark.parametrize("name", ["torch", "chainer"])


def build(name="torch", count=1):
    backend = backends.get(name)
    net = Small.on(name, dtype="float64")(p=0.0, norm=False)
    net = DataParallel(net, devices(backend, count)) if count > 1 else net
    optimizer = backend.optimizer(rule("sgd", lr=1.0), net)
    optimizer.accumulate = len(CUTS)
    return net, optimizer


def gradients(*cut):
    """The gradients of a mean over some samples, by PyTorch alone."""
    net, _ = build()
    x, y = torch.from_numpy(X[cut]), torch.from_numpy(Y[cut])
    torch.nn.functional.cross_entropy(net(x), y).backward()
    return {name: parameter.grad.numpy() for name, parameter in net.named_parameters()}


def update_windows(optimizer, loss=cross_entropy, after_each=lambda number: None):
    for number, cut in enumerate(CUTS):
        optimizer.update(loss, X[cut], Y[cut])
        after_each(number)


def assert_moved(net, wanted):
    """Gradient descent with a rate of 1 moves each parameter by its gradient."""
    start = build()[0].neutral_state()
    for name, value in net.neutral_state().items():
        assert_allclose(start[name] - value, wanted[name], atol=1e-12, err_msg=name)


def clear(network):
    """A habit from loops by hand."""
    getattr(
        network, {"torch": "zero_grad", "chainer": "cleargrads"}[network.backend.name]
    )()


def clearing(network, x, y):
    clear(network)
    return cross_entropy(network, x, y)


def clearing_after_backward(network, x, y):
    cross_entropy(network, x, y).backward()
    clear(network)
    return cross_entropy(network, x, y)


@BOTH
@pytest.mark.parametrize("loss", [clearing, clearing_after_backward])
def test_a_loss_function_that_clears_gradients_does_not_clear_the_sum(name, loss):
    net, optimizer = build(name)
    update_windows(optimizer, loss)
    assert_moved(net, gradients(slice(None)))


@BOTH
def test_backward_passes_of_a_loss_function_count_as_in_a_single_batch(name):
    def loss(network, x, y):
        cross_entropy(network, x, y).backward()
        return cross_entropy(network, x, y)

    nets = [build(name) for _ in range(2)]
    (net, optimizer), (single, at_once) = nets
    at_once.accumulate = 1
    update_windows(optimizer, loss)
    at_once.update(loss, X, Y)
    same_named(net.neutral_state(), single.neutral_state())


@pytest.mark.parametrize(
    ("name", "count"), [("torch", 1), ("torch", 2), ("chainer", 1)]
)
def test_what_others_do_to_gradients_between_micro_batches_does_not_count(name, count):
    """A backward pass, and what is written to them."""
    net, optimizer = build(name, count)

    def disturb(number):
        cross_entropy(net, *net.backend.prepare((X, Y), net)).backward()
        for slot in net.neutral_slots().values():
            if slot.native.grad is not None:
                slot.native.grad[...] = float("nan")

    update_windows(optimizer, in_replicas(cross_entropy), disturb)
    assert_moved(net, gradients(slice(None)))


class Failed(Exception):
    pass


def fail(*given):
    raise Failed


@pytest.mark.parametrize(
    ("name", "count"), [("torch", 1), ("torch", 2), ("chainer", 1)]
)
def test_an_error_in_a_loss_function_leaves_a_window_as_it_was(name, count):
    net, optimizer = build(name, count)
    optimizer.update(in_replicas(cross_entropy), X[:6], Y[:6])
    with pytest.raises(Failed):
        optimizer.update(in_replicas(fail), X, Y)
    for cut in CUTS[1:]:
        optimizer.update(in_replicas(cross_entropy), X[cut], Y[cut])
    assert_moved(net, gradients(slice(None)))


def failing_on_chainer(network, x, y):
    """The gradients of the second layer have been added when that of the first fails."""
    import chainer

    class Failing(chainer.FunctionNode):
        def forward(self, inputs):
            return inputs

        def backward(self, indexes, gradients):
            raise Failed

    (hidden,) = Failing().apply((network.nn.relu(network.first(x)),))
    return network.nn.cross_entropy(network.fc(hidden), y)


@pytest.mark.parametrize(
    ("name", "count"), [("torch", 1), ("torch", 2), ("chainer", 1)]
)
def test_an_error_in_backward_leaves_no_part_of_its_gradients(name, count):
    """The first layer's gradient comes last, when others have been added."""
    net, optimizer = build(name, count)
    optimizer.update(in_replicas(cross_entropy), X[:6], Y[:6])
    handle = next(net.parameters()).register_hook(fail) if name == "torch" else None
    with pytest.raises(Failed):
        optimizer.update(
            in_replicas(cross_entropy if handle else failing_on_chainer), X[6:], Y[6:]
        )
    if handle:
        handle.remove()
    for cut in CUTS[1:]:
        optimizer.update(in_replicas(cross_entropy), X[cut], Y[cut])
    assert_moved(net, gradients(slice(None)))


# PyTorch
# -----------------------------------------------------------------------------


def bounded(gradient):
    return gradient.clamp(-0.05, 0.05)


@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_of_a_parameter_sees_the_gradient_of_each_micro_batch(count):
    """One that is not linear tells them from a sum, and from weighted gradients."""
    net, optimizer = build(count=count)
    net.get_parameter("fc.weight").register_hook(bounded)
    update_windows(optimizer, in_replicas(cross_entropy))
    of_parts = [gradients(cut)["fc.weight"] for cut in CUTS]
    pairs = zip(WEIGHTS, of_parts, strict=True)
    bounded_sum = sum(weight * part.clip(-0.05, 0.05) for weight, part in pairs)
    whole = gradients(slice(None))
    assert abs(bounded_sum - whole["fc.weight"]).max() > 1e-3
    assert_moved(net, whole | {"fc.weight": bounded_sum})


def test_a_hook_after_accumulation_sees_the_gradient_of_each_micro_batch():
    net, optimizer = build()
    noted = []
    weight = net.get_parameter("fc.weight")
    weight.register_post_accumulate_grad_hook(
        lambda p: noted.append(p.grad.numpy().copy())
    )
    update_windows(optimizer)
    for cut, gradient in zip(CUTS, noted, strict=True):
        assert_allclose(gradient, gradients(cut)["fc.weight"], atol=1e-12)
    assert_moved(net, gradients(slice(None)))


@pytest.mark.parametrize(
    "kind", ["register_hook", "register_post_accumulate_grad_hook"]
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_may_be_added_while_a_window_is_open(kind, count):
    """In replicas the parameter gets the gradients of its copies from then on."""
    net, optimizer = build(count=count)

    def add(number):
        if number == 0:
            getattr(net.get_parameter("fc.weight"), kind)(lambda given: None)

    update_windows(optimizer, in_replicas(cross_entropy), add)
    assert_moved(net, gradients(slice(None)))


def test_hooks_of_an_optimizer_get_no_gradients_of_frozen_parameters():
    net, optimizer = build()
    net.get_parameter("fc.weight").requires_grad = False
    names = []
    optimizer.pre_update_hooks.append(lambda _, given: names.extend(given) or given)
    update_windows(optimizer)
    assert names == [
        name for name, each in net.named_parameters() if each.requires_grad
    ]


# Chainer
# -----------------------------------------------------------------------------


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
        assert_allclose(value, -X.mean(0), atol=1e-12)
