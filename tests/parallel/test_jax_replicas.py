"""Replicated networks on JAX: programs on each device, what nnx sees, random streams, flax's own
networks."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from deliralike import DataParallel, Network, backends, in_replicas
from deliralike.backends.jax import arrays
from deliralike.errors import CapabilityError, DeviceError
from deliralike.optim.rules import rule
from deliralike.parallel.replicas.context import current as current_replica
from tests.arrays import same_named
from tests.backends.test_jax_hooks import Scaled
from tests.compiled import compilations
from tests.losses import cross_entropy, mean_square
from tests.parallel.networks import (
    Dense,
    Small,
    batch_of,
    built,
    optimizer_of,
)

JAX = backends.get("jax")
TWO, THREE = ["cpu", "cpu:1"], ["cpu", "cpu:1", "cpu:2"]


@pytest.fixture(autouse=True)
def float64():
    """flax's own networks are made in float64 only once it is on."""
    JAX.check_dtype("float64")


def rows(samples, width=3, seed=0):
    return np.random.default_rng(seed).normal(size=(samples, width))


def devices_of(network):
    return {
        device.id
        for _, slot in network.neutral_slots().items()
        for device in slot.native.get_value().devices()
    }


def without_running(state):
    return {
        name: value
        for name, value in state.items()
        if "running" not in name and "num_batches" not in name
    }


# Programs
# -----------------------------------------------------------------------------


def test_each_replica_lives_on_its_device_after_steps_too():
    network = DataParallel(built(JAX), THREE)
    assert [devices_of(replica) for replica in network.replicas] == [{0}, {1}, {2}]
    optimizer_of(network).update(cross_entropy, *batch_of(7))
    assert [devices_of(replica) for replica in network.replicas] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    "loss", [cross_entropy, in_replicas(cross_entropy)], ids=["gathered", "in replicas"]
)
def test_later_steps_compile_nothing_and_a_new_learning_rate_neither(loss):
    network = DataParallel(built(JAX), TWO, buffers="sync")
    optimizer = optimizer_of(network, "adam")
    for step in range(2):
        optimizer.update(loss, *batch_of(7, seed=step))
    optimizer.lr = 0.5
    with compilations() as compiled:
        for step in range(3):
            optimizer.update(loss, *batch_of(7, seed=step))
        assert compiled == []
        optimizer.update(loss, *batch_of(6))
    assert compiled  # another size of batch is another program: the count counts


@pytest.fixture
def programs(monkeypatch):
    """The text of every program that is run, and the devices of its results."""
    records, compile_program = [], arrays.jit

    def recording(function, **options):
        program = compile_program(function, **options)

        def call(*arguments):
            text = program.lower(*arguments).compile().as_text()
            results = program(*arguments)
            devices = {
                device.id
                for leaf in jax.tree.leaves(results)
                for device in leaf.devices()
            }
            records.append((text, devices))
            return results

        return call

    monkeypatch.setattr(arrays, "jit", recording)
    return records


def products(text):
    """The shapes of what the products of matrices in a program give."""
    return set(re.findall(r"= (f64\[[0-9,]*\])\S* dot\(", text))


def products_on(device, programs):
    """The shapes of all products that a device computes alone."""
    return set().union(*(products(text) for text, on in programs if on == {device}))


@pytest.mark.parametrize(
    "loss", [mean_square, in_replicas(mean_square)], ids=["gathered", "in replicas"]
)
def test_each_device_computes_the_rows_of_its_replicas_alone(programs, loss):
    network = DataParallel(built(JAX, Dense), ["cpu", "cpu:1", "cpu", "cpu:1"])
    optimizer_of(network).update(loss, rows(22))
    of_weight = "f64[2,3]"
    assert products_on(0, programs) == {"f64[6,2]", "f64[5,2]", of_weight}
    assert products_on(1, programs) == {"f64[6,2]", "f64[5,2]", of_weight}


def test_the_rows_of_unequal_shares_are_not_padded(programs):
    optimizer_of(DataParallel(built(JAX, Dense), TWO)).update(mean_square, rows(7))
    assert products_on(0, programs) == {"f64[4,2]", "f64[2,3]"}
    assert products_on(1, programs) == {"f64[3,2]", "f64[2,3]"}


