"""Gradients on JAX are compiled once, and follow all that changes between two calls.

Each gradient is compared with its closed form.
"""

from __future__ import annotations

import copy
import gc
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from deliralike import backends, build, random, zoo
from deliralike.backends.jax.compiled import compilation_cache
from deliralike.errors import IndexRangeError
from deliralike.network import Network
from deliralike.optim import rules
from tests.compiled import compilations

X = np.arange(21.0, dtype=np.float32).reshape(7, 3) / 8
OF_SUM = np.tile(
    X.sum(0), (2, 1)
)  # the weight's gradient of the sum of a linear layer's outputs
FACTOR = 1.0


@contextmanager
def compiling(wanted):
    """So many programs are compiled meanwhile."""
    with compilations() as compiled:
        yield
    assert len(compiled) == wanted


class Scaled(Network):
    """A linear layer whose outputs are scaled by all sorts of settings."""

    def __init__(self, seed: int = 0) -> None:
        """Make the layer."""
        super().__init__()
        self.linear = self.nn.Linear(3, 2)
        self.factor = 1.0
        self.factors = [1.0]
        self.dropout = self.nn.Dropout(0.5)

    def forward(self, x):
        """Scale by settings, by a global number and by the mode."""
        outputs = self.linear(x) * self.factor * self.factors[0] * FACTOR
        return outputs * (1.0 if self.training else 2.0)


@pytest.fixture
def network():
    return Scaled.on("jax", seed=1)()


def gradient(network, loss, *inputs):
    """The gradient of the linear layer's weight."""
    inputs = inputs or (X,)
    return network.backend.gradients(loss, network, *inputs).parameters["linear.weight"]


def total(network, x):
    """The sum of all outputs."""
    return network.nn.sum(network(x))


def test_an_equal_loss_of_an_equal_network_compiles_nothing(network):
    gradient(network, lambda net, x: net.nn.sum(net(x)))
    other = copy.deepcopy(network)
    other.load_neutral_state(
        {name: 3 * x for name, x in network.neutral_state().items()}
    )
    with compiling(0):
        found = other.backend.gradients(lambda net, x: net.nn.sum(net(x)), other, X)
    assert_allclose(found.parameters["linear.weight"], OF_SUM)
    state = other.neutral_state()
    wanted = (X @ state["linear.weight"].T + state["linear.bias"]).sum()
    assert_allclose(found.loss, wanted, rtol=1e-5)


def test_another_shape_is_compiled_once(network):
    gradient(network, total)
    for wanted in (1, 0):
        with compiling(wanted):
            assert_allclose(gradient(network, total, X[:5])[0], X[:5].sum(0))
    with compiling(0):
        gradient(network, total)


def change_a_global(network, monkeypatch):
    monkeypatch.setitem(globals(), "FACTOR", 3.0)


def change_a_method(network, monkeypatch):
    own = type(network).forward
    monkeypatch.setattr(type(network), "forward", lambda self, x: 3.0 * own(self, x))


@pytest.mark.parametrize("change", [change_a_global, change_a_method])
def test_a_change_of_the_network_is_followed(network, change, monkeypatch):
    assert_allclose(gradient(network, total), OF_SUM)
    change(network, monkeypatch)
    assert_allclose(gradient(network, total), 3 * OF_SUM)


def test_a_closure_is_read_at_each_call(network):
    numbers, table = {"factor": 1.0}, np.linspace(0, 2, 2001, dtype=np.float32)

    def loss(net, x):
        return total(net, x) * numbers["factor"] * net.nn.mean(jnp.asarray(table))

    assert_allclose(gradient(network, loss), OF_SUM, rtol=1e-5)
    numbers["factor"] = 3.0
    assert_allclose(gradient(network, loss), 3 * OF_SUM, rtol=1e-5)
    table[1000] += table.size  # one number in the middle of a large constant
    assert_allclose(gradient(network, loss), 6 * OF_SUM, rtol=1e-5)


def test_a_function_in_the_place_of_a_freed_one_is_another(network):
    def times(factor):
        return lambda net, x: factor * total(net, x)

    loss = times(2.0)
    place = id(loss)
    assert_allclose(gradient(network, loss), 2 * OF_SUM)
    del loss
    gc.collect()
    others = [times(3.0)]
    while id(others[-1]) != place and len(others) < 10_000:
        others.append(times(3.0))
    assert id(others[-1]) == place
    assert_allclose(gradient(network, others[-1]), 3 * OF_SUM)


def test_arguments_that_are_not_used_keep_their_places(network):
    whole = np.arange(21).reshape(
        7, 3
    )  # has no gradient, which would tell one from the other
    for place in (0, 1):
        found = gradient(
            network, lambda net, *both: total(net, both[place] / 1.0), whole, 2 * whole
        )
        assert_allclose(found[0], (place + 1) * whole.sum(0))


def test_another_precision_is_another_program(network):
    assert gradient(network, total).dtype == np.float32
    double = network.backend.in_dtype(network, "float64")
    found = gradient(double, total, X.astype(np.float64) / 3)
    assert found.dtype == np.float64
    assert_allclose(
        found, np.tile((X.astype(np.float64) / 3).sum(0), (2, 1)), rtol=1e-15
    )
    with network.backend.computing_in("bfloat16"):
        assert (
            gradient(network, total)[0, 0]
            == X[:, 0].astype("bfloat16").astype("float32").sum()
        )


def test_random_streams_move_on(network):
    def loss(net, x):
        return net.nn.sum(net.dropout(net(x)))

    native = [gradient(network, loss) for _ in range(3)]
    assert not np.array_equal(native[0], native[1])
    with compiling(0):
        gradient(network, loss)


