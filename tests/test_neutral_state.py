"""The neutral state: the same names, order, layouts and bits on every backend, for layers and for
native networks."""

import hashlib
from functools import cache

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance.suite.nets import Small
from deliralike.errors import StateError
from deliralike.network import Network, build
from tests.conftest import BACKENDS
from tests.nn import vocabulary

# The rows of the table of PyTorch's layers whose own layer has weights.
ROWS = {}
for number, row in enumerate(vocabulary.LAYERS):
    if row.oracle is None and row.case().oracle().state_dict():
        ROWS[f"{number} {row.name}"] = row


def linear(backend, dtype="float32"):
    return build(backend.nn.Linear, 5, 3, dtype=dtype)


def awkward(state, seed=0):
    """Random values for every name, among them those that arithmetic would change: -0, NaN,
    infinite, subnormal."""
    rng = np.random.default_rng(seed)
    return {name: _awkward(rng, array) for name, array in state.items()}


def _awkward(rng, array):
    if array.dtype.kind != "f":
        return np.full(array.shape, rng.integers(1, 2**31), array.dtype)
    values = rng.standard_normal(array.shape).astype(array.dtype)
    special = np.array(
        [-0.0, np.nan, np.inf, np.finfo(array.dtype).smallest_subnormal], array.dtype
    )
    values.flat[: min(values.size - 1, 4)] = special[: min(values.size - 1, 4)]
    return values


def difference(got, wanted):
    """What is not as wanted: the names in their order, types, shapes and bits; nothing where all is
    the same."""
    if list(got) != list(wanted):
        return f"names {list(got)}, wanted {list(wanted)}"
    for name, array in wanted.items():
        if (got[name].dtype, got[name].shape) != (array.dtype, array.shape):
            found = f"{got[name].dtype} {got[name].shape}"
            return f"{name} is {found}, wanted {array.dtype} {array.shape}"
        if got[name].tobytes() != array.tobytes():
            return f"{name} has other bits"
    return ""


def assert_same(got, wanted):
    assert difference(got, wanted) == ""


def digest(network):
    state = network.neutral_state()
    return hashlib.sha256(
        b"".join(name.encode() + array.tobytes() for name, array in state.items())
    ).hexdigest()


# Layers
# -----------------------------------------------------------------------------