@pytest.mark.parametrize(
    ("loss", "count"), [(in_replicas(cross_entropy), 1), (cross_entropy, 2)]
)
def test_forward_and_backward_are_one_program_unless_the_loss_needs_all_outputs(
    programs, loss, count
):
    network = DataParallel(built(JAX, Dense), TWO)
    labels = np.array([0, 1, 1, -100, 0, -100, 1])
    optimizer_of(network).update(loss, rows(7), labels)
    for device in (0, 1):
        on_device = [text for text, devices in programs if devices == {device}]
        assert sum(bool(products(text)) for text in on_device) == count


def test_a_callback_on_the_batch_is_made_once_in_each_replica():
    seen = []

    def loss(network, x, labels):
        jax.debug.callback(lambda rows: seen.append(rows.shape), x)
        return cross_entropy(network, x, labels)

    optimizer = optimizer_of(DataParallel(built(JAX, Dense), TWO))
    optimizer.update(in_replicas(loss), rows(7), np.arange(7) % 2)
    jax.effects_barrier()
    assert sorted(seen) == [(3, 3), (4, 3)]


@pytest.mark.parametrize("kind", ["flax", "net.nn"])
def test_the_whole_batch_is_shared_out_where_statistics_are_synchronised(
    programs, kind
):
    network = Flax() if kind == "flax" else built(JAX, Small, 0.0)
    optimizer_of(DataParallel(network, TWO, buffers="sync")).update(
        mean_square, rows(8)
    )
    text = programs[0][0]
    outputs = {"f64[4,5]", "f64[4,2]"} if kind == "flax" else {"f64[4,4]"}
    whole = {shape.replace("[4,", "[8,") for shape in outputs}
    assert "num_partitions=2" in text
    assert outputs <= products(text)
    assert not whole & products(text)


# Gradients
# -----------------------------------------------------------------------------


def test_each_replica_keeps_the_gradient_of_its_own_share():
    network, x = DataParallel(built(JAX, Dense), THREE), rows(7)
    _, of_root = optimizer_of(network).gradients(
        in_replicas(mean_square), *JAX.prepare((x,), network)
    )
    found = [of_root, *network.parallelism.replica_gradients()]
    for gradients, share, index in zip(
        found, np.split(x, [3, 5]), range(3), strict=True
    ):
        wanted = JAX.gradients(mean_square, built(JAX, Dense), share).parameters[
            "fc.weight"
        ]
        assert_allclose(gradients["fc.weight"], wanted * len(share) / 7, rtol=1e-12)
        assert {device.id for device in gradients["fc.weight"].devices()} == {index}
        assert gradients["unused.weight"] is None


class Branches(Network):
    """The first replica uses one layer, all others the other one."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.first, self.other = nn.Linear(3, 2), nn.Linear(3, 2)
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        replica = current_replica()
        is_first = replica is None or replica.index == 0
        return (self.first if is_first else self.other)(x)


def test_a_parameter_that_another_replica_alone_uses_is_updated():
    """The update's program adds up the gradients of three replicas, which have different ones."""
    network, x = DataParallel(built(JAX, Branches), THREE), rows(7)
    optimizer, before = optimizer_of(network), network.neutral_state()
    lr = optimizer.lr
    optimizer.update(in_replicas(mean_square), x)
    after = network.neutral_state()

    def outputs(layer):
        return x @ before[f"{layer}.weight"].T + before[f"{layer}.bias"]

    of_first, of_other = outputs("first")[:3] / 7, outputs("other")[3:] / 7
    wanted = {
        "first.weight": of_first.T @ x[:3],
        "other.weight": of_other.T @ x[3:],
        "first.bias": of_first.sum(0),
        "other.bias": of_other.sum(0),
    }
    for name, gradient in wanted.items():
        assert_allclose(
            after[name], before[name] - lr * gradient, rtol=1e-12, atol=1e-15
        )
    assert {*optimizer.updated} == {*wanted}


