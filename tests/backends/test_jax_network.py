"""What is particular to JAX: nnx's own tools on our networks, flax's own layers in ours, compiled
steps."""

import copy
import gc
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

from deliralike import Network, backends, build, random
from deliralike.backends.jax.compiled.program import (
    ProgramCache,
)
from deliralike.errors import CapabilityError, DtypeError
from deliralike.optim import rules
from tests.losses import cross_entropy

JAX = backends.get("jax")


class Net(Network):
    def __init__(self, p=0.5):
        super().__init__()
        self.widths = [4, 5]
        self.head = None
        self.conv = self.nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.bn = self.nn.BatchNorm2d(4)
        self.rest = self.nn.Sequential(
            self.nn.ReLU(),
            self.nn.AdaptiveAvgPool2d(1),
            self.nn.Flatten(),
            self.nn.Dropout(p),
        )
        self.head = self.nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.rest(self.bn(self.conv(x))))


class Partly(Network):
    """One of its parameters takes no part, another is cut off."""

    def __init__(self):
        super().__init__()
        self.used, self.unused, self.cut = (self.nn.Linear(3, 2) for _ in range(3))

    def forward(self, x):
        return self.used(x) + self.nn.stop_gradient(self.cut(x))


def images(n=4):
    return np.random.default_rng(0).normal(size=(n, 3, 9, 7)).astype(np.float32)


def labels(n=4):
    return np.arange(n) % 5


def squares(net, x):
    return net.nn.sum(net(x) ** 2)


@pytest.fixture
def net():
    return Net.on("jax")().eval()


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "merge": lambda net: nnx.merge(*nnx.split(net)),
    "clone": nnx.clone,
}


def test_nnx_jit_runs_training_and_moves_the_running_statistics(net):
    eager = copy.deepcopy(net).train()
    step = nnx.jit(lambda net, x: net(x))
    net.train()
    with random.portable(0):
        found = step(net, images())
    with random.portable(0):
        assert np.allclose(found, eager(images()), atol=1e-6)
    assert np.allclose(net.bn.running_var[...], eager.bn.running_var[...])
    assert net.neutral_state()["bn.num_batches_tracked"] == 1


def test_nnx_grad_equals_our_gradients(net):
    _, gradient = nnx.value_and_grad(squares)(net, jnp.asarray(images()))
    ours = JAX.gradients(squares, net, images())
    assert np.allclose(
        gradient["head"]["weight"][...], ours.parameters["head.weight"], rtol=1e-5
    )


def test_vmap_over_samples_equals_the_batch(net):
    one_by_one = jax.vmap(lambda x: net(x[None])[0])(jnp.asarray(images()))
    assert np.allclose(one_by_one, net(images()), atol=1e-6)


# flax's own layers
# -----------------------------------------------------------------------------


def native(layer, *args, **kwargs):
    return JAX.wrap(layer(*args, rngs=nnx.Rngs(0), **kwargs))


def channels_last(x):
    return jnp.asarray(np.moveaxis(x, 1, -1))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("transpose_kernel", [None, False, True])
def test_flax_convolutions_have_pytorchs_layouts(n, transpose_kernel):
    shape, kernel = (2, 3, *(6, 5, 7)[:n]), (3, 2, 4)[:n]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if transpose_kernel is None:
        net, name = native(nnx.Conv, 3, 4, kernel, padding="VALID"), f"conv{n}d"
    else:
        net = native(
            nnx.ConvTranspose,
            3,
            4,
            kernel,
            padding="VALID",
            transpose_kernel=transpose_kernel,
        )
        name = f"conv_transpose{n}d"
    state = {key: torch.from_numpy(value) for key, value in net.neutral_state().items()}
    expected = getattr(torch.nn.functional, name)(
        torch.from_numpy(x), state["weight"], state["bias"]
    )
    assert np.allclose(
        np.moveaxis(np.asarray(net(channels_last(x))), -1, 1), expected, atol=1e-5
    )