@cache
def layers(backend, dtype):
    """Every layer, by name; tests may load other weights into them."""
    nn = backends.get(backend).nn
    return {
        label: build(getattr(nn, row.name), *row.args, dtype=dtype, **row.kwargs)
        for label, row in ROWS.items()
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weights_go_through_every_backend_without_changing_a_bit(backend, dtype):
    """Plain arrays of NumPy are the same on all backends: what each one brings back as it was goes
    from any to any."""
    wrong = {}
    for name, network in layers(backend.name, dtype).items():
        for seed in (0, 1):  # the second time there is something to replace
            values = awkward(network.neutral_state(), seed)
            network.load_neutral_state(values)
            found = network.neutral_state()
            if any(
                type(array) is not np.ndarray for array in found.values()
            ) or difference(found, values):
                wrong[name] = difference(found, values) or "not NumPy's arrays"
    assert wrong == {}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_names_order_shapes_and_types_are_those_of_torchs_own_layer(backend, dtype):
    torch = pytest.importorskip("torch")
    wrong = {}
    for label, row in ROWS.items():
        own = row.case().oracle().to(getattr(torch, dtype)).state_dict()
        state = layers(backend.name, dtype)[label].neutral_state()
        wanted = [
            (name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
            for name, tensor in own.items()
        ]
        found = [(name, array.shape, str(array.dtype)) for name, array in state.items()]
        if found != wanted:
            wrong[label] = (found, wanted)
    assert wrong == {}


@pytest.fixture
def nested(backend):
    return Small.on(backend)()


def test_the_state_dict_of_a_torch_module_is_taken_over_as_it_is(backend):
    torch = pytest.importorskip("torch")
    own = torch.nn.BatchNorm1d(3).state_dict()
    own["running_mean"] += torch.arange(3.0)
    network = build(backend.nn.BatchNorm1d, 3)
    network.load_neutral_state(own)
    assert_same(
        network.neutral_state(), {name: tensor.numpy() for name, tensor in own.items()}
    )


# Ownership
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "turned", ["fortran", "reversed", "swapped bytes", "read only", "list"]
)
def test_arrays_of_any_kind_are_loaded_by_value(backend, turned):
    network = linear(backend)
    wanted = awkward(network.neutral_state())
    loaded = dict(wanted)
    weight = wanted["weight"]
    if turned == "read only":
        loaded["weight"] = weight.copy()
        loaded["weight"].flags.writeable = False
    else:
        loaded["weight"] = {
            "fortran": np.asfortranarray(weight),
            "reversed": weight[::-1].copy()[::-1],
            "swapped bytes": weight.astype(">f4"),
            "list": weight.tolist(),
        }[turned]
    network.load_neutral_state(loaded)
    assert_same(network.neutral_state(), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("came", ["float16", "float32", "float64", "int32", "bfloat16"])
def test_values_are_cast_to_the_parameters_own_type(backend, dtype, came):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    came = ml_dtypes.bfloat16 if came == "bfloat16" else came
    network = linear(backend, dtype)
    values = np.arange(15).reshape(3, 5)
    network.load_neutral_state(
        {"weight": values.astype(came), "bias": np.zeros(3, came)}
    )
    assert_same(
        {"weight": network.neutral_state()["weight"]}, {"weight": values.astype(dtype)}
    )


# Refusing
# -----------------------------------------------------------------------------


def test_everything_that_does_not_fit_is_named_together_and_nothing_changes(nested):
    before, state = digest(nested), awkward(nested.neutral_state())
    del state["norm.running_var"], state["blocks.1.conv.bias"]
    state |= {
        "head.weight": np.ones((5, 3)),
        "gain": np.ones(2),
        "extra.weight": np.ones(2),
    }
    with pytest.raises(StateError) as caught:
        nested.load_neutral_state(state)
    for part in (
        "the weights do not fit Small, which was left unchanged",
        "missing: norm.running_var, blocks.1.conv.bias",
        "unexpected: extra.weight",
        "wrong shape: gain has shape (2,), wanted (3,), head.weight has shape (5, 3), wanted "
        "(4, 3)",
    ):
        assert part in str(caught.value)
    assert digest(nested) == before


@pytest.mark.parametrize("strict", [True, False])
def test_a_wrong_shape_is_always_refused(nested, strict):
    before = digest(nested)
    with pytest.raises(
        StateError, match=r"wrong shape: head\.bias has shape \(3,\), wanted \(4,\)"
    ):
        nested.load_neutral_state(
            awkward(nested.neutral_state()) | {"head.bias": np.ones(3)}, strict=strict
        )
    assert digest(nested) == before


@pytest.mark.parametrize(
    "value",
    [np.array([None] * 4), np.array([*"abcd"]), object()],
    ids=["objects", "texts", "thing"],
)
@pytest.mark.parametrize("strict", [True, False])
def test_what_is_no_array_of_numbers_is_refused_before_anything_changes(
    nested, value, strict
):
    before = digest(nested)
    with pytest.raises(StateError, match=r"head\.bias"):
        nested.load_neutral_state(
            awkward(nested.neutral_state()) | {"head.bias": value}, strict=strict
        )
    assert digest(nested) == before


@pytest.mark.parametrize(
    "state", [{}, {"of": np.ones(1), "another": np.ones(2)}], ids=["empty", "foreign"]
)
@pytest.mark.parametrize("strict", [True, False])
def test_loading_nothing_is_an_error(nested, state, strict):
    with pytest.raises(
        StateError, match=r"left unchanged: 0 of \d+ names loaded; missing: "
    ):
        nested.load_neutral_state(state, strict=strict)


def test_a_network_without_weights_takes_none(backend):
    relu = build(backend.nn.ReLU)
    assert relu.load_neutral_state(relu.neutral_state()).loaded == ()


def test_a_network_without_weights_refuses_others(backend):
    with pytest.raises(StateError, match="unexpected: w"):
        build(backend.nn.ReLU).load_neutral_state({"w": np.ones(1)}, strict=False)


def test_without_strict_what_fits_is_taken_over_and_the_rest_reported(nested):
    state = nested.neutral_state()
    report = nested.load_neutral_state(
        {"head.bias": np.full(4, 9.0), "extra": np.ones(1)}, strict=False
    )
    assert (report.loaded, report.unexpected) == (("head.bias",), ("extra",))
    assert report.missing == tuple(name for name in state if name != "head.bias")
    assert not report.complete
    assert_same(
        nested.neutral_state(), state | {"head.bias": np.full(4, 9.0, np.float32)}
    )


def test_missing_counters_are_tolerated_and_keep_their_value(backend):
    network = build(backend.nn.BatchNorm1d, 3)
    network.load_neutral_state(
        network.neutral_state() | {"num_batches_tracked": np.array(5)}
    )
    state = {
        name: array + 1
        for name, array in network.neutral_state().items()
        if name != "num_batches_tracked"
    }
    report = network.load_neutral_state(state)
    assert report.complete
    assert report.missing == ("num_batches_tracked",)
    assert_same(network.neutral_state(), {**state, "num_batches_tracked": np.array(5)})


def test_a_counter_without_its_norm_is_unexpected(backend):
    network = linear(backend)
    with pytest.raises(StateError, match="unexpected: num_batches_tracked"):
        network.load_neutral_state(
            network.neutral_state() | {"num_batches_tracked": np.array(5)}
        )


# Tied parameters
# -----------------------------------------------------------------------------


class Tied(Network):
    def __init__(self):
        super().__init__()
        self.embed = self.nn.Embedding(5, 3)
        self.head = self.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


@pytest.mark.parametrize("name", ["embed.weight", "head.weight"])
def test_one_name_of_a_tied_parameter_is_enough(backend, name):
    network = Tied.on(backend)()
    report = network.load_neutral_state({name: np.full((5, 3), 3.0)})
    assert report.complete
    assert all((array == 3.0).all() for array in network.neutral_state().values())


def test_a_tied_parameter_that_comes_with_two_values_is_refused(backend):
    network = Tied.on(backend)()
    before = digest(network)
    with pytest.raises(
        StateError, match=r"'embed\.weight' and 'head\.weight' are one tied parameter"
    ):
        network.load_neutral_state(
            {"embed.weight": np.ones((5, 3)), "head.weight": np.zeros((5, 3))}
        )
    assert digest(network) == before


# Native networks
# -----------------------------------------------------------------------------

SHAPES = {
    "conv.weight": (4, 3, 3, 2),
    "conv.bias": (4,),
    "bn.weight": (4,),
    "bn.bias": (4,),
    "bn.running_mean": (4,),
    "bn.running_var": (4,),
    "bn.num_batches_tracked": (),
    "up.weight": (4, 3, 3, 5),
    "up.bias": (3,),
    "embed.weight": (7, 3),
    "norm.weight": (6,),
    "norm.bias": (6,),
    "fc.weight": (2, 6),
    "fc.bias": (2,),
}


def native_torch():
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, (3, 2), stride=2, padding=1)
            self.bn = nn.BatchNorm2d(4)
            self.up = nn.ConvTranspose2d(4, 3, (3, 5), stride=2, padding=1)
            self.embed, self.norm, self.fc = (
                nn.Embedding(7, 3),
                nn.LayerNorm(6),
                nn.Linear(6, 2),
            )

        def forward(self, x, index):
            x = torch.relu(self.up(torch.relu(self.bn(self.conv(x)))))
            return self.fc(
                self.norm(
                    torch.cat([(x * x).mean((2, 3)), self.embed(index).sum(1)], 1)
                )
            )

    return Net().double()


def native_chainer():
    backends.get("chainer")
    import chainer
    import chainer.functions as F
    import chainer.links as L

    class Net(chainer.Chain):
        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(3, 4, (3, 2), stride=2, pad=1)
                self.bn = L.BatchNormalization(4, eps=1e-5)
                self.up = L.Deconvolution2D(4, 3, (3, 5), stride=2, pad=1)
                self.embed, self.norm, self.fc = (
                    L.EmbedID(7, 3),
                    L.LayerNormalization(6, eps=1e-5),
                    L.Linear(6, 2),
                )

        def forward(self, x, index):
            x = F.relu(self.up(F.relu(self.bn(self.conv(x)))))
            return self.fc(
                self.norm(
                    F.concat([F.mean(x * x, (2, 3)), F.sum(self.embed(index), 1)], 1)
                )
            )

    with chainer.using_config("dtype", np.dtype("float64")):
        return Net()


def native_jax(transpose_kernel=False):
    backends.get("jax").array(np.zeros(1), "float64")  # turns on 64-bit types
    import jax
    import jax.numpy as jnp
    from flax import nnx

    wide = {"rngs": nnx.Rngs(0), "param_dtype": jnp.float64, "dtype": jnp.float64}

    class Net(nnx.Module):
        def __init__(self):
            self.conv = nnx.Conv(
                3, 4, (3, 2), strides=2, padding=((1, 1), (1, 1)), **wide
            )
            self.bn = nnx.BatchNorm(4, epsilon=1e-5, use_running_average=True, **wide)
            self.up = nnx.ConvTranspose(
                4,
                3,
                (3, 5),
                strides=(2, 2),
                padding=((1, 1), (3, 3)),
                transpose_kernel=transpose_kernel,
                **wide,
            )
            self.embed = nnx.Embed(7, 3, **wide)
            self.norm, self.fc = (
                nnx.LayerNorm(6, epsilon=1e-5, **wide),
                nnx.Linear(6, 2, **wide),
            )

        def __call__(self, x, index):
            x = jnp.transpose(x, (0, 2, 3, 1))
            x = jax.nn.relu(self.up(jax.nn.relu(self.bn(self.conv(x)))))
            return self.fc(
                self.norm(
                    jnp.concatenate([(x * x).mean((1, 2)), self.embed(index).sum(1)], 1)
                )
            )

    return Net()


NATIVE = {
    "torch": native_torch,
    "chainer": native_chainer,
    "jax": native_jax,
    "jax, kernel transposed": lambda: native_jax(transpose_kernel=True),
}
NATIVE = {name: make for name, make in NATIVE.items() if name.split(",")[0] in BACKENDS}
needs_all = pytest.mark.skipif(
    len(BACKENDS) < 3, reason="moves weights over all three backends"
)


def wrapped(name):
    return backends.get(name.split(",")[0]).wrap(NATIVE[name]())


def sensible(seed=4):
    """Weights with a positive variance."""
    rng = np.random.default_rng(seed)
    state = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    state |= {
        "bn.running_var": rng.uniform(0.5, 2.0, 4),
        "bn.num_batches_tracked": np.array(11),
    }
    return state | single_statistics(state)


def single_statistics(state):
    """Running statistics that float32 can hold: flax keeps no others, whatever the type of the
    layer."""
    return {
        name: array.astype(np.float32).astype(array.dtype)
        for name, array in state.items()
        if "running" in name
    }


def outputs(network):
    rng = np.random.default_rng(8)
    image, index = (
        rng.standard_normal((2, 3, 7, 9)),
        rng.integers(0, 7, (2, 3), dtype=np.int32),
    )
    with network.training_mode(False):
        return network.backend.to_numpy(
            network(*network.backend.prepare((image, index), network))
        )


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_network_has_neutral_names_order_and_layouts(name):
    shapes = {
        part: array.shape for part, array in wrapped(name).neutral_state().items()
    }
    wanted = {
        part: shape
        for part, shape in SHAPES.items()
        if part in shapes or part != "bn.num_batches_tracked"
    }
    assert list(shapes.items()) == list(wanted.items())


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "not counted"])
@pytest.mark.parametrize("name", NATIVE)
def test_a_native_network_brings_back_what_it_took_without_changing_a_bit(
    name, counted
):
    """What any other native network may give: with the counter of the norm, or without, as flax's
    layer has none."""
    network = wrapped(name)
    before = network.neutral_state()
    given = awkward(
        {
            part: np.empty(shape)
            for part, shape in SHAPES.items()
            if part != "bn.num_batches_tracked"
        }
    )
    given |= single_statistics(given)
    counter = {"bn.num_batches_tracked": np.array(2**31 + 5)}
    assert network.load_neutral_state(given | (counter if counted else {})).complete
    found = network.neutral_state()
    if "bn.num_batches_tracked" in before:  # one that does not come stays as it was
        wanted = (
            counter["bn.num_batches_tracked"]
            if counted
            else before["bn.num_batches_tracked"]
        )
        assert found.pop("bn.num_batches_tracked") == wanted
    assert_same(
        {part: found[part] for part in found},
        {part: given[part].astype(before[part].dtype) for part in found},
    )
    assert set(found) == set(given)


