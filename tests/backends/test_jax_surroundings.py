"""What a loss reads beside its network and batch is read anew at each step, as on PyTorch: numbers
in closures, globals and attributes, other networks, and the network itself by another name."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from deliralike import DataParallel, Network, backends
from deliralike.errors import CapabilityError
from deliralike.optim.rules import rule
from tests.arrays import same_named
from tests.compiled import compilations

JAX, TORCH = backends.get("jax"), backends.get("torch")
INPUTS = np.random.default_rng(0).normal(size=(6, 3))
DEVICES = {"one device": None, "two replicas": ["cpu", "cpu"]}


class Net(Network):
    """Two blocks that a loss may use apart."""

    def __init__(self, norm=False):
        super().__init__()
        nn = self.nn
        self.generator, self.critic = nn.Linear(3, 3), nn.Linear(3, 1)
        self.norm = nn.BatchNorm1d(3) if norm else nn.Identity()

    def forward(self, x):
        return self.critic(self.norm(self.scaled(self.generator(x))))

    def scaled(self, x):
        return INNER * x

    def loss(self, _network, x):
        return self.nn.mean((self.forward(x) - 1) ** 2)

    def critic_loss(self, network, x):
        nn = self.nn
        return nn.mean(nn.softplus(network.critic(nn.stop_gradient(self.generator(x)))))

    def generator_loss(self, network, x):
        return self.nn.mean(self.nn.softplus(-self.critic(network.generator(x))))


def built(backend, devices=None, dtype="float64", **settings):
    network = Net.on(backend.name, dtype=dtype)(**settings)
    return network, network if devices is None else DataParallel(network, devices)


def optimizer_of(network, lr=0.5, **settings):
    return network.backend.optimizer(rule("sgd", lr=lr), network, **settings)


# Numbers
# -----------------------------------------------------------------------------

FACTOR, INNER = 1.0, 1.0
SETTINGS = {"loss": {"factor": 1.0}}


def mean_square(network, x):
    return network.nn.mean(network(x) ** 2)


def by_global(network, x):
    return FACTOR * mean_square(network, x)


def set_global(value):
    global FACTOR
    FACTOR = value


def set_inner(value):
    global INNER
    INNER = value


def factor():
    return FACTOR


def by_helper(network, x):
    return factor() * mean_square(network, x)


def by_dict(network, x):
    return SETTINGS["loss"]["factor"] * mean_square(network, x)


def by_closure():
    weight = 1.0

    def loss(network, x):
        return weight * mean_square(network, x)

    def set_weight(value):
        nonlocal weight
        weight = value

    return loss, set_weight


class Weighted:
    """A loss with settings."""

    def __init__(self):
        self.beta, self.options = 1.0, SimpleNamespace(scale=1.0)
        self.array = np.array(1.0)
        self.steps = 0  # which the loss does not read

    def scale(self):
        return self.options.scale * float(self.array)

    def __call__(self, network, x):
        return self.beta * self.scale() * mean_square(network, x)

    def method(self, network, x):
        return self(network, x)

    def set_array(self, value):
        self.array[...] = value


def losses():
    """A loss, and what sets a number that it reads, by name."""
    closure, set_closure = by_closure()
    called, method, nested, in_place = (Weighted() for _ in range(4))
    return {
        "global": (by_global, set_global),
        "global of a helper": (by_helper, set_global),
        "global of forward": (
            lambda network, x: network.nn.mean(network(x) - network.critic.bias),
            set_inner,
        ),
        "dict": (by_dict, lambda value: SETTINGS["loss"].update(factor=value)),
        "closure": (closure, set_closure),
        "attribute": (called, lambda value: setattr(called, "beta", value)),
        "method": (method.method, lambda value: setattr(method, "beta", value)),
        "nested": (nested, lambda value: setattr(nested.options, "scale", value)),
        "array in place": (in_place, in_place.set_array),
    }


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("name", losses())
def test_a_number_that_the_loss_reads_is_the_present_one(name, devices):
    loss, set_number = losses()[name]
    _, network = built(JAX, devices)
    optimizer = optimizer_of(network, lr=0.0)
    found = []
    for number in (1.0, 3.0, 1.0):
        set_number(number)
        found.append(float(JAX.numpy(optimizer.update(loss, INPUTS))))
    assert_allclose(found, np.array([1, 3, 1]) * found[0], rtol=1e-12)


def test_numbers_of_before_and_attributes_that_are_not_read_compile_nothing():
    _, network = built(JAX)
    optimizer, loss = optimizer_of(network, lr=0.0), Weighted()
    for beta in (1.0, 2.0):
        loss.beta = beta
        optimizer.update(loss, INPUTS)
    with compilations() as compiled:
        for beta in (1.0, 2.0):
            loss.beta, loss.steps = beta, loss.steps + 1
            optimizer.update(loss, INPUTS)
    assert not compiled


def test_a_number_that_changes_at_each_step_is_named():
    _, network = built(JAX)
    optimizer, loss = optimizer_of(network, lr=0.0), Weighted()
    with pytest.warns(UserWarning, match="The loss reads beta, and is compiled for"):
        for step in range(18):
            loss.beta = float(step)
            optimizer.update(loss, INPUTS)


def test_a_hook_before_the_update_reads_the_present_number():
    steps = []
    for backend in (TORCH, JAX):
        network, _ = built(backend)
        optimizer, weight = optimizer_of(network), Weighted()

        def scale(_optimizer, gradients, weight=weight):
            return {name: weight.beta * value for name, value in gradients.items()}

        optimizer.pre_update_hooks.append(scale)
        for weight.beta in (1.0, 0.0, -1.0):
            optimizer.update(mean_square, INPUTS)
            steps.append(network.neutral_state()["critic.weight"])
    assert_allclose(steps[3:], steps[:3], rtol=1e-12)
    assert_array_equal(steps[1], steps[0])


@pytest.mark.parametrize("kind", ["global", "own"])
def test_a_loss_that_draws_on_the_host_is_warned_of(kind):
    _, network = built(JAX)
    generator = np.random if kind == "global" else np.random.default_rng(0)

    def loss(network, x):
        return network.nn.mean(network(x + generator.normal(size=x.shape)))

    with pytest.warns(RuntimeWarning, match="a loss draws random numbers of NumPy"):
        optimizer_of(network).update(loss, INPUTS)


# Networks
# -----------------------------------------------------------------------------


def adversaries(backend, devices):
    """The losses of two networks, each of which uses the other one in its loss."""
    (generator, replicated), (critic, other) = (
        built(backend, devices),
        built(backend, devices),
    )
    nn = generator.nn

    def critic_loss(network, x):
        return nn.mean(nn.softplus(network(x * nn.stop_gradient(generator(x)))))

    networks = {"critic": critic}

    def generator_loss(network, x):
        return nn.mean(nn.softplus(-networks["critic"](x * network(x))))

    optimizers = optimizer_of(other), optimizer_of(replicated)
    losses = []
    for _ in range(3):
        for optimizer, loss in zip(
            optimizers, (critic_loss, generator_loss), strict=True
        ):
            losses.append(float(backend.numpy(optimizer.update(loss, INPUTS))))
    return losses


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_another_network_in_a_loss_is_the_present_one_and_compiles_nothing(devices):
    wanted = adversaries(TORCH, None)
    assert_allclose(adversaries(JAX, devices), wanted, rtol=1e-12)


def test_the_arrays_of_another_network_compile_nothing():
    (network, _), (teacher, _) = built(JAX), built(JAX)
    optimizer = optimizer_of(network, lr=0.0)

    def loss(network, x):
        return network.nn.mean((network(x) - teacher(x)) ** 2)

    optimizer.update(loss, INPUTS)
    state = teacher.neutral_state()
    teacher.load_neutral_state({**state, "critic.bias": state["critic.bias"] + 2.0})
    with compilations() as compiled:
        found = optimizer.update(loss, INPUTS)
    assert not compiled
    assert_allclose(JAX.numpy(found), 4.0, rtol=1e-12)


def test_the_mode_of_another_network_is_the_present_one():
    found = {}
    for backend in (TORCH, JAX):
        (network, _), (teacher, _) = built(backend), built(backend, norm=True)
        optimizer, values = optimizer_of(network), []

        def loss(network, x, teacher=teacher):
            return network.nn.mean((network(x) - teacher(x)) ** 2)

        for shift in (0.0, 1.0):
            teacher.eval()
            state = teacher.neutral_state()
            mean = state["norm.running_mean"] + shift
            teacher.load_neutral_state({**state, "norm.running_mean": mean})
            values.append(float(backend.numpy(optimizer.update(loss, INPUTS))))
        found[backend.name] = values
    assert_allclose(found["jax"], found["torch"], rtol=1e-12)


def test_another_network_that_would_set_its_statistics_is_refused():
    (network, _), (other, _) = built(JAX), built(JAX, norm=True)
    state = other.neutral_state()

    def loss(network, x):
        return network.nn.mean(network(x) * other(x))

    with pytest.raises(CapabilityError, match="sets norm.running_mean of a network be"):
        optimizer_of(network).update(loss, INPUTS)
    assert_equal(other.neutral_state(), state)


WAYS = {
    "closure": lambda network: (
        lambda _network, x: network.nn.mean((network(x) - 1) ** 2)
    ),
    "method": lambda network: network.loss,
}


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("norm", [False, True], ids=["plain", "norm"])
@pytest.mark.parametrize("way", WAYS)
def test_the_network_itself_by_another_name_is_trained(way, norm, devices):
    found = {}
    for backend, places in ((TORCH, None), (JAX, devices)):
        network, optimized = built(backend, places, norm=norm)
        optimizer = optimizer_of(optimized, lr=0.1)
        loss = WAYS[way](network)
        values = [
            float(backend.numpy(optimizer.update(loss, INPUTS))) for _ in range(3)
        ]
        found[backend.name] = values, network.neutral_state()
    assert_allclose(found["jax"][0], found["torch"][0], rtol=1e-12)
    same_named(found["jax"][1], found["torch"][1])


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_two_optimizers_of_one_network_see_each_others_updates(devices):
    found = {}
    for backend, places in ((TORCH, None), (JAX, devices)):
        network, optimized = built(backend, places)
        critic = optimizer_of(optimized, parameters="critic.*")
        generator = optimizer_of(optimized, parameters="generator.*")
        values = []
        for _ in range(3):
            for optimizer, loss in (
                (critic, network.critic_loss),
                (generator, network.generator_loss),
            ):
                values.append(float(backend.numpy(optimizer.update(loss, INPUTS))))
        found[backend.name] = values
    assert_allclose(found["jax"], found["torch"], rtol=1e-12)


def test_a_program_in_evaluation_reads_the_present_numbers_and_networks():
    (network, _), (other, _) = built(JAX), built(JAX)
    weight = Weighted()

    def difference(network, x):
        return weight.beta * (network(x) - other(x))

    run = JAX.program(difference, network.eval())
    assert not JAX.numpy(run(JAX.array(INPUTS, "float64"))).any()
    state = other.neutral_state()
    other.load_neutral_state({**state, "critic.bias": state["critic.bias"] - 2.0})
    weight.beta = 3.0
    found = JAX.numpy(run(JAX.array(INPUTS, "float64")))
    assert_allclose(found, 6.0, rtol=1e-12)
