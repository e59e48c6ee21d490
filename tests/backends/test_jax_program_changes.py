"""What may change between two calls of a program on JAX changes the outcome of the second call.

The outcome is compared with that of the network called as it is, operation by operation.
"""

from __future__ import annotations

import gc
import operator
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import backends
from deliralike.errors import CapabilityError
from deliralike.network import Network
from deliralike.optim.rules import rule

X = np.arange(21.0, dtype=np.float32).reshape(7, 3) / 8
JAX = backends.get("jax")


def ones(count=3):
    return jnp.ones(
        count, jnp.float32
    )  # also where an earlier test has enabled float64


class Stranger(nnx.Module):
    """A module of flax's own with parts, settings and containers of many kinds."""

    def __init__(self) -> None:
        """Make parts with different weights."""
        rngs = nnx.Rngs(5)
        self.first = nnx.Linear(3, 3, rngs=rngs)
        self.second = nnx.Linear(3, 3, rngs=rngs)
        self.spare = None
        self.blocks = nnx.List([nnx.Linear(3, 3, rngs=rngs)])
        self.plain = nnx.data([nnx.Linear(3, 3, rngs=rngs)])
        self.by_name = nnx.data({"a": nnx.Linear(3, 3, rngs=rngs)})
        self.pair = nnx.data(
            (nnx.Linear(3, 3, rngs=rngs), [nnx.Linear(3, 3, rngs=rngs)])
        )
        self.gain = nnx.Param(ones())
        self.mean = nnx.BatchStat(0 * ones())
        self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)
        self.array = ones()
        self.factor = 1
        self.steps = (1.0, 2.0)
        self.activation = jnp.tanh
        self.extra = 0.5

    def __call__(self, x):
        """Use every part, so that each change counts."""
        parts = [
            self.first,
            self.second,
            *self.blocks,
            *self.plain,
            *self.by_name.values(),
        ]
        for part in (*parts, self.pair[0], *self.pair[1]):
            x = x + self.activation(part(x))
        if self.spare is not None:
            x = self.spare(x)
        x = self.norm(x) * self.gain[...] + self.mean[...] + self.array
        x = x * self.factor + (100.0 if type(self.factor) is bool else 0.0)
        return (
            x * sum(self.steps)
            + getattr(self, "extra", 0.0)
            + getattr(self, "bonus", 0.0)
        )


class Doubled(nnx.Linear):
    """A linear layer with twice the outputs."""

    def __call__(self, x):
        return 2 * super().__call__(x)


class Settings(Network):
    """A network written once, with containers among its settings."""

    def __init__(self, scale: float = 1.0) -> None:
        """Make one layer."""
        super().__init__()
        self.first = self.nn.Linear(3, 3)
        self.factors = [1.0, [1.0]]
        self.table = {"a": [1.0], "b": 1.0}

    def forward(self, x):
        """Scale by all settings, and once more in training mode."""
        product = np.prod(
            [*self.table.keys().__len__() * [1.0], self.table["b"], *self.table["a"]]
        )
        factor = product * self.factors[0] * self.factors[1][0] * len(self.table)
        factor = factor * len(self.factors) * self.init_kwargs.get("scale", 1.0)
        return self.first(x) * float(factor) * (3.0 if self.training else 1.0)


def layer(seed=9):
    return nnx.Linear(3, 3, rngs=nnx.Rngs(seed))


def set_(name, value):
    return lambda net: setattr(net, name, value() if callable(value) else value)


def swap(net):
    net.first, net.second = net.second, net.first


def rename(net):
    vars(net)["other"] = vars(net).pop(
        "extra"
    )  # the objects are those of before, in their order


def replace_and_free(net):
    """The new part may come to lie where the old one was."""
    place = id(net.first)
    del net.first
    gc.collect()
    new = [layer(seed) for seed in range(20)]
    net.first = next((each for each in new if id(each) == place), new[-1])


def tie(net):
    net.second.kernel = net.first.kernel