LAYERS = {
    "linear": (nnx.Linear, (3, 2), {}),
    "conv": (nnx.Conv, (3, 4, (3, 2)), {}),
    "transposed": (nnx.ConvTranspose, (3, 4, (3, 2)), {}),
    "embed": (nnx.Embed, (5, 3), {}),
    "batch norm": (nnx.BatchNorm, (4,), {}),
    "layer norm": (nnx.LayerNorm, (4,), {}),
    "group norm": (nnx.GroupNorm, (4,), {"num_groups": 2}),
    "attention": (nnx.MultiHeadAttention, (2, 4), {}),
}


@pytest.mark.parametrize("which", LAYERS)
def test_weights_of_flax_layers_make_the_way_there_and_back_bit_by_bit(which):
    layer, args, kwargs = LAYERS[which]
    net = native(layer, *args, **kwargs)
    state = {
        k: np.random.default_rng(1).normal(size=v.shape).astype(v.dtype)
        for k, v in net.neutral_state().items()
    }
    net.load_neutral_state(state)
    assert all(
        np.array_equal(value, state[name])
        for name, value in net.neutral_state().items()
    )


@pytest.mark.parametrize("how", ["as it is", "deepcopy", "clone"])
def test_flax_batch_norm_has_pytorchs_names_in_its_order(how):
    net = {"as it is": lambda net: net, **COPIES}[how](native(nnx.BatchNorm, 4))
    assert list(net.neutral_state()) == [
        "weight",
        "bias",
        "running_mean",
        "running_var",
    ]


def test_wrapping_shares_the_weights():
    layer = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    net = JAX.wrap(layer)
    net.load_neutral_state({"weight": np.ones((2, 3)), "bias": np.zeros(2)})
    assert np.array_equal(layer.kernel[...], np.ones((3, 2)))


def test_training_mode_reaches_flax_layers_and_is_restored():
    layer = nnx.Sequential(
        nnx.BatchNorm(3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1))
    )
    net = JAX.wrap(layer)
    with net.training_mode(False):
        assert layer.layers[0].use_running_average
        assert layer.layers[1].deterministic
    assert not layer.layers[0].use_running_average
    assert not layer.layers[1].deterministic


# Functions
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_out_of_range_in_a_compiled_program_gives_nan(index):
    table = jnp.ones((3, 2))
    assert np.isnan(
        jax.jit(lambda i: JAX.nn.embedding(i, table))(jnp.array([index]))
    ).all()


@pytest.mark.parametrize("kernel", [2, 5])
def test_nan_wins_in_a_max_pool_and_the_first_of_equal_maxima_takes_the_gradient(
    kernel,
):
    pool = lambda x: JAX.nn.max_pool2d(x, kernel)  # noqa: E731
    gradient = np.asarray(
        jax.grad(lambda x: pool(x).sum())(jnp.zeros((1, 1, kernel, kernel)))
    )
    assert (gradient.ravel()[0], gradient.sum()) == (1, 1)
    assert np.isnan(
        pool(jnp.zeros((1, 1, kernel, kernel)).at[0, 0, 1, 0].set(jnp.nan))
    ).all()


def test_casting_to_float64_while_it_is_off_says_what_to_do():
    with jax.enable_x64(False), pytest.raises(DtypeError, match="jax_enable_x64"):
        JAX.nn.cast(jnp.ones(2), "float64")


IN_A_FRESH_PROCESS = """
import deliralike.backends.jax, jax
from jax._src import xla_bridge
from deliralike import backends
print("import starts no device:", not xla_bridge._backends)
print("import leaves float64 off:", not jax.config.jax_enable_x64)
backends.get("jax").check_dtype("float64")
print("asking for float64 turns it on:", jax.config.jax_enable_x64)
"""


def test_what_a_fresh_process_does():
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "import starts no device: True",
        "import leaves float64 off: True",
        "asking for float64 turns it on: True",
    ]


