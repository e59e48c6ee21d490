"""Parameter groups: settings of their own by name, and ratios of learning rates that are kept."""

import importlib

import numpy as np
import pytest

from deliralike import DataParallel, Network, backends
from deliralike.errors import ArgumentError, SettingError, UnknownName
from deliralike.optim.groups import Groups
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.parallel.networks import devices

RNG = np.random.default_rng(5)
BATCH, TARGET = RNG.normal(size=(7, 5)), RNG.normal(size=(7, 3))


class Net(Network):
    """An encoder, a head, and a second name for the encoder's bias."""

    def __init__(self, tied=False):
        super().__init__()
        self.encoder, self.head = self.nn.Linear(5, 4), self.nn.Linear(4, 3)
        if tied:
            self.again = self.nn.Linear(5, 4, bias=False)
            self.again.weight = self.encoder.weight

    def forward(self, x):
        return self.head(self.nn.tanh(self.encoder(x)))


def squares(network, x, y):
    difference = network(x) - y
    return network.nn.mean(difference * difference)


def net(backend, **settings):
    return Net.on(backend, dtype="float64")(**settings)


def state(network):
    return network.neutral_state()


def gradients(network):
    return network.backend.gradients(squares, network, BATCH, TARGET).parameters


def test_the_numbers_of_each_group_are_used_and_the_first_match_wins(backend):
    """Plain descent, against NumPy."""
    network = net(backend)
    groups = {
        "*.bias": {"weight_decay": 0.0},
        "encoder.*": {"lr": 0.02},
        "*": {"lr": 0.4, "weight_decay": 0.5},
    }
    optimizer = backend.optimizer(
        rule("sgd", lr=0.1, weight_decay=0.25), network, groups=groups
    )
    numbers = {
        "encoder.bias": (0.1, 0.0),
        "head.bias": (0.1, 0.0),
        "encoder.weight": (0.02, 0.25),
        "head.weight": (0.4, 0.5),
    }
    for factor in (1.0, 0.5):
        optimizer.lr = 0.1 * factor
        before, g = state(network), gradients(network)
        optimizer.update(squares, BATCH, TARGET)
        same_named(
            state(network),
            {
                name: before[name] - lr * factor * (g[name] + decay * before[name])
                for name, (lr, decay) in numbers.items()
            },
        )


def test_a_group_may_have_another_state(backend):
    network = net(backend)
    groups = {"encoder.*": {"momentum": 0.9}}
    optimizer = backend.optimizer(rule("sgd", lr=0.1), network, groups=groups)
    optimizer.update(squares, BATCH, TARGET)
    assert "encoder.weight/momentum_buffer" in optimizer.neutral_state()
    assert "head.weight/momentum_buffer" not in optimizer.neutral_state()


def test_groups_over_replicas_are_those_of_one_network(backend):
    groups = {"*.bias": {"weight_decay": 0.0}, "encoder.*": {"lr": 0.02}}
    networks = [net(backend), DataParallel(net(backend), devices(backend, 2))]
    optimizers = [
        backend.optimizer(rule("adamw", lr=0.1, weight_decay=0.3), each, groups=groups)
        for each in networks
    ]
    for lr in (0.1, 0.05, 0.01):
        for optimizer in optimizers:
            optimizer.lr = lr
            optimizer.update(squares, BATCH, TARGET)
    same_named(state(networks[1]), state(networks[0]))


def test_a_tied_parameter_has_one_group_by_any_of_its_names(backend):
    network = net(backend, tied=True)
    before, g = state(network), gradients(network)
    optimizer = backend.optimizer(
        rule("sgd", lr=0.1), network, groups={"again.*": {"lr": 0.3}}
    )
    optimizer.update(squares, BATCH, TARGET)
    for name in ("encoder.weight", "again.weight"):
        np.testing.assert_allclose(
            state(network)[name], before[name] - 0.3 * g["encoder.weight"], rtol=1e-12
        )


def test_groups_divide_the_parameters_of_a_pattern(backend):
    network = net(backend)
    before, g = state(network), gradients(network)
    options = {"parameters": "head.*", "groups": {"*.bias": {"lr": 0.2}}}
    optimizer = backend.optimizer(rule("sgd", lr=0.1), network, **options)
    optimizer.update(squares, BATCH, TARGET)
    rates = {
        "encoder.weight": 0.0,
        "encoder.bias": 0.0,
        "head.weight": 0.1,
        "head.bias": 0.2,
    }
    same_named(
        state(network),
        {name: before[name] - lr * g[name] for name, lr in rates.items()},
    )
    with pytest.raises(
        UnknownName,
        match=r"groups: no parameter matches 'encoder.\*'. Known: head.bias",
    ):
        backend.optimizer(
            rule("sgd", lr=0.1),
            network,
            parameters="head.*",
            groups={"encoder.*": {"lr": 0.2}},
        )


