"""A tied parameter counts once, whichever of its names an optimizer owns: PyTorch by hand."""

import numpy as np
import pytest
import torch

from deliralike import DataParallel, Network, in_replicas, rules
from deliralike.optim.clipping import ClipNorm

X = np.linspace(-1, 2, 21).reshape(7, 3)
Y = np.arange(7) % 2
DEVICES = {"torch": ["cpu"] * 3, "chainer": ["@numpy"] * 3}


class Tied(Network):
    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(3, 3)
        self.c = self.nn.Linear(3, 3)
        self.c.weight = self.a.weight

    def forward(self, x):
        return self.c(self.nn.tanh(self.a(x)))


def cross_entropy(network, x, y):
    return network.nn.cross_entropy(network(x), y) * 5


def by_hand(state, owned, bound=None):
    """Return the state after a step of 0.5 by PyTorch alone."""
    once = {
        name: torch.tensor(state[name]) for name in ("a.weight", "a.bias", "c.bias")
    }
    trained = [once[name].requires_grad_() for name in owned]
    hidden = torch.tanh(torch.tensor(X) @ once["a.weight"].T + once["a.bias"])
    outputs = hidden @ once["a.weight"].T + once["c.bias"]
    (torch.nn.functional.cross_entropy(outputs, torch.tensor(Y)) * 5).backward()
    if bound is not None:
        torch.nn.utils.clip_grad_norm_(trained, bound)
    with torch.no_grad():
        for parameter in trained:
            parameter -= 0.5 * parameter.grad
    return {name: value.detach().numpy() for name, value in once.items()}


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_norm_counts_a_tied_gradient_once_and_a_hook_sees_it_once(backend):
    network = Tied.on(backend, dtype="float64")()
    before = network.neutral_state()
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.5), network)
    seen = []
    optimizer.pre_update_hooks += [
        ClipNorm(0.3),
        lambda _, given: seen.append([*given]) or given,
    ]
    optimizer.update(cross_entropy, X, Y)
    after = network.neutral_state()
    assert sorted(seen[0]) == ["a.bias", "a.weight", "c.bias"]
    for name, wanted in by_hand(
        before, ["a.weight", "a.bias", "c.bias"], bound=0.3
    ).items():
        np.testing.assert_allclose(after[name], wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", ["torch", "chainer"])
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_part_tied_to_one_outside_of_it_gets_the_gradients_of_all_replicas(
    backend, inside, accumulate
):
    network = DataParallel(Tied.on(backend, dtype="float64")(), DEVICES[backend])
    before = network.neutral_state()
    optimizer = network.backend.optimizer(
        rules.rule("sgd", lr=0.5), network, parameters="c.*"
    )
    optimizer.accumulate = accumulate
    loss = in_replicas(cross_entropy) if inside else cross_entropy
    for rows in [slice(None)] if accumulate == 1 else [slice(3), slice(3, 7)]:
        optimizer.update(loss, X[rows], Y[rows])
    for name, wanted in by_hand(before, ["a.weight", "c.bias"]).items():
        np.testing.assert_allclose(network.neutral_state()[name], wanted, rtol=1e-12)
    assert network.parallelism.stale_name() is None