def hook(net):
    net.gain.set_metadata(on_get_value=lambda variable, value: value * 3)


def other_class(net):
    object.__setattr__(net.first, "__class__", Doubled)


def raw(net):
    net.gain.set_raw_value(net.gain.get_raw_value() * 2)


def other_dtype(net):
    net.gain.set_value(net.gain.get_value().astype(jnp.float16) * 1.001)


def other_shape(net):
    net.gain.set_value(2 * ones(1))


CHANGES = {
    "another number": set_("factor", 3),
    "an equal number of another type": set_("factor", True),
    "another tuple": set_("steps", (1.0, 2.5)),
    "another function": set_("activation", lambda: jnp.sin),
    "a new attribute": set_("bonus", 0.5),
    "an attribute removed": lambda net: delattr(net, "extra"),
    "an attribute renamed": rename,
    "a part replaced": set_("first", layer),
    "a part replaced and freed": replace_and_free,
    "a part added": lambda net: setattr(net, "spare", nnx.data(layer())),
    "parts swapped": swap,
    "a part of another class": other_class,
    "an array replaced": set_("array", lambda: 2 * ones()),
    "a block appended": lambda net: net.blocks.append(layer()),
    "a block in a list replaced": lambda net: operator.setitem(net.blocks, 0, layer()),
    "a part appended to a plain list": lambda net: net.plain.append(layer()),
    "a part in a plain list replaced": lambda net: operator.setitem(
        net.plain, 0, layer()
    ),
    "a part removed from a plain list": lambda net: net.plain.pop(),
    "a part added to a plain dict": lambda net: net.by_name.update(b=layer()),
    "a part in a plain dict replaced": lambda net: net.by_name.update(a=layer()),
    "a part in a nested list replaced": lambda net: operator.setitem(
        net.pair[1], 0, layer()
    ),
    "a value set": lambda net: net.gain.set_value(2 * ones()),
    "a value set in place": lambda net: operator.setitem(net.gain, 0, 5.0),
    "a raw value set": raw,
    "a buffer set": lambda net: net.mean.set_value(ones()),
    "a variable replaced": set_("gain", lambda: nnx.Param(2 * ones())),
    "a value of another type": other_dtype,
    "a value of another shape": other_shape,
    "weights tied": tie,
    "a hook": hook,
    "the mode of a part": lambda net: setattr(net.norm, "use_running_average", False),
}
STEPPED = (
    "another number",
    "a part replaced",
    "a part appended to a plain list",
    "weights tied",
)
STEPPED += ("a variable replaced", "a raw value set", "a hook", "the mode of a part")
IN_SETTINGS = {
    "an item of a list": lambda net: operator.setitem(net.factors, 0, 3.0),
    "an item of a nested list": lambda net: operator.setitem(net.factors[1], 0, 3.0),
    "an item appended": lambda net: net.factors.append(1.0),
    "a value of a dict": lambda net: net.table.update(b=3.0),
    "a list in a dict": lambda net: net.table["a"].append(2.0),
    "a key of a dict": lambda net: net.table.update(c=1.0),
    "a recorded argument": lambda net: net.init_kwargs.update(scale=2.0),
    "the mode": lambda net: net.train(),
    "the weights": lambda net: net.load_neutral_state(
        {name: 2 * value for name, value in net.neutral_state().items()}
    ),
}


def program(net):
    return np.asarray(JAX.program(operator.call, net)(jnp.asarray(X)))


def as_it_is(net):
    return np.asarray(net(jnp.asarray(X)))


def step_of(net):
    """A training step that changes no parameter, and returns the mean of the outputs' squares."""
    optimizer = JAX.optimizer(rule("sgd", lr=0.0), net)
    return lambda net: float(JAX.numpy(optimizer.update(mean_square, X)))


def mean_square(net, x):
    return net.nn.mean(net(x) ** 2)


