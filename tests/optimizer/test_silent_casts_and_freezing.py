"""Steps that were wrong in silence: freezing within a window, complex and short types, averages."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, rules, wrap
from deliralike.errors import DtypeError
from deliralike.optim.clipping import ClipNorm, ClipValue
from deliralike.training import WeightAverage

X = np.linspace(-1, 2, 15).reshape(5, 3)


class TwoLayers(Network):
    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(3, 2)
        self.b = self.nn.Linear(2, 1)

    def forward(self, x):
        return self.b(self.a(x))


def mean(network, x):
    return network.nn.mean(network(x))


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_a_parameter_frozen_within_a_window_is_left_alone(backend):
    network = TwoLayers.on(backend, dtype="float64")()
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.5), network)
    optimizer.accumulate = 2
    before = network.neutral_state()
    optimizer.update(mean, X[:3])
    network.set_trainable("a.*", False)
    optimizer.update(mean, X[3:])
    after = network.neutral_state()
    assert sorted(optimizer.updated) == ["b.bias", "b.weight"]
    assert_array_equal(after["a.weight"], before["a.weight"])
    hidden = X.mean(0) @ before["a.weight"].T + before["a.bias"]
    assert_allclose(after["b.weight"][0], before["b.weight"][0] - 0.5 * hidden)


class Complex(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(
            torch.tensor([3 + 1j, -2j, 0.5], dtype=torch.complex128)
        )

    def forward(self, x):
        return (x.to(self.w.dtype) @ self.w).abs()


def test_complex_gradients_are_clipped_by_their_norm_as_in_pytorch():
    network, by_hand = wrap(Complex()), Complex()
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=1.0), network)
    optimizer.pre_update_hooks.append(ClipNorm(0.25))
    optimizer.update(mean, X)
    by_hand(torch.tensor(X)).mean().backward()
    torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 0.25)
    wanted = (by_hand.w - by_hand.w.grad).detach().numpy()
    assert_allclose(network.neutral_state()["w"], wanted, rtol=1e-5)


def test_complex_gradients_have_no_elements_to_bound():
    network = wrap(Complex())
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=1.0), network)
    optimizer.pre_update_hooks.append(ClipValue(0.25))
    with pytest.raises(DtypeError, match="gradient of 'w' is of type .*: use ClipNorm"):
        optimizer.update(mean, X)


def test_complex_parameters_are_averaged_and_not_copied():
    network = wrap(Complex())
    average = WeightAverage(network, decay=0.75)
    start = network.neutral_state()["w"]
    network.load_neutral_state({"w": start * 5})
    average.update()
    assert_allclose(average.neutral_state()["w"], start * 2)


class InSingle(torch.optim.Optimizer):
    """Keeps its momentum in float32, whatever the type of the parameters."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                held = self.state[p].setdefault(
                    "m", torch.zeros_like(p, dtype=torch.float32)
                )
                held.add_(p.grad.float(), alpha=1 / 3)
                p.data.sub_(held.to(p.dtype))


def test_a_state_in_float32_over_shorter_parameters_keeps_all_digits():
    module = torch.nn.Linear(3, 2).bfloat16()
    network = wrap(module)
    optimizer = network.backend.wrap_optimizer(InSingle(module.parameters()), network)
    optimizer.update(mean, X)
    state = optimizer.neutral_state()
    other = torch.nn.Linear(3, 2).bfloat16()
    resumed = network.backend.wrap_optimizer(InSingle(other.parameters()), wrap(other))
    resumed.load_neutral_state(state)
    assert resumed.native.state[other.weight]["m"].dtype == torch.float32
    assert_array_equal(resumed.neutral_state()["weight/m"], state["weight/m"])


def test_the_vectors_of_a_spectral_norm_are_not_averaged():
    torch.manual_seed(0)
    layer = torch.nn.utils.parametrizations.spectral_norm(
        torch.nn.Linear(5, 4)
    ).double()
    network = wrap(torch.nn.Sequential(layer, torch.nn.Linear(4, 1).double()))
    optimizer = network.backend.optimizer(rules.rule("adam", lr=0.2), network)
    average = WeightAverage(network, decay=0.9)
    optimizer.post_update_hooks.append(average)
    x = np.random.default_rng(0).normal(size=(9, 5))
    for _ in range(30):
        optimizer.update(lambda net, x: ((net(x) - 3 * x[:, :1]) ** 2).mean(), x)
    with average.swap_in():
        network.eval()
        largest = np.linalg.svd(layer.weight.detach().numpy())[1][0]
    assert abs(largest - 1) < 0.02  # 1.17 by averaged vectors