@needs_all
@pytest.mark.parametrize("transposed", ["jax", "jax, kernel transposed"])
def test_outputs_agree_after_weights_moved_over_all_native_networks(transposed):
    networks = [wrapped(name) for name in ("torch", "chainer", transposed, "torch")]
    networks[0].load_neutral_state(sensible())
    for source, target in zip(networks, networks[1:], strict=False):
        target.load_neutral_state(source.neutral_state())
    first, *others = [outputs(network) for network in networks]
    assert first.dtype == np.float64
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", NATIVE)
def test_a_native_network_refuses_and_stays_as_it_was(name):
    network = wrapped(name)
    before = digest(network)
    with pytest.raises(
        StateError, match=r"up\.weight has shape \(3, 4, 3, 5\), wanted \(4, 3, 3, 5\)"
    ):
        network.load_neutral_state(sensible() | {"up.weight": np.ones((3, 4, 3, 5))})
    assert digest(network) == before


@pytest.mark.skipif("chainer" not in BACKENDS, reason="is about links of Chainer's")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_chainers_links_of_n_dimensions_have_pytorchs_layout(n):
    backends.get("chainer")
    import chainer
    import chainer.links as L

    kernel = (2, 3, 5)[:n]
    chain = chainer.Chain(
        conv=L.ConvolutionND(n, 3, 4, kernel), up=L.DeconvolutionND(n, 3, 4, kernel)
    )
    state = backends.get("chainer").wrap(chain).neutral_state()
    assert state["conv.weight"].shape == (4, 3, *kernel)
    assert state["up.weight"].shape == (3, 4, *kernel)


@pytest.mark.skipif("jax" not in BACKENDS, reason="is about layers of flax's")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_flaxs_layers_of_n_dimensions_have_pytorchs_layout(n):
    backends.get("jax")
    from flax import nnx

    kernel, rngs = (2, 3, 5)[:n], nnx.Rngs(0)

    class Net(nnx.Module):
        def __init__(self):
            self.conv = nnx.Conv(4, 6, kernel, feature_group_count=2, rngs=rngs)
            self.up = nnx.ConvTranspose(3, 4, kernel, rngs=rngs)

    state = backends.get("jax").wrap(Net()).neutral_state()
    assert state["conv.weight"].shape == (6, 2, *kernel)
    assert state["up.weight"].shape == (3, 4, *kernel)
