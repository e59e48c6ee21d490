"""Optimizer steps: on every backend those of the formulas, in float64, with a change of the
learning rate."""

import numpy as np
import pytest

from deliralike import Network, backends, start
from deliralike.errors import ArgumentError, SettingError, StateError, UnknownName
from deliralike.optim.rules import RULES, rule
from tests.core.networks import Classifier, cross_entropy

RNG = np.random.default_rng(3)
START = RNG.normal(size=5)
GRADIENTS = RNG.normal(size=(20, 5)) * np.array([1, 1e-3, 10, 1e-6, 1])
CASES = {
    "sgd": {"lr": 0.1},
    "sgd, momentum": {"lr": 0.1, "momentum": 0.9},
    "sgd, nesterov": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    "adam": {"lr": 0.01},
    "adam, large eps": {"lr": 0.01, "eps": 0.1, "betas": (0.8, 0.95), "weight_decay": 0.1},
    "adamw": {"lr": 0.01},
    "adamw, decay": {"lr": 0.01, "weight_decay": 0.3},
    "rmsprop": {"lr": 0.01},
    "rmsprop, momentum": {
        "lr": 0.01,
        "alpha": 0.9,
        "momentum": 0.8,
        "eps": 0.01,
        "weight_decay": 0.1,
    },
}


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


def oracle(
    name,
    gradients,
    lr=0.1,
    momentum=0.0,
    nesterov=False,
    weight_decay=None,
    betas=(0.9, 0.999),
    eps=1e-8,
    alpha=0.99,
    lrs=None,
):
    """The textbook formulas in NumPy; returns the vector after each step."""
    decay = (0.01 if name == "adamw" else 0.0) if weight_decay is None else weight_decay
    p, v, m, trace = START.copy(), np.zeros(5), np.zeros(5), []
    for t, g in enumerate(gradients, start=1):
        eta = lr if lrs is None else lrs[t - 1]
        if name == "adamw":
            p = p - eta * decay * p
        else:
            g = g + decay * p
        if name == "sgd":
            m = momentum * m + g
            p = p - eta * (g + momentum * m if nesterov else m)
        elif name == "rmsprop":
            v = alpha * v + (1 - alpha) * g**2
            m = momentum * m + g / (np.sqrt(v) + eps)
            p = p - eta * m
        else:
            m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g**2
            p = p - eta * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + eps)
        trace.append(p.copy())
    return np.array(trace)


@pytest.fixture
def vector(backend):
    return Vector.on(backend, dtype="float64")()


@pytest.mark.parametrize("case", CASES)
def test_twenty_steps_are_those_of_the_formulas_through_a_drop_of_the_learning_rate(vector, case):
    name, settings = case.partition(",")[0], CASES[case]
    optimizer = vector.backend.optimizer(rule(name, **settings), vector)
    lrs = [settings["lr"]] * 10 + [settings["lr"] / 10] * 10
    trace = []
    for lr, gradient in zip(lrs, GRADIENTS, strict=True):
        optimizer.lr = lr
        optimizer.update(linear_loss, gradient)
        trace.append(vector.neutral_state()["w"])
    expected = oracle(name, GRADIENTS, lrs=lrs, **settings)
    np.testing.assert_allclose(np.array(trace), expected, rtol=1e-12, atol=1e-12)
    assert optimizer.steps == 20


@pytest.mark.parametrize("case", CASES)
def test_an_unused_parameter_does_not_move_nor_decay(vector, case):
    optimizer = vector.backend.optimizer(rule(case.partition(",")[0], **CASES[case]), vector)
    for gradient in GRADIENTS[:3]:
        optimizer.update(linear_loss, gradient)
    np.testing.assert_array_equal(vector.neutral_state()["unused"], [3.0, 3.0])


