"""The names that users of data parallelism know, on JAX: they work with the signatures that they
have elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from deliralike import Network, backends
from deliralike.backends import jax as names
from deliralike.errors import (
    ArgumentError,
    CapabilityError,
    DeviceError,
    OptimizerError,
    StructureError,
)
from tests.parallel.networks import Dense, built, same_named

JAX = backends.get("jax")
TWO = ["cpu", "cpu:1"]


def rows(samples, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, width))


def mean_square(network, x):
    y = network(x)
    return network.nn.mean(y * y)


def linear():
    return nnx.Linear(3, 2, rngs=nnx.Rngs(0))


# Networks and functions
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [[0, 1], TWO, ["cpu", "cpu"]], ids=str)
def test_data_parallel_computes_what_the_module_does(devices):
    module, x = linear(), jnp.asarray(rows(5))
    wanted = module(x)
    np.testing.assert_allclose(
        names.DataParallel(module, devices)(x), wanted, rtol=1e-6
    )
    np.testing.assert_allclose(
        names.data_parallel(module, x, devices), wanted, rtol=1e-6
    )
    np.testing.assert_allclose(
        names.data_parallel(module, (), devices, module_kwargs={"inputs": x}),
        wanted,
        rtol=1e-6,
    )
    output = names.DataParallelJaxNetwork(module, TWO, output_device="cpu:1")(x)
    assert output.devices() == {jax.devices()[1]}


def test_without_devices_all_are_used():
    assert len(names.DataParallel(linear()).replicas) == len(jax.devices())


def test_devices_may_be_jaxs_own_objects():
    network = names.DataParallel(linear(), jax.devices()[:2], jax.devices()[1])
    assert network(jnp.ones((4, 3))).devices() == {jax.devices()[1]}


def test_gradients_of_the_functional_form_land_on_the_module():
    module, x = linear(), jnp.asarray(rows(5))
    found = nnx.grad(
        lambda module: jnp.sum(names.data_parallel(module, x, ["cpu", "cpu"]) ** 2)
    )(module)
    wanted = nnx.grad(lambda module: jnp.sum(module(x) ** 2))(module)
    for mine, other in zip(
        jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(mine, other, rtol=1e-5)


def test_scatter_replicate_apply_and_gather_are_data_parallel_by_hand():
    module, x = linear(), jnp.asarray(rows(5))
    replicas = names.replicate(module, TWO)
    assert replicas[0] is module
    assert [next(iter(each.kernel[...].devices())).id for each in replicas] == [0, 1]
    outputs = names.parallel_apply(replicas, names.scatter((x,), TWO))
    assert [y.shape for y in outputs] == [(3, 2), (2, 2)]
    assert [next(iter(y.devices())).id for y in outputs] == [0, 1]
    np.testing.assert_allclose(names.gather(outputs, 0), module(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: names.DataParallel(linear(), [99]),
            DeviceError,
            "has no device number 99 here",
        ),
        (
            lambda: names.DataParallel(linear(), ["cpu:1", "cpu"]),
            DeviceError,
            "on 'cpu', the first device is 'cpu:1'",
        ),
        (
            lambda: names.replicate(linear(), ["cpu:1"]),
            DeviceError,
            "the module is on 'cpu', the first device is 'cpu:1'",
        ),
        (
            lambda: names.parallel_apply([linear()], []),
            ArgumentError,
            "1 modules, 0 inputs",
        ),
        (
            lambda: names.gather([{"a": 1}, {"b": 1}], 0),
            StructureError,
            r"keys \['a'\] on replica 0",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# Optimizers
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [None, TWO, ["cpu"] * 3], ids=str)
def test_an_optimizer_of_optax_follows_optax(devices):
    network = built(JAX, Dense)
    wanted = built(JAX, Dense)
    network = (
        network if devices is None else names.DataParallelJaxNetwork(network, devices)
    )
    optimizer = names.DataParallelJaxOptimizer.from_optimizer_class(
        optax.adam, network, learning_rate=0.1
    )
    values = {
        name: jnp.asarray(value)
        for name, value in wanted.neutral_state().items()
        if name.startswith("fc")
    }
    rule = optax.adam(0.1)
    state = rule.init(values)
    for step in range(3):
        x = rows(7, seed=step)
        optimizer.update(mean_square, x)
        gradients = jax.grad(
            lambda p, x=x: jnp.mean((x @ p["fc.weight"].T + p["fc.bias"]) ** 2)
        )(values)
        updates, state = rule.update(gradients, state)
        values = optax.apply_updates(values, updates)
    found = network.neutral_state()
    same_named(
        {name: found[name] for name in values},
        {name: np.asarray(value) for name, value in values.items()},
    )
    assert np.array_equal(
        found["unused.weight"], wanted.neutral_state()["unused.weight"]
    )
    assert optimizer.steps == 3


@pytest.mark.parametrize(
    "given",
    [None, "adam", jnp.ones, optax.adam(0.1)],
    ids=["None", "name", "function", "made"],
)
def test_what_gives_no_optimizer_is_refused(given):
    with pytest.raises(
        RuntimeError,
        match="from_optimizer_class wants a function such as optax.adam, not ",
    ) as caught:
        names.DataParallelJaxOptimizer.from_optimizer_class(given, built(JAX, Dense), 3)
    assert isinstance(caught.value, OptimizerError)


# Synchronised batch norm
# -----------------------------------------------------------------------------


class Own(Network):
    def __init__(self, kind):
        super().__init__()
        self.fc, self.bn = self.nn.Linear(3, 4), kind(4)

    def forward(self, x):
        return self.bn(self.fc(x))


@pytest.mark.parametrize("samples", [7, 3])
def test_synchronized_batch_norm_sees_all_shares_under_any_policy(samples):
    network = names.DataParallelJaxNetwork(
        built(JAX, Own, names.SynchronizedBatchNorm1d), ["cpu", "cpu:1", "cpu:2"]
    )
    plain = built(JAX, Own, JAX.nn.BatchNorm1d)
    target = rows(samples, 4, seed=3)

    def loss(network, x, y):
        return network.nn.mean((network(x) - y) ** 2)

    optimizers = [JAX.wrap_optimizer(optax.sgd(0.1), each) for each in (network, plain)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.update(loss, rows(samples, seed=step), target)
    same_named(network.neutral_state(), plain.neutral_state())
    np.testing.assert_allclose(
        network(jnp.asarray(target[:, :3])),
        plain(jnp.asarray(target[:, :3])),
        rtol=1e-12,
        atol=1e-13,
    )
    for replica in network.replicas[1:]:
        same_named(replica.neutral_state(), plain.neutral_state())


@pytest.mark.parametrize(
    ("n", "shape"),
    [(1, (4, 3)), (1, (4, 3, 5)), (2, (4, 3, 5, 7)), (3, (4, 3, 5, 7, 2))],
)
def test_outside_of_replicas_it_is_plain_batch_norm(n, shape):
    layer = getattr(names, f"SynchronizedBatchNorm{n}d")(3)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    wanted = (x - x.mean(axes, keepdims=True)) / np.sqrt(
        x.var(axes, keepdims=True) + 1e-5
    )
    np.testing.assert_allclose(layer(jnp.asarray(x)), wanted, rtol=1e-4, atol=1e-5)


def test_eager_sums_over_replicas_are_refused():
    network = names.DataParallelJaxNetwork(built(JAX, Dense), TWO)
    with pytest.raises(
        CapabilityError,
        match="here over the replicas: backend 'jax' runs them one after the other",
    ):
        network.parallelism.all_sum(0, None, False)(jnp.ones(3), "here")