def assert_followed(net, changed, change):
    """Programs, and one that was asked for before the change, follow the change."""
    run = JAX.program(operator.call, net)
    before = program(net)
    assert_allclose(before, as_it_is(net), rtol=1e-5, atol=1e-5)
    change(changed)
    wanted = as_it_is(net)
    assert wanted.shape != before.shape or np.abs(wanted - before).max() > 1e-4
    assert_allclose(program(net), wanted, rtol=1e-5, atol=1e-5)
    assert_allclose(run(jnp.asarray(X)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_module_of_flaxs_is_followed(name):
    module = Stranger()
    assert_followed(JAX.wrap(module), module, CHANGES[name])


@pytest.mark.parametrize("name", STEPPED)
def test_steps_follow_a_change_as_programs_do(name):
    """The variables and the program of a step are found as those of any other program."""
    module = Stranger()
    net = JAX.wrap(module)
    step = step_of(net)
    step(net)
    CHANGES[name](module)
    wanted = as_it_is(net)
    assert_allclose(step(net), np.mean(wanted.astype(np.float64) ** 2), rtol=1e-4)
    assert_allclose(program(net), as_it_is(net), rtol=1e-5, atol=1e-5)  # a step later


@pytest.mark.parametrize("name", IN_SETTINGS)
def test_a_change_of_a_network_is_followed(name):
    net = Settings.on("jax", seed=1)(scale=1.0).eval()
    assert_followed(net, net, IN_SETTINGS[name])


def test_an_array_of_the_host_may_be_changed_in_place():
    module = Stranger()
    module.array = nnx.data(np.ones(3, np.float32))
    net = JAX.wrap(module)
    before = program(net)
    module.array[1] = 5.0
    assert_allclose(program(net), as_it_is(net), rtol=1e-5, atol=1e-5)
    assert np.abs(program(net) - before).max() > 1


@pytest.fixture
def no_search(monkeypatch):
    """From now on no network may be looked at as a whole."""

    def forbid():
        monkeypatch.setattr(nnx, "split", None)

    return forbid


def test_an_unchanged_network_is_looked_at_once(no_search):
    net = Settings.on("jax", seed=1)().eval()
    before = program(net)
    no_search()
    assert_array_equal(program(net), before)
    net.load_neutral_state(
        {name: 2 * value for name, value in net.neutral_state().items()}
    )
    assert_allclose(program(net), 2 * before, rtol=1e-6)
    with net.training_mode(True):
        pass
    assert_allclose(program(net), 2 * before, rtol=1e-6)
    with net.training_mode(True), pytest.raises(TypeError):
        program(net)


class Odd:
    """A container that JAX knows, and the search of networks does not."""

    def __init__(self, part):
        self.part = part


jax.tree_util.register_pytree_node(
    Odd, lambda odd: ((odd.part,), None), lambda _, x: Odd(*x)
)


class HoldsOdd(nnx.Module):
    """A module with a part in a container of another kind."""

    def __init__(self):
        """Make the part."""
        self.odd = nnx.data(Odd(layer(1)))

    def __call__(self, x):
        """Call the part."""
        return self.odd.part(x)


class HoldsItself(nnx.Module):
    """A module that is part of its part."""

    def __init__(self):
        """Make the part."""
        self.part = layer(1)
        self.part.whole = nnx.data(self)
        self.factor = 1.0

    def __call__(self, x):
        """Call the part."""
        return self.part.whole.part(x) * self.part.whole.factor


def test_a_part_in_a_container_of_another_kind_is_followed():
    module = HoldsOdd()
    net = JAX.wrap(module)
    before = program(net)
    module.odd.part = layer(2)
    assert_allclose(program(net), as_it_is(net), rtol=1e-5, atol=1e-5)
    assert np.abs(program(net) - before).max() > 0.1


def test_a_network_that_is_part_of_itself_is_followed():
    module = HoldsItself()
    net = JAX.wrap(module)
    before = program(net)
    module.factor = 2.0
    assert_allclose(program(net), 2 * before, rtol=1e-6)


def part_of_itself():
    net = Settings.on("jax")()
    net.first.whole = net
    return net


@pytest.mark.parametrize("make", [Settings.on("jax"), part_of_itself])
def test_a_network_is_freed_when_it_is_let_go(make):
    net = make().eval()
    program(net)
    freed = weakref.ref(net)
    del net
    gc.collect()
    assert freed() is None


def test_a_list_that_is_changed_is_that_of_one_network_alone():
    """Networks of one structure share a program, and its settings are no one's own."""
    first, second = (Settings.on("jax", seed=1)().eval() for _ in range(2))
    before = program(first)
    assert_array_equal(program(second), before)
    first.factors[0] = 3.0
    assert_allclose(program(first), 3 * before, rtol=1e-6)
    assert_array_equal(program(second), before)
    part = JAX.program(operator.call, second)(
        jnp.asarray(X[:2])
    )  # traced anew for this shape
    assert_allclose(part, before[:2], rtol=1e-6)


class Appending(Settings):
    """A network that changes a list of its own at each call."""

    def forward(self, x):
        """Append, and scale by the number of items."""
        self.factors.append(1.0)
        return super().forward(x)


def test_a_list_that_a_call_changes_is_changed_at_each_call():
    net = Appending.on("jax", seed=1)().eval()
    outputs = [program(net) for _ in range(3)]
    assert len(net.factors) == 5
    assert_allclose(outputs[2] / outputs[0], 5 / 3, rtol=1e-5)


def test_a_network_with_containers_among_its_settings_is_compiled(monkeypatch):
    net = Settings.on("jax")()
    wanted = program(net)
    monkeypatch.setattr(Settings, "forward", None)
    assert_array_equal(program(net), wanted)


class Summed(nnx.Module):
    """A variable that holds a dict of arrays."""

    def __init__(self):
        self.table = nnx.Variable({"a": ones()})

    def __call__(self, x):
        return x * sum(self.table.get_value().values())


def test_a_variable_of_several_arrays_may_get_more_of_them():
    net = JAX.wrap(Summed())
    program(net)
    net.table.set_value({"a": ones(), "b": ones()})
    assert_array_equal(program(net), as_it_is(net))


# What a forward pass keeps for later calls
# -----------------------------------------------------------------------------


class Caching(Network):
    """Fills a dict, as attention does with its biases in evaluation, or something else."""

    def __init__(self, keep):
        super().__init__()
        self.bias = self.nn.Parameter((3,), np.arange(3.0))
        self.cache = {"first": 0.0}
        self.outputs = []
        self.keep = keep

    def forward(self, x):
        self.keep(self)
        return x * self.cache.get("turned", 1.0) + self.bias


def turned(network):
    if "turned" not in network.cache:
        network.cache["turned"] = network.bias[np.array([2, 1, 0])]


def replaced(network):
    network.cache["first"] = network.bias * 2


def collected(network):
    network.outputs.append(network.bias * 2)


def loss_of(network, x):
    return network.nn.sum(network(x))


def test_a_dict_that_forward_fills_once_is_a_cache_of_the_program():
    network = Caching.on("jax")(turned)
    (x,) = JAX.prepare((X,), network)
    for _ in range(2):
        found = JAX.gradients(loss_of, network, x)
        assert_allclose(found.parameters["bias"], 7 + X.sum(0)[::-1])
        assert network.cache == {"first": 0.0}


@pytest.mark.parametrize(
    ("keep", "name"), [(replaced, "cache"), (collected, "outputs")]
)
def test_what_a_program_would_forget_is_refused(keep, name):
    network = Caching.on("jax")(keep)
    (x,) = JAX.prepare((X,), network)
    with pytest.raises(CapabilityError, match=f"sets Caching.{name} to an array"):
        JAX.gradients(loss_of, network, x)
    assert (network.cache, network.outputs) == ({"first": 0.0}, [])