def test_a_frozen_parameter_does_not_move(vector):
    vector.set_trainable("w", False)
    optimizer = vector.backend.optimizer(rule("adamw", lr=0.1), vector)
    optimizer.update(lambda net, g: net(g) + net.nn.sum(net.unused * net.unused), GRADIENTS[0])
    np.testing.assert_array_equal(vector.neutral_state()["w"], START)
    assert (vector.neutral_state()["unused"] < 3.0).all()


def test_a_parameter_frozen_after_a_step_stays_where_it_is(vector):
    optimizer = vector.backend.optimizer(rule("sgd", lr=0.1, momentum=0.9), vector)
    both = lambda net, g: net(g) + net.nn.sum(net.unused * net.unused)  # noqa: E731
    optimizer.update(both, GRADIENTS[0])
    before = vector.neutral_state()["w"]
    vector.set_trainable("w", False)
    optimizer.update(both, GRADIENTS[1])
    np.testing.assert_array_equal(vector.neutral_state()["w"], before)


def test_a_parameter_that_joins_later_starts_its_own_count(vector):
    """As in PyTorch: the bias corrections of a parameter follow its own updates."""
    optimizer = vector.backend.optimizer(rule("adam", lr=0.1), vector)
    only_unused = lambda net, g: net.nn.sum(net.unused) + 0.0 * net.nn.sum(g)  # noqa: E731
    for gradient in GRADIENTS[:4]:
        optimizer.update(only_unused, gradient)
    for gradient in GRADIENTS[:3]:
        optimizer.update(linear_loss, gradient)
    expected = oracle("adam", GRADIENTS[:3], lr=0.1)[-1]
    np.testing.assert_allclose(vector.neutral_state()["w"], expected, rtol=1e-12)


def test_hooks_run_in_order_and_may_change_the_gradients(vector):
    calls = []
    optimizer = vector.backend.optimizer(rule("sgd", lr=1.0), vector)

    def halve(optimizer, gradients):
        calls.append("pre")
        return {name: None if g is None else g * 0.5 for name, g in gradients.items()}

    optimizer.pre_update_hooks.append(halve)
    optimizer.post_update_hooks.append(lambda optimizer: calls.append(f"post {optimizer.steps}"))
    optimizer.update(linear_loss, GRADIENTS[0])
    np.testing.assert_allclose(vector.neutral_state()["w"], START - 0.5 * GRADIENTS[0], atol=1e-15)
    assert calls[0] == "pre"
    assert calls[-1] == "post 1"


def test_update_returns_what_the_loss_function_returned(vector):
    optimizer = vector.backend.optimizer(rule("sgd", lr=0.1), vector)
    loss, extra = optimizer.update(lambda net, g: (net(g), {"twice": net(g) * 2}), GRADIENTS[0])
    assert float(vector.backend.numpy(loss)) == pytest.approx(START @ GRADIENTS[0])
    assert float(vector.backend.numpy(extra["twice"])) == pytest.approx(2 * START @ GRADIENTS[0])


def test_the_learning_rate_can_be_read_and_set(vector):
    optimizer = vector.backend.optimizer(rule("adam", lr=0.25), vector)
    assert optimizer.lr == 0.25
    optimizer.lr = 0.125
    assert optimizer.lr == 0.125


def test_loading_weights_between_steps_takes_effect(vector):
    optimizer = vector.backend.optimizer(rule("sgd", lr=1.0), vector)
    optimizer.update(linear_loss, GRADIENTS[0])
    vector.load_neutral_state({"w": START * 2, "unused": np.zeros(2)})
    optimizer.update(linear_loss, GRADIENTS[1])
    np.testing.assert_allclose(vector.neutral_state()["w"], 2 * START - GRADIENTS[1], atol=1e-15)