def test_a_group_without_a_learning_rate_of_its_own_stays_still(backend):
    network = net(backend)
    before = state(network)
    optimizer = backend.optimizer(
        rule("sgd", lr=0.1), network, groups={"encoder.*": {"lr": 0.0}}
    )
    optimizer.update(squares, BATCH, TARGET)
    optimizer.lr = 0.5
    optimizer.update(squares, BATCH, TARGET)
    after = state(network)
    assert not np.array_equal(after.pop("head.bias"), before.pop("head.bias"))
    assert not np.array_equal(after.pop("head.weight"), before.pop("head.weight"))
    same_named(after, before)


BAD = {
    "an unknown setting": (
        {"*.bias": {"weight_deca": 0}},
        ArgumentError,
        r"groups\['\*.bias'\] has no setting 'weight_deca'. Did you mean 'weight_decay'",
    ),
    "a pattern of nothing": (
        {"encodr.*": {"lr": 0.1}},
        UnknownName,
        r"groups: no parameter matches 'encodr.\*'. Did you mean 'encoder",
    ),
    "no settings": (
        {"*.bias": 0.1},
        ArgumentError,
        r"groups\['\*.bias'\]=0.1: wanted settings by name",
    ),
    "no patterns": (
        [{"lr": 0.1}],
        ArgumentError,
        r"groups=\[\{'lr': 0.1\}\]: wanted patterns with settings",
    ),
    "a setting without sense": (
        {"*.bias": {"lr": -1.0}},
        SettingError,
        r"groups\['\*.bias'\]: SGD: lr=-1.0 must be at least 0",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_groups_are_refused(backend, bad):
    groups, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        backend.optimizer(rule("sgd", lr=0.1), net(backend), groups=groups)


def test_a_ratio_to_a_learning_rate_of_zero_is_refused(backend):
    with pytest.raises(
        SettingError,
        match=r"groups\['\*.bias'\] has lr=0.1 while the optimizer's own is 0",
    ):
        backend.optimizer(
            rule("sgd", lr=0.0), net(backend), groups={"*.bias": {"lr": 0.1}}
        )


def test_groups_that_were_refused_leave_the_optimizer_in_use_as_it_is(backend):
    """Chainer's parameters hold their update rules."""
    networks = [net(backend), net(backend)]
    optimizers = [
        backend.optimizer(rule("adam", lr=0.1), network) for network in networks
    ]
    with pytest.raises(UnknownName):
        backend.optimizer(
            rule("sgd", lr=5.0), networks[0], groups={"nothing": {"lr": 0.1}}
        )
    for optimizer in optimizers:
        optimizer.update(squares, BATCH, TARGET)
    same_named(state(networks[0]), state(networks[1]), 0)


@pytest.mark.parametrize("lr", [0.3, 0.1, 0.7, 1e-3])
def test_rates_are_exact_for_the_rule_itself_and_where_they_started(lr):
    """No rounding by way of a ratio: a run without groups and the start of one with them are to the
    bit."""
    groups = Groups.of(
        rule("sgd", lr=0.1), {"a": {"lr": 0.007}, "b": {"weight_decay": 0.1}}
    )
    assert [each.lr for each in groups.with_lr(lr).with_lr(0.1).rules] == [
        0.1,
        0.007,
        0.1,
    ]
    assert [groups.with_lr(lr).rules[place].lr for place in (0, 2)] == [lr, lr]
    assert groups.with_lr(0.0).with_lr(lr).rules[1].lr == pytest.approx(
        0.07 * lr, rel=1e-15
    )


# PyTorch's own groups
# -----------------------------------------------------------------------------


def torch_net():
    return net(backends.get("torch"))


def native_with_groups(network, lr=0.1):
    import torch

    return torch.optim.SGD(
        [
            {"params": network.head.parameters()},
            {"params": network.encoder.parameters(), "lr": 0.025},
        ],
        lr=lr,
    )


def test_groups_are_param_groups_on_pytorch():
    network = torch_net()
    groups = {"encoder.*": {"lr": 0.02, "betas": (0.5, 0.6)}}
    native = (
        backends.get("torch")
        .optimizer(rule("adam", lr=0.1), network, groups=groups)
        .native
    )
    names = {id(slot.native): name for name, slot in network.neutral_slots().items()}
    found = [
        ([names[id(each)] for each in group["params"]], group["lr"], group["betas"])
        for group in native.param_groups
    ]
    assert found == [
        (["head.weight", "head.bias"], 0.1, (0.9, 0.999)),
        (["encoder.weight", "encoder.bias"], 0.02, (0.5, 0.6)),
    ]


def test_a_plain_rule_is_one_native_param_group_on_pytorch():
    native = backends.get("torch").optimizer(rule("adam", lr=0.1), torch_net()).native
    assert len(native.param_groups) == 1
    assert [native.defaults[name] for name in ("foreach", "fused", "capturable")] == [
        None,
        True,
        False,
    ]


def test_groups_that_take_every_parameter_leave_the_rules_own_one_empty():
    """Its learning rate is the optimizer's all the same."""
    network = torch_net()
    optimizer = backends.get("torch").optimizer(
        rule("adam", lr=0.1), network, groups={"*": {"lr": 0.2}}
    )
    optimizer.update(squares, BATCH, TARGET)
    optimizer.lr = 0.05
    assert [
        (len(group["params"]), group["lr"]) for group in optimizer.native.param_groups
    ] == [
        (0, 0.05),
        (4, 0.1),
    ]


def test_a_wrapped_optimizer_of_pytorch_keeps_the_ratios_of_its_groups():
    network = torch_net()
    optimizer = backends.get("torch").wrap_optimizer(
        native_with_groups(network), network
    )
    rates = []
    for lr in (0.1, 0.2, 0.0, 0.4):
        optimizer.lr = lr
        rates.append([group["lr"] for group in optimizer.native.param_groups])
    assert rates == [[0.1, 0.025], [0.2, 0.05], [0.0, 0.0], [0.4, 0.1]]


def test_a_group_that_is_added_later_keeps_the_ratio_it_comes_with():
    import torch

    network = torch_net()
    native = torch.optim.SGD(network.head.parameters(), lr=0.1)
    optimizer = backends.get("torch").wrap_optimizer(native, network)
    optimizer.lr = 0.2
    native.add_param_group({"params": network.encoder.parameters(), "lr": 0.05})
    optimizer.lr = 0.4
    assert [group["lr"] for group in native.param_groups] == [0.4, 0.1]


def test_a_wrapped_optimizer_whose_first_rate_is_zero_has_no_ratios():
    network = torch_net()
    optimizer = backends.get("torch").wrap_optimizer(
        native_with_groups(network, lr=0.0), network
    )
    with pytest.raises(
        SettingError,
        match="a group of parameters has lr=0.025 while the optimizer's own is 0",
    ):
        optimizer.lr = 0.1


def test_a_rate_that_is_a_tensor_stays_the_same_tensor():
    """As a compiled step of PyTorch's needs it."""
    import torch

    network, rate = torch_net(), torch.tensor(0.1)
    native = torch.optim.Adam(network.parameters(), lr=rate, foreach=False)
    backends.get("torch").wrap_optimizer(native, network).lr = 0.25
    assert native.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_an_optimizer_of_pytorch_without_a_learning_rate_says_so():
    import torch

    class Rateless(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {})

        def step(self, closure=None):
            return None

    network = torch_net()
    optimizer = backends.get("torch").wrap_optimizer(
        Rateless(network.parameters()), network
    )
    with pytest.raises(ArgumentError, match="Rateless has no learning rate"):
        optimizer.lr = 0.1


@pytest.mark.parametrize("given", ["sgd", None, 0.1])
def test_what_is_no_rule_makes_no_optimizer(backend, given):
    with pytest.raises(ArgumentError, match="made of an update rule, not of"):
        backend.optimizer(given, Net.on(backend)())


def unwrapped(name):
    """A module of the framework itself."""
    if name == "torch":
        return importlib.import_module("torch").nn.Linear(3, 2)
    if name == "chainer":
        return importlib.import_module("chainer").links.Linear(3, 2)
    nnx = importlib.import_module("flax.nnx")
    return nnx.Linear(3, 2, rngs=nnx.Rngs(0))


def test_what_is_no_network_has_no_optimizer(backend):
    """A module of a framework is one when it is wrapped."""
    with pytest.raises(ArgumentError, match="is wrapped, deliralike.wrap"):
        backend.optimizer(rule("sgd", lr=0.1), unwrapped(backend.name))


def test_several_patterns_are_no_pattern(backend):
    network = Net.on(backend)()
    with pytest.raises(ArgumentError, match="is no pattern of names"):
        backend.optimizer(rule("sgd", lr=0.1), network, parameters=["head.*"])
    with pytest.raises(ArgumentError, match="is no pattern of names"):
        network.set_trainable(["head.*"], False)