def test_replicas_read_a_variable_with_a_hook_as_one_device_does():
    networks = DataParallel(Scaled(), THREE), JAX.wrap(Scaled())
    for network in networks:
        for _ in range(2):
            optimizer_of(network).update(mean_square, rows(7))
    same_named(networks[0].neutral_state(), networks[1].neutral_state())


def test_an_optimizer_of_optax_over_a_part_leaves_the_rest_alone():
    network = DataParallel(built(JAX, Small, 0.0), TWO)
    optimizer = JAX.optimizer(rule("adam", lr=0.1), network, parameters="fc.*")
    native = JAX.wrap_optimizer(optax.adam(0.1), network).rule
    optimizer = type(optimizer)(network, type(native)(optax.adam(0.1)), "fc.*")
    before = network.neutral_state()
    optimizer.update(cross_entropy, *batch_of(5))
    after = without_running(network.neutral_state())
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert changed == {"fc.weight", "fc.bias"} == set(optimizer.updated)
    owners = {name.rpartition("/")[0] for name in optimizer.neutral_state()}
    assert owners - {"", "optax"} == changed


# Inside of programs of the user's
# -----------------------------------------------------------------------------


def whole_gradient(network, x):
    return nnx.grad(
        lambda network: jnp.mean(network(x) ** 2), argnums=nnx.DiffState(0, nnx.Param)
    )(network)


def test_the_users_own_gradient_works_where_replicas_share_a_device():
    plain, x = built(JAX), jnp.asarray(batch_of(7)[0])
    network = DataParallel(built(JAX), ["cpu"] * 3, buffers="sync")
    plain.dropout.p = network.root.dropout.p = 0.0
    found, wanted = (nnx.jit(whole_gradient)(each, x) for each in (network, plain))
    for mine, other in zip(
        jax.tree.leaves(found["root"]), jax.tree.leaves(wanted), strict=True
    ):
        assert_allclose(mine, other, rtol=1e-12, atol=1e-15)
    same_named(network.neutral_state(), plain.neutral_state())


@pytest.mark.parametrize(
    ("devices", "buffers"), [(TWO, "root"), (TWO, "sync"), (["cpu"] * 2, "root")]
)
def test_the_users_own_program_with_several_replicas_is_refused(devices, buffers):
    with pytest.raises(
        CapabilityError,
        match="cpu.* cannot run inside your jit or grad.*use optimizer.update",
    ):
        nnx.jit(lambda network, x: network(x))(
            DataParallel(built(JAX, Dense), devices, buffers=buffers), jnp.ones((4, 3))
        )


def test_nnx_sees_the_root_alone():
    network = DataParallel(built(JAX), TWO)
    assert len(jax.tree.leaves(nnx.state(network))) == len(
        jax.tree.leaves(nnx.state(network.root))
    )


# Random streams
# -----------------------------------------------------------------------------


class Noise(Network):
    def __init__(self):
        super().__init__()
        self.dropout = self.nn.Dropout(0.5)
        self.scale = self.nn.Linear(1, 1)

    def forward(self, x):
        return self.dropout(x)


def native_noise():
    module = nnx.Sequential(
        nnx.Linear(1, 64, kernel_init=nnx.initializers.ones, rngs=nnx.Rngs(0)),
        nnx.Dropout(0.5, rngs=nnx.Rngs(1)),
    )
    return JAX.wrap(module), jnp.ones((4, 1))


def own_noise():
    return Noise.on("jax")(), jnp.ones((4, 64))


@pytest.mark.parametrize("make", [native_noise, own_noise])
@pytest.mark.parametrize("places", [TWO, ["cpu"] * 2], ids=str)
def test_native_masks_differ_between_replicas_and_from_call_to_call(make, places):
    network, x = make()
    network = DataParallel(network, places)
    first, second = np.asarray(network(x)), np.asarray(network(x))
    assert set(np.unique(first)) == {0.0, 2.0}
    assert len({row.tobytes() for row in [*first, *second]}) == 8


