"""Optimizers over replicated networks: parts, frozen or unused parameters, the user's hooks, second
gradients."""

import numpy as np
import pytest

from deliralike import Network, in_replicas
from deliralike.errors import UnknownName
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.losses import cross_entropy, mean_square
from tests.parallel.networks import (
    Dense,
    Small,
    batch_of,
    built,
    optimizer_of,
    replicated,
    watch_gradients,
)

SYNC = {"buffers": "sync"}
WAYS = pytest.mark.parametrize(
    "wrap", [lambda loss: loss, in_replicas], ids=["gathered", "in replicas"]
)


def pair(backend, network, *args, count=3):
    """The same network over replicas, and on one device."""
    return replicated(backend, count, *args, network=network, settings=SYNC), built(
        backend, network, *args
    )


def rows(samples=7, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, 3))


def replicas_are_equal(network):
    for replica in network.replicas[1:]:
        same_named(replica.neutral_state(), network.neutral_state(), tolerance=1e-14)


# Unused and frozen parameters
# -----------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_parameters_that_take_no_part_are_left_alone(backend, wrap, name):
    network, single = pair(backend, Dense)
    optimizer, loss = optimizer_of(network, name), wrap(mean_square)
    seen, before = watch_gradients(optimizer), network.neutral_state()
    for step in range(3):
        optimizer.update(loss, rows(seed=step))
    after = network.neutral_state()
    for each in ("unused.weight", "unused.bias"):
        assert np.array_equal(after[each], before[each])
        assert seen[-1][each] is None
    assert not any(key.startswith("unused") for key in optimizer.neutral_state())
    assert optimizer.updated == ("fc.weight", "fc.bias")
    of_single = optimizer_of(single, name)
    for step in range(3):
        of_single.update(mean_square, rows(seed=step))
    same_named(after, single.neutral_state())


@pytest.mark.parametrize(
    ("on_root", "wrap"), [(False, lambda loss: loss), (True, in_replicas)]
)
def test_parameters_frozen_after_wrapping_stay_where_they_are(backend, on_root, wrap):
    network, single = pair(backend, Small, 0.0)
    optimizers = [
        (optimizer_of(network, "adamw"), wrap(cross_entropy)),
        (optimizer_of(single, "adamw"), cross_entropy),
    ]
    for optimizer, loss in optimizers:
        optimizer.update(loss, *batch_of(7))
    before = network.neutral_state()
    (network.root if on_root else network).set_trainable("fc.*", False)
    single.set_trainable("fc.*", False)
    for optimizer, loss in optimizers:
        for step in range(1, 3):
            optimizer.update(loss, *batch_of(7, seed=step))
    after = network.neutral_state()
    assert np.array_equal(after["fc.weight"], before["fc.weight"])
    assert not np.array_equal(after["first.weight"], before["first.weight"])
    same_named(after, single.neutral_state())
    network.set_trainable("fc.*", True)
    single.set_trainable("fc.*", True)
    for optimizer, loss in optimizers:
        optimizer.update(loss, *batch_of(7, seed=3))
    assert not np.array_equal(network.neutral_state()["fc.weight"], before["fc.weight"])
    same_named(network.neutral_state(), single.neutral_state())
    same_named(optimizers[0][0].neutral_state(), optimizers[1][0].neutral_state())
    replicas_are_equal(network)


class Branching(Network):
    """A parameter that takes part only in shares of two samples."""

    def __init__(self):
        super().__init__()
        self.fc, self.extra = self.nn.Linear(3, 2), self.nn.Linear(3, 2)

    def forward(self, x):
        return self.extra(x) if x.shape[0] == 2 else self.fc(x)


@WAYS
def test_a_parameter_that_takes_part_in_some_replicas_gets_their_gradients(
    backend, wrap
):
    """Shares of 3, 2 and 2; the oracle runs them one by one."""
    x = rows()
    network = replicated(backend, 3, network=Branching)
    optimizer = optimizer_of(network)
    seen = watch_gradients(optimizer)
    optimizer.update(wrap(mean_square), x)
    shares = np.split(x, [3, 5])
    each = [
        backend.gradients(mean_square, built(backend, Branching), share).parameters
        for share in shares
    ]
    for name in ("weight", "bias"):
        np.testing.assert_allclose(
            seen[0][f"fc.{name}"], each[0][f"fc.{name}"] * 3 / 7, rtol=1e-12
        )
        of_two = (each[1][f"extra.{name}"] + each[2][f"extra.{name}"]) * 2 / 7
        np.testing.assert_allclose(seen[0][f"extra.{name}"], of_two, rtol=1e-12)
    replicas_are_equal(network)