# Chance
# -----------------------------------------------------------------------------


def test_seeding_does_not_depend_on_when_forgotten_networks_are_collected():
    gc.collect()
    gc.disable()
    try:
        forgotten = [Net.on("jax")()]
        forgotten.append(forgotten)  # in memory until it is collected
        del forgotten
        net = Net.on("jax")()
        JAX.seed(1)
        first = net(images())
    finally:
        gc.enable()
    gc.collect()
    JAX.seed(1)
    assert np.array_equal(net(images()), first)


def test_seeding_gives_a_copy_masks_of_its_own():
    net = Net.on("jax")()
    clone = nnx.clone(net)
    JAX.seed(1)
    first = clone(images())
    assert not np.array_equal(net(images()), first)
    JAX.seed(1)
    assert np.array_equal(clone(images()), first)


def test_portable_masks_in_a_compiled_program_follow_a_traced_step():
    net = build(JAX.nn.Dropout, 0.5)

    @jax.jit
    def masks(step):
        with random.portable(3, step):
            return net(jnp.ones((2, 5)))

    for step in (0, 7):
        assert np.array_equal(
            np.asarray(masks(step)) > 0, random.keep_mask(3, "", step, 0, (2, 5), 0.5)
        )


# Optimizers
# -----------------------------------------------------------------------------


def test_a_new_learning_rate_compiles_nothing():
    net = Net.on("jax")()
    traces = []

    def counted(net, x, y):
        traces.append(1)
        return cross_entropy(net, x, y)

    optimizer = JAX.optimizer(rules.rule("adam", lr=0.1), net)
    for lr in (0.1, 0.01, 0.001):
        optimizer.lr = lr
        optimizer.update(counted, images(), labels())
    assert len(traces) == 1


def test_parameters_that_take_no_part_are_left_alone_by_optax():
    net = Partly.on("jax")()
    before = net.neutral_state()
    JAX.wrap_optimizer(optax.adamw(0.1), net).update(
        squares, np.ones((2, 3), np.float32)
    )
    after = net.neutral_state()
    moved = {name for name in after if not np.array_equal(after[name], before[name])}
    assert moved == {"used.weight", "used.bias"}


def test_a_frozen_parameter_rests_and_goes_on_when_thawed_under_optax():
    net = Partly.on("jax")()
    optimizer = JAX.wrap_optimizer(optax.adam(0.1), net)
    values = []
    for trainable in (True, False, True):
        net.set_trainable("used.weight", trainable)
        optimizer.update(squares, np.ones((2, 3), np.float32))
        values.append(net.neutral_state()["used.weight"])
    assert np.array_equal(values[0], values[1])
    assert not np.array_equal(values[1], values[2])


def test_a_step_reads_the_values_that_a_frozen_parameter_has_now():
    net = Partly.on("jax")()
    net.set_trainable("used.weight", False)
    optimizer = JAX.optimizer(rules.rule("sgd", lr=0.0), net)
    x = np.ones((2, 3), np.float32)
    for _ in range(3):
        state = net.neutral_state()
        net.load_neutral_state({**state, "used.weight": 2 * state["used.weight"]})
        state = net.neutral_state()
        weight, bias = (
            state[f"used.{name}"] + state[f"cut.{name}"] for name in ("weight", "bias")
        )
        wanted = np.sum((x @ weight.T + bias) ** 2)
        assert float(JAX.numpy(optimizer.update(squares, x))) == pytest.approx(
            wanted, rel=1e-5
        )


def test_an_optax_optimizer_that_hides_its_learning_rate_says_so():
    with pytest.raises(CapabilityError, match="inject_hyperparams"):
        JAX.wrap_optimizer(optax.sgd(0.1), Partly.on("jax")()).lr = 0.2


