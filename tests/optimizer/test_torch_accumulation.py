"""Accumulation on PyTorch, where backward adds gradients to those of a window in their storage."""

import numpy as np
import pytest
import torch

from deliralike import DataParallel, in_replicas
from deliralike.optim.rules import rule
from tests.parallel.networks import Small, batch_of

X, Y = batch_of(13)
CUTS = (slice(0, 6), slice(6, 7), slice(7, 13))
WEIGHTS = [6 / 13, 1 / 13, 6 / 13]


def mean(network, x, y):
    return network.nn.cross_entropy(network(x), y)


def made(count=1, accumulate=len(CUTS)):
    net = Small.on("torch", dtype="float64")(p=0.0, norm=False)
    net = DataParallel(net, ["cpu"] * count) if count > 1 else net
    optimizer = net.backend.optimizer(rule("sgd", lr=1.0), net)
    optimizer.accumulate = accumulate
    return net, optimizer


def gradients(*cut):
    """The gradients of a mean over some samples, by PyTorch alone."""
    net, _ = made()
    x, y = torch.from_numpy(X[cut]), torch.from_numpy(Y[cut])
    torch.nn.functional.cross_entropy(net(x), y).backward()
    return {name: parameter.grad.numpy() for name, parameter in net.named_parameters()}


def update_windows(optimizer, loss=mean, after_each=lambda number: None):
    for number, cut in enumerate(CUTS):
        optimizer.update(loss, X[cut], Y[cut])
        after_each(number)


def assert_moved(net, wanted):
    """Gradient descent with a rate of 1 moves each parameter by its gradient."""
    start = made()[0].neutral_state()
    for name, value in net.neutral_state().items():
        np.testing.assert_allclose(start[name] - value, wanted[name], atol=1e-12, err_msg=name)


def test_the_sum_stays_in_the_storage_of_the_first_gradients():
    _, optimizer = made()
    places = []

    def note(number):
        for sums in optimizer._window.of_replicas:
            places.append([gradient.data_ptr() for gradient in sums.values()])

    update_windows(optimizer, after_each=note)
    assert places[0] == places[1]
    assert len(places) == len(CUTS) - 1  # the last one closes the window


def zeroing(network, x, y):
    network.zero_grad()  # a habit from loops by hand
    return mean(network, x, y)


def running_backward(network, x, y):
    mean(network, x, y).backward()
    network.zero_grad()
    return mean(network, x, y)


@pytest.mark.parametrize("loss", [zeroing, running_backward])
def test_a_loss_function_that_clears_gradients_does_not_clear_the_sum(loss):
    net, optimizer = made()
    update_windows(optimizer, loss)
    assert_moved(net, gradients(slice(None)))


def test_backward_passes_of_a_loss_function_count_as_in_a_single_batch():
    def loss(network, x, y):
        mean(network, x, y).backward()
        return mean(network, x, y)

    net, optimizer = made()
    update_windows(optimizer, loss)
    assert_moved(net, {name: 2 * value for name, value in gradients(slice(None)).items()})


@pytest.mark.parametrize("count", [1, 2])
def test_backward_passes_of_others_between_micro_batches_do_not_count(count):
    net, optimizer = made(count)

    def run_backward(number):
        mean(net, torch.from_numpy(X), torch.from_numpy(Y)).backward()

    update_windows(optimizer, in_replicas(mean), run_backward)
    assert_moved(net, gradients(slice(None)))


def bounded(gradient):
    return gradient.clamp(-0.05, 0.05)


@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_of_a_parameter_sees_the_gradient_of_each_micro_batch(count):
    """One that is not linear tells them from a sum, and from weighted gradients."""
    net, optimizer = made(count)
    net.get_parameter("fc.weight").register_hook(bounded)
    update_windows(optimizer, in_replicas(mean))
    of_parts = [gradients(cut)["fc.weight"] for cut in CUTS]
    pairs = zip(WEIGHTS, of_parts, strict=True)
    bounded_sum = sum(weight * part.clip(-0.05, 0.05) for weight, part in pairs)
    whole = gradients(slice(None))
    assert abs(bounded_sum - whole["fc.weight"]).max() > 1e-3
    assert_moved(net, whole | {"fc.weight": bounded_sum})


def test_a_hook_after_accumulation_sees_the_gradient_of_each_micro_batch():
    net, optimizer = made()
    noted = []
    weight = net.get_parameter("fc.weight")
    weight.register_post_accumulate_grad_hook(lambda p: noted.append(p.grad.numpy().copy()))
    update_windows(optimizer)
    for cut, gradient in zip(CUTS, noted, strict=True):
        np.testing.assert_allclose(gradient, gradients(cut)["fc.weight"], atol=1e-12)
    assert_moved(net, gradients(slice(None)))


@pytest.mark.parametrize("kind", ["register_hook", "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_may_be_added_while_a_window_is_open(kind, count):
    """In replicas the parameter gets the gradients of its copies from then on."""
    net, optimizer = made(count)

    def add(number):
        if number == 0:
            getattr(net.get_parameter("fc.weight"), kind)(lambda given: None)

    update_windows(optimizer, in_replicas(mean), add)
    assert_moved(net, gradients(slice(None)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_parameter_that_is_frozen_in_a_window_is_left_alone(count):
    net, optimizer = made(count)

    def freeze(number):
        if number == 0:
            net.get_parameter("fc.weight").requires_grad = False

    update_windows(optimizer, in_replicas(mean), freeze)
    nothing = 0 * gradients(slice(None))["fc.weight"]
    assert_moved(net, gradients(slice(None)) | {"fc.weight": nothing})


def test_hooks_of_an_optimizer_get_no_gradients_of_frozen_parameters():
    net, optimizer = made()
    net.get_parameter("fc.weight").requires_grad = False
    names = []
    optimizer.pre_update_hooks.append(lambda _, given: names.extend(given) or given)
    update_windows(optimizer)
    assert names == [name for name, each in net.named_parameters() if each.requires_grad]


class Failed(Exception):
    pass


def fail(*given):
    raise Failed


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_in_backward_leaves_no_part_of_its_gradients(count):
    """The first layer's gradient comes last, when others have been added."""
    net, optimizer = made(count)
    optimizer.update(in_replicas(mean), X[:6], Y[:6])
    handle = next(net.parameters()).register_hook(fail)
    with pytest.raises(Failed):
        optimizer.update(in_replicas(mean), X[6:], Y[6:])
    handle.remove()
    assert not optimizer.window_is_open
    update_windows(optimizer, in_replicas(mean))
    assert_moved(net, gradients(slice(None)))


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_in_a_loss_function_leaves_a_window_as_it_was(count):
    net, optimizer = made(count)
    optimizer.update(in_replicas(mean), X[:6], Y[:6])
    with pytest.raises(Failed):
        optimizer.update(in_replicas(fail), X, Y)
    for cut in CUTS[1:]:
        optimizer.update(in_replicas(mean), X[cut], Y[cut])
    assert_moved(net, gradients(slice(None)))