# Several optimizers
# -----------------------------------------------------------------------------


def test_a_pattern_that_matches_nothing_suggests_another(backend):
    network = replicated(backend, 2, network=Branching)
    with pytest.raises(UnknownName, match=r"no parameter matches 'furst.*"):
        backend.optimizer(rule("adam", lr=0.01), network, parameters="furst.*")


# Gradients of gradients
# -----------------------------------------------------------------------------


class Smooth(Network):
    """Twice differentiable, with batch normalisation, which the replicas share.

    It keeps no running statistics: flax lets no buffer change inside of `jax.grad`, on one device
    either.
    """

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.first, self.bn, self.last = (
            nn.Linear(3, 4),
            nn.BatchNorm1d(4, track_running_stats=False),
            nn.Linear(4, 1),
        )

    def forward(self, x):
        return self.last(self.nn.tanh(self.bn(self.first(x))))


def gradient_penalty(network, x):
    """The mean squared distance of the input gradients' norms from one."""
    gradient = input_gradient(network, x)
    norms = network.nn.sum(gradient * gradient, dim=1) ** 0.5
    return network.nn.mean((norms - 1.0) ** 2)


def input_gradient(network, x):
    if network.backend.name == "torch":
        import torch

        x = x.detach().requires_grad_()
        return torch.autograd.grad(network(x).sum(), x, create_graph=True)[0]
    if network.backend.name == "chainer":
        import chainer

        x = chainer.Variable(getattr(x, "array", x))
        y = chainer.functions.sum(network(x))
        return chainer.grad([y], [x], enable_double_backprop=True)[0]
    import jax

    return jax.grad(lambda x: network(x).sum())(x)


@pytest.mark.parametrize("count", [1, 3])
def test_gradients_that_an_optimizer_keeps_are_not_those_of_another_one(backend, count):
    """The loss of the second reaches the parameters of the first, too."""
    network, single = replicated(backend, count), built(backend)
    first, second = (
        backend.optimizer(rule("sgd", lr=0.1), network, parameters=pattern)
        for pattern in ("first.*", "fc.*")
    )
    first.keep_gradients = True
    network.eval(), single.eval()
    wanted = backend.gradients(cross_entropy, single, *batch_of(7)).parameters
    first.update(cross_entropy, *batch_of(7))
    second.update(cross_entropy, *batch_of(7))
    found = backend.to_numpy(first.latest_gradients)
    same_named(found, {"first.weight": wanted["first.weight"]})


def test_what_a_hook_after_the_update_changes_reaches_the_replicas(backend):
    network, single = pair(backend, Plain, count=2)

    def clip_weights(optimizer):
        slot = optimizer.network.neutral_slots()["first.weight"]
        slot.write(np.clip(slot.read(), -0.1, 0.1))

    for each in (network, single):
        optimizer = optimizer_of(each)
        optimizer.post_update_hooks.append(clip_weights)
        for step in range(3):
            optimizer.update(gradient_penalty, rows(7, seed=step))
    same_named(network.neutral_state(), single.neutral_state())


def test_a_gradient_penalty_is_that_of_one_network(backend):
    """In the replicas without batch normalisation: with it, the gradient inside of a replica would
    be that of all replicas' outputs."""
    assert "double_backward" in backend.capabilities
    for kind, loss in (
        (Smooth, gradient_penalty),
        (Plain, in_replicas(gradient_penalty)),
    ):
        network, single = pair(backend, kind, count=2)
        for each, each_loss in ((network, loss), (single, gradient_penalty)):
            optimizer = optimizer_of(each)
            for step in range(3):
                optimizer.update(each_loss, rows(7, seed=step))
        same_named(network.neutral_state(), single.neutral_state())


class Plain(Network):
    def __init__(self):
        super().__init__()
        self.first, self.last = self.nn.Linear(3, 4), self.nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.nn.tanh(self.first(x)))