def test_update_equals_gradients_hooks_and_apply_one_by_one():
    def halve(optimizer, gradients):
        return {name: None if g is None else g / 2 for name, g in gradients.items()}

    (a, b), states = (Partly.on("jax")(), Partly.on("jax")()), []
    x = np.ones((2, 3), np.float32)
    whole, parts = (
        JAX.optimizer(rules.rule("adam", lr=0.1, weight_decay=0.1), net)
        for net in (a, b)
    )
    whole.pre_update_hooks.append(halve)
    whole.update(squares, x)
    _, gradients = parts.gradients(squares, jnp.asarray(x))
    parts.apply(halve(parts, gradients))
    states = a.neutral_state(), b.neutral_state()
    assert list(gradients) == [
        "used.weight",
        "used.bias",
        "unused.weight",
        "unused.bias",
        "cut.weight",
        "cut.bias",
    ]
    assert all(
        np.allclose(states[0][name], states[1][name], rtol=1e-6) for name in states[0]
    )


def test_a_hook_sees_the_parameters_of_its_own_step():
    seen = []

    def decay(optimizer, gradients):
        slots = optimizer.network.neutral_slots()
        return {
            name: None if g is None else g * 0 + slots[name].native[...]
            for name, g in gradients.items()
        }

    net = Partly.on("jax")()
    optimizer = JAX.optimizer(rules.rule("sgd", lr=0.5), net)
    optimizer.pre_update_hooks.append(decay)
    for _ in range(3):
        seen.append(net.neutral_state()["used.weight"])
        optimizer.update(squares, np.ones((2, 3), np.float32))
    assert np.allclose(seen[2], seen[0] / 4)


def test_an_array_taken_from_a_network_stays_valid_after_a_step():
    net = Partly.on("jax")()
    taken = net.used.weight[...]
    JAX.optimizer(rules.rule("sgd", lr=0.1), net).update(
        squares, np.ones((2, 3), np.float32)
    )
    assert np.isfinite(taken).all()


def test_a_new_lambda_at_each_step_is_warned_about():
    net = Partly.on("jax")()
    optimizer = JAX.optimizer(rules.rule("sgd", lr=0.1), net)
    with pytest.warns(
        UserWarning, match=r"more than 16 programs .*a lambda made in the loop"
    ):
        for _ in range(17):
            optimizer.update(
                lambda net, x: squares(net, x), np.ones((2, 3), np.float32)
            )


@pytest.mark.parametrize("grows", [False, True])
def test_a_setting_that_is_another_object_at_each_step_is_what_the_warning_names(grows):
    net = Partly.on("jax")()
    programs = ProgramCache(net)
    with pytest.warns(
        UserWarning, match=r"more than 16 programs .* Steps set .*Partly.note"
    ):
        for step in range(17):
            net.note = {"step": object()}
            if grows and step == 16:
                net.late = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
            programs.get_or_compile(("update", id(programs.variables())), object)


@pytest.mark.parametrize(
    ("before", "after", "is_same"),
    [
        ((1, ("a", 2.0)), (1, ("a", float("2"))), True),
        (frozenset({"a", (1, None)}), frozenset({(1, None), "a"}), True),
        ((1, ("a", 2.0)), (1, ("a", 2.5)), False),
        (1, 1.0, False),
        (1, True, False),
        ((1,), (1.0,), False),
    ],
)
def test_equal_settings_of_one_type_are_one_network_to_compile(before, after, is_same):
    net = Partly.on("jax")()
    programs = ProgramCache(net)
    net.setting = before
    variables = programs.variables()
    net.setting = after
    assert (programs.variables() is variables) == is_same


def test_gradients_are_none_at_inputs_that_are_no_floating_arrays():
    def scaled(net, x, factor, number):
        return squares(net, x) * factor + number.sum()

    found = JAX.gradients(
        scaled, Partly.on("jax")(), np.ones((2, 3), np.float32), 0.5, np.arange(2)
    )
    assert found.inputs[0].shape == (2, 3)
    assert found.inputs[1:] == (None, None)