def test_portable_streams_draw_on_the_host_at_each_call(network):
    def loss(net, x):
        return net.nn.sum(net.dropout(net(x)))

    for step, wanted in ((4, 1), (5, 0), (4, 0)):
        with random.portable(2, step), compiling(wanted):
            found = gradient(network, loss)
        kept_elements = random.keep_mask(2, "dropout", step, 0, (7, 2), 0.5)
        assert_allclose(found, 2 * kept_elements.T @ X, rtol=1e-6)


def test_a_call_of_the_host_is_the_one_of_the_call(network):
    def scaled_on_host(factor):
        return lambda x: np.float32(factor)

    def loss(factor):
        shape = jax.ShapeDtypeStruct((), np.float32)

        def of(net, x):
            return total(net, x) * jax.pure_callback(
                scaled_on_host(factor), shape, jax.lax.stop_gradient(x)
            )

        return of

    for factor in (1, 3):
        assert_allclose(gradient(network, loss(factor)), factor * OF_SUM)


def test_devices_are_kept_apart():
    for device in ("cpu:1", "cpu:2"):
        network = Scaled.on("jax", seed=1, device=device)()
        network.backend.gradients(total, network, X)
        assert network.device_name == device
        with compiling(0):
            assert_allclose(gradient(network, total), OF_SUM)


def test_the_number_of_kept_programs_is_bounded(network, monkeypatch):
    monkeypatch.setattr(compilation_cache, "_CACHE_SIZE", 2)
    monkeypatch.setattr(
        compilation_cache, "_programs", type(compilation_cache._programs)()
    )
    for size in (1, 2, 3):
        gradient(network, total, X[:size])
    assert len(compilation_cache._programs) == 2
    with compiling(1):
        gradient(network, total, X[:1])
    with compiling(0):
        gradient(network, total, X[:3])


def test_all_labels_are_checked_in_each_step_after_the_first_batch_was_refused():
    network = zoo.build("mlp", backend="jax", in_features=4, hidden=(), out_features=3)
    optimizer = network.backend.optimizer(rules.rule("sgd", lr=0.1), network)
    inputs, right, wrong = (
        np.ones((2, 4), np.float32),
        np.array([0, 2]),
        np.array([0, 3]),
    )

    def loss(network, x, first, second):
        outputs = network(x)
        return network.nn.cross_entropy(outputs, first) + network.nn.cross_entropy(
            outputs, second
        )

    for _ in range(2):
        for labels in [(wrong, right), (right, wrong)]:
            with pytest.raises(IndexRangeError, match="3 is out of range"):
                optimizer.update(loss, inputs, *labels)
            for _ in range(2):
                optimizer.update(loss, inputs, right, right)
    assert optimizer.steps == 8


# Within a transformation of JAX: of a loss's gradient, by a linear layer.
TRANSFORMATIONS = {
    "jit": jax.jit,
    "vmap": lambda function: lambda x: jax.vmap(function)(x[None])[0],
    "scan": lambda function: (
        lambda x: jax.lax.scan(lambda _, x: (0, function(x)), 0, x[None])[1][0]
    ),
    "jit of vmap": lambda function: jax.jit(lambda x: jax.vmap(function)(x[None])[0]),
}


@pytest.mark.parametrize("through", ["an argument", "the closure"])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_gradients_may_be_a_part_of_another_program(name, through):
    network = zoo.build(
        "mlp", backend="jax", in_features=5, hidden=(), out_features=3
    ).eval()
    weight, bias = (np.asarray(each) for each in network.neutral_state().values())
    rng = np.random.default_rng(4)
    x, target = (rng.normal(size=shape).astype("float32") for shape in ((7, 5), (7, 3)))

    def weight_gradient(target):
        if through == "an argument":
            found = network.backend.gradients(distance, network, x, target)
        else:
            found = network.backend.gradients(
                lambda net, x: distance(net, x, target), network, x
            )
        return found.parameters["layers.0.weight"]

    found = TRANSFORMATIONS[name](weight_gradient)(target)
    error = x @ weight.T + bias - target
    assert_allclose(found, 2 * error.T @ x / error.size, rtol=1e-5)


def distance(network, x, target):
    return network.nn.mean((network(x) - target) ** 2)


def test_gradients_of_gradients_come_from_a_transformation_around_them():
    """The derivative of a loss's input gradient, the Hessian of a mean of squares."""
    network = zoo.build(
        "mlp", backend="jax", in_features=5, hidden=(), out_features=3
    ).eval()
    weight = np.asarray(network.neutral_state()["layers.0.weight"])

    def slope(x):
        found = network.backend.gradients(
            lambda net, x: net.nn.mean(net(x) ** 2), network, x
        )
        return found.inputs[0]

    hessian = jax.jacobian(slope)(np.ones((1, 5), np.float32))
    assert_allclose(hessian[0, :, 0], 2 * weight.T @ weight / 3, rtol=1e-5)


def test_copies_of_a_network_compile_nothing():
    network = build(backends.get("jax").nn.Linear, 13, 17)
    state = network.neutral_state()
    with compiling(0):
        twin, wide = (
            copy.deepcopy(network),
            network.backend.in_dtype(network, "float64"),
        )
    for name, value in wide.neutral_state().items():
        assert value.dtype == "float64"
        assert_array_equal(value, state[name].astype("float64"))
    twin.load_neutral_state({name: value + 1 for name, value in state.items()})
    assert_equal(network.neutral_state(), state)