# flax's own networks
# -----------------------------------------------------------------------------


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(3)
        self.first = nnx.Linear(3, 5, param_dtype=jnp.float64, rngs=rngs)
        self.norm = nnx.BatchNorm(5, param_dtype=jnp.float64, rngs=rngs)
        (
            self.norm.mean.set_value(jnp.zeros(5)),
            self.norm.var.set_value(jnp.ones(5)),
        )  # flax makes them float32
        self.last = nnx.Linear(5, 2, param_dtype=jnp.float64, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


@pytest.mark.parametrize(
    "loss", [mean_square, in_replicas(mean_square)], ids=["gathered", "in replicas"]
)
def test_flax_batch_norm_sees_the_whole_batch_when_synchronised(loss):
    networks = DataParallel(Flax(), THREE, buffers="sync"), JAX.wrap(Flax())
    optimizers = [optimizer_of(network) for network in networks]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.update(loss, rows(7, seed=step))
    same_named(networks[0].neutral_state(), networks[1].neutral_state())
    assert np.abs(networks[0].neutral_state()["norm.running_mean"]).max() > 1e-3
    x = jnp.asarray(rows(7))
    assert_allclose(networks[0](x), networks[1](x), rtol=1e-12)
    same_named(networks[0].neutral_state(), networks[1].neutral_state())
    same_named(networks[0].replicas[2].neutral_state(), networks[1].neutral_state())


class Clipped(nnx.Module):
    """A parameter that forward sets, as the first WGAN's."""

    def __init__(self):
        self.layer = nnx.Linear(3, 2, param_dtype=jnp.float64, rngs=nnx.Rngs(3))

    def __call__(self, x):
        kernel = self.layer.kernel
        kernel.set_value(jnp.clip(kernel.get_value(), -0.2, 0.2))
        return self.layer(x)


def test_a_parameter_that_forward_sets_is_set_once_or_refused():
    """Each replica would set its own; where the whole batch is one program there is one."""
    with pytest.raises(
        CapabilityError, match="forward sets layer.weight, or gives it back"
    ):
        optimizer_of(DataParallel(Clipped(), TWO)).update(mean_square, rows(7))
    networks = DataParallel(Clipped(), TWO, buffers="sync"), JAX.wrap(Clipped())
    for network in networks:
        optimizer_of(network).update(mean_square, rows(7))
    same_named(networks[0].neutral_state(), networks[1].neutral_state())


def test_a_batch_that_the_devices_do_not_divide_is_computed_op_by_op():
    network = DataParallel(built(JAX, Small, 0.0), TWO, buffers="sync")
    with JAX.op_by_op():
        found = JAX.gradients(cross_entropy, network, *batch_of(7))
    wanted = JAX.gradients(cross_entropy, built(JAX, Small, 0.0), *batch_of(7))
    same_named(found.parameters, wanted.parameters)


# Replicas that would wait for each other
# -----------------------------------------------------------------------------


class Waiting(Network):
    """Exchanges something with the other replicas."""

    def __init__(self, how):
        super().__init__()
        self.how, self.fc = how, self.nn.Linear(3, 2)

    def forward(self, x):
        y, here = self.fc(x), current_replica()
        if self.how == "sums":
            return here.all_sum(y, "a sum")
        return y + sum(here.exchange("a number", x.shape[0]))


@pytest.mark.parametrize(("how", "topic"), [("sums", "a sum"), ("values", "a number")])
@pytest.mark.parametrize("where", ["call", "update"])
def test_replicas_that_would_wait_for_each_other_are_refused(how, topic, where):
    network = DataParallel(built(JAX, Waiting, how), TWO)
    message = f"{topic} over the replicas: backend 'jax' runs them one after the other"
    with pytest.raises(CapabilityError, match=message):
        if where == "call":
            network(jnp.ones((7, 3)))
        else:
            optimizer_of(network).update(mean_square, rows(7))


def test_a_virtual_device_that_is_not_there_says_how_to_have_it():
    with pytest.raises(
        DeviceError, match="where JAX_NUM_CPU_DEVICES is set before it starts"
    ):
        backends.get("jax").check_device("cpu:99")
    with pytest.raises(DeviceError, match=r"no device 'tpu:0' here\. [^J]*$"):
        backends.get("jax").check_device("tpu:0")