@pytest.mark.parametrize("case", ["sgd, momentum", "adam", "rmsprop, momentum"])
def test_the_state_moves_to_a_new_optimizer(backend, case):
    build = lambda: Vector.on(backend, dtype="float64")()  # noqa: E731
    make = lambda network: backend.optimizer(rule(case.partition(",")[0], **CASES[case]), network)  # noqa: E731
    first = build()
    optimizer = make(first)
    for gradient in GRADIENTS[:4]:
        optimizer.update(linear_loss, gradient)
    second = build()
    second.load_neutral_state(first.neutral_state())
    resumed = make(second)
    resumed.load_neutral_state(optimizer.neutral_state())
    for gradient in GRADIENTS[4:7]:
        optimizer.update(linear_loss, gradient)
        resumed.update(linear_loss, gradient)
    np.testing.assert_array_equal(second.neutral_state()["w"], first.neutral_state()["w"])
    assert resumed.steps == 7


@pytest.mark.parametrize("case", ["sgd, momentum", "adamw, decay"])
def test_a_network_trains_alike_as_on_torch(backend, case):
    from deliralike import backends

    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(6, 3, 9, 7)), rng.integers(0, 4, 6)
    curves, states = [], []
    for each in (backends.get("torch"), backend):
        network = Classifier.on(each, dtype="float64")()
        optimizer = each.optimizer(rule(case.partition(",")[0], **CASES[case]), network)
        curves.append(
            [float(each.numpy(optimizer.update(cross_entropy, x, labels))) for _ in range(20)]
        )
        states.append(network.neutral_state())
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-10)
    assert curves[0][-1] < curves[0][0]
    for name, value in states[0].items():
        np.testing.assert_allclose(states[1][name], value, rtol=1e-9, atol=1e-11, err_msg=name)


def native_optimizer(backend, network):
    """A native Adam of each framework, told everything."""
    if backend.name == "torch":
        import torch

        return torch.optim.Adam(network.parameters(), lr=0.1, eps=1e-3)
    if backend.name == "chainer":
        import chainer

        return chainer.optimizers.SGD(lr=0.1)
    import optax

    return optax.adam(0.1, eps=1e-3)


def test_a_native_optimizer_can_be_wrapped(vector):
    optimizer = vector.backend.wrap_optimizer(native_optimizer(vector.backend, vector), vector)
    for gradient in GRADIENTS[:5]:
        optimizer.update(linear_loss, gradient)
    name, settings = (
        ("sgd", {"lr": 0.1})
        if vector.backend.name == "chainer"
        else ("adam", {"lr": 0.1, "eps": 1e-3})
    )
    np.testing.assert_allclose(
        vector.neutral_state()["w"], oracle(name, GRADIENTS[:5], **settings)[-1], rtol=1e-5
    )


def test_an_unknown_optimizer_suggests_the_nearest():
    with pytest.raises(UnknownName, match="there is no optimizer 'adm'. Did you mean 'adam'"):
        rule("adm", lr=0.1)


def test_an_unknown_setting_suggests_the_nearest():
    with pytest.raises(
        ArgumentError, match="optimizer 'sgd' has no setting 'momentun'. Did you mean 'momentum'"
    ):
        rule("sgd", lr=0.1, momentun=0.9)


@pytest.mark.parametrize("name", RULES)
def test_a_learning_rate_must_be_given(name):
    with pytest.raises(ArgumentError, match="needs a learning rate"):
        rule(name)


def test_a_negative_number_is_refused():
    with pytest.raises(SettingError, match="Adam: eps=-1.0 must be at least 0"):
        rule("adam", lr=0.1, eps=-1.0)


def test_nesterov_without_momentum_is_refused():
    with pytest.raises(SettingError, match="nesterov=True needs a momentum"):
        rule("sgd", lr=0.1, nesterov=True)


def test_a_state_of_another_network_is_refused_and_changes_nothing(vector):
    optimizer = vector.backend.optimizer(rule("adam", lr=0.1), vector)
    optimizer.update(linear_loss, GRADIENTS[0])
    before = optimizer.neutral_state()
    with pytest.raises(StateError, match="names parameters that the network lacks: elsewhere"):
        optimizer.load_neutral_state({**before, "elsewhere/exp_avg": np.ones(3)})
    after = optimizer.neutral_state()
    assert after.keys() == before.keys()
    assert all(np.array_equal(after[name], value) for name, value in before.items())


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
