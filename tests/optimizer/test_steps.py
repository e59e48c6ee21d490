"""Optimizer steps: counts, hooks, results and errors, on every backend."""

import numpy as np
import pytest

from deliralike import Network, backends, start
from deliralike.errors import ArgumentError, SettingError, UnknownName
from deliralike.optim.rules import RULES, rule
from tests.parallel.networks import native_sgd

RNG = np.random.default_rng(3)
START = RNG.normal(size=5)
GRADIENTS = RNG.normal(size=(20, 5)) * np.array([1, 1e-3, 10, 1e-6, 1])


class Vector(Network):
    """A vector `w` (used) and a vector `unused`; the loss is linear, so the test chooses the
    gradient."""

    def __init__(self):
        super().__init__()
        self.w = self.nn.Parameter((5,), START)
        self.unused = self.nn.Parameter((2,), start.Constant(3.0))

    def forward(self, gradient):
        return self.nn.sum(self.w * gradient)


def linear_loss(network, gradient):
    return network(gradient)


@pytest.fixture
def vector(backend):
    return Vector.on(backend, dtype="float64")()


def test_a_parameter_that_joins_later_starts_its_own_count(vector):
    """As in PyTorch: the bias corrections of a parameter follow its own updates."""
    optimizer = vector.backend.optimizer(rule("adam", lr=0.1), vector)
    only_unused = lambda net, g: net.nn.sum(net.unused) + 0.0 * net.nn.sum(g)  # noqa: E731
    for gradient in GRADIENTS[:4]:
        optimizer.update(only_unused, gradient)
    for gradient in GRADIENTS[:3]:
        optimizer.update(linear_loss, gradient)
    p, state = START, {"exp_avg": np.zeros(5), "exp_avg_sq": np.zeros(5)}
    adam = rule("adam", lr=0.1)
    for step in range(3):
        p, state = adam.update(p, GRADIENTS[step], state, adam.scalars(step + 1), np)
    np.testing.assert_allclose(vector.neutral_state()["w"], p, rtol=1e-12)


def test_update_returns_what_the_loss_function_returned(vector):
    optimizer = vector.backend.optimizer(rule("sgd", lr=0.1), vector)
    loss, extra = optimizer.update(
        lambda net, g: (net(g), {"twice": net(g) * 2}), GRADIENTS[0]
    )
    assert float(vector.backend.numpy(loss)) == pytest.approx(START @ GRADIENTS[0])
    assert float(vector.backend.numpy(extra["twice"])) == pytest.approx(
        2 * START @ GRADIENTS[0]
    )


def test_a_native_optimizer_can_be_wrapped(vector):
    optimizer = vector.backend.wrap_optimizer(native_sgd(vector), vector)
    p, velocity = START, 0.0
    for gradient in GRADIENTS[:5]:
        optimizer.update(linear_loss, gradient)
        velocity = 0.9 * velocity + gradient
        p = p - 0.1 * velocity
    np.testing.assert_allclose(vector.neutral_state()["w"], p, rtol=1e-12)


def test_an_unknown_optimizer_suggests_the_nearest():
    with pytest.raises(
        UnknownName, match="there is no optimizer 'adm'. Did you mean 'adam'"
    ):
        rule("adm", lr=0.1)


def test_an_unknown_setting_suggests_the_nearest():
    with pytest.raises(
        ArgumentError,
        match="optimizer 'sgd' has no setting 'momentun'. Did you mean 'momentum'",
    ):
        rule("sgd", lr=0.1, momentun=0.9)


@pytest.mark.parametrize("name", RULES)
def test_a_learning_rate_must_be_given(name):
    with pytest.raises(ArgumentError, match="needs a learning rate"):
        rule(name)


def test_a_negative_number_is_refused():
    with pytest.raises(SettingError, match="Adam: eps=-1.0 must be at least 0"):
        rule("adam", lr=0.1, eps=-1.0)


def test_a_parameter_that_moves_to_the_next_block_comes_under_its_new_name():
    torch = pytest.importorskip("torch")
    blocks = torch.nn.ModuleList([torch.nn.Module(), torch.nn.Module()])
    blocks[0].weight = torch.nn.Parameter(torch.ones(3))
    backend = backends.get("torch")
    optimizer = backend.optimizer(rule("sgd", lr=0.1), backend.wrap(blocks))

    def names():
        return list(optimizer.gradients(lambda _: next(blocks.parameters()).sum())[1])

    assert names() == ["0.weight"]
    weight = blocks[0].weight
    del blocks[0].weight
    blocks[1].weight = weight
    assert names() == ["1.weight"]
