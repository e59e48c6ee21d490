"""What is specific to Chainer: its own machinery works on networks written once, and its own links
fit in."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal, assert_equal

from deliralike import backends
from deliralike.errors import (
    ArgumentError,
    ConstructionError,
    DeviceError,
    DtypeError,
    ShapeError,
    StateError,
)
from deliralike.network import Network
from deliralike.optim.rules import rule

BACKEND = backends.get("chainer")

import chainer  # noqa: E402
import chainer.functions as F  # noqa: E402
import chainer.links as L  # noqa: E402


class Net(Network):
    """A convolution, a batch norm and a linear layer; written so that creation order is not the
    alphabet's."""

    def __init__(self):
        super().__init__()
        nn = self.nn
        self.stem = nn.Conv2d(3, 4, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        nn = self.nn
        x = nn.relu(self.norm(self.stem(x)))
        return self.fc(nn.flatten(nn.adaptive_avg_pool2d(x, 1)))


class Branches(Network):
    def __init__(self):
        super().__init__()
        self.a = self.nn.Linear(3, 2)
        self.b = self.nn.Linear(3, 2)

    def forward(self, x, both):
        return self.a(x) + self.b(x) if both else self.a(x)


class Native(BACKEND.network_base):
    """Written for Chainer alone, with its `init_scope`."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.z = L.Convolution2D(3, 4, 3, nobias=True)
            self.a = L.BatchNormalization(4)
            self.head = L.Linear(None, 2)

    def forward(self, x):
        return self.head(F.relu(self.a(self.z(x))))


X = np.random.default_rng(0).standard_normal((4, 3, 9, 7)).astype(np.float32)


def squares(network, x, *rest):
    y = network(x, *rest)
    return network.nn.sum(y * y)


def net(**options):
    return Net.on("chainer", **options)() if options else Net.on("chainer")()


def save_and_load(source, target):
    file = io.BytesIO()
    chainer.serializers.save_npz(file, source)
    file.seek(0)
    chainer.serializers.load_npz(file, target)


def test_chainers_archive_carries_parameters_and_buffers_over():
    source, target = net(seed=1), net(seed=2)
    source(X)
    save_and_load(source, target)
    assert_equal(target.neutral_state(), source.neutral_state())
    assert target.neutral_state()["norm.num_batches_tracked"] == 1


def test_copy_init_draws_new_start_values_from_the_same_distribution():
    layer = BACKEND.nn.Linear(400, 300)
    drawn = layer.copy("init").weight.array
    assert (drawn != layer.weight.array).any()
    assert abs(drawn).max() == pytest.approx(1 / 20, rel=1e-3)


def test_repeat_gives_layers_of_their_own():
    first, second = BACKEND.nn.Linear(3, 3).repeat(2, mode="init")
    assert (first.weight.array != second.weight.array).any()


def test_link_hooks_see_every_block():
    seen = []

    class Hook(chainer.LinkHook):
        name = "names"

        def forward_preprocess(self, args):
            seen.append(args.link.name)

    with Hook():
        net()(X)
    assert seen == [None, "stem", "norm", "fc"]


def test_a_tied_parameter_is_updated_once_by_chainers_optimizers():
    class Tied(Network):
        def __init__(self):
            super().__init__()
            self.a, self.b = (
                self.nn.Linear(2, 2, bias=False),
                self.nn.Linear(2, 2, bias=False),
            )
            self.b.weight = self.a.weight

        def forward(self, x):
            return self.a(x) + self.b(x)

    network = Tied.on("chainer")()
    before = network.neutral_state()["a.weight"]
    optimizer = chainer.optimizers.SGD(1.0).setup(network)
    optimizer.update(lambda: F.sum(network(np.ones((1, 2), np.float32))))
    assert_allclose(network.neutral_state()["b.weight"], before - 2.0, rtol=1e-6)


@pytest.mark.parametrize("mode", ["share", "copy", "init"])
def test_chainers_own_copy_keeps_what_is_shared(mode):
    class Shared(Network):
        def __init__(self):
            super().__init__()
            self.a, self.b = (
                self.nn.Linear(2, 2, bias=False),
                self.nn.Linear(2, 2, bias=False),
            )
            self.b.weight = self.a.weight
            self.both = self.nn.Sequential(self.a, self.nn.BatchNorm1d(2))
            self.list = chainer.ChainList(self.a, self.both)

        def forward(self, x):
            return self.list[1](self.b(x))

    network = Shared.on("chainer")()
    twin = network.copy(mode)
    assert twin.a.weight is twin.b.weight is twin.both[0].weight
    assert twin.list[0] is twin.a is not network.a
    assert twin.list[1] is twin.both
    assert (twin.a.weight.array is network.a.weight.array) == (mode == "share")
    before = network.neutral_state()["a.weight"]
    twin.a.weight.array[...] += 1.0
    assert np.array_equal(network.neutral_state()["a.weight"], before) == (
        mode != "share"
    )


# Training mode
# -----------------------------------------------------------------------------


def test_chainers_switch_turns_training_off_and_leaves_no_trace():
    network = net()
    with chainer.using_config("train", False):
        assert not network.training
        with network.training_mode(True):
            assert not network.norm.training
        network(X)
    assert network.training
    assert network.norm.training
    assert network.neutral_state()["norm.num_batches_tracked"] == 0


def test_a_block_can_train_within_a_network_that_does_not():
    network = net().eval()
    network.norm.train()
    network(X)
    assert network.neutral_state()["norm.num_batches_tracked"] == 1


@pytest.mark.parametrize("training", [True, False])
def test_native_links_inside_follow_the_networks_mode(training):
    network = Native().train(training)
    network(X)
    assert (network.neutral_state()["a.running_mean"] != 0).any() == training
    assert chainer.config.train is True


def test_a_switch_set_inside_forward_holds_for_the_blocks_below_it():
    class Twice(Network):
        def __init__(self):
            super().__init__()
            self.drop = self.nn.Dropout(0.5)

        def forward(self, x):
            with chainer.using_config("train", False):
                quiet = self.drop(x)
            return quiet, self.drop(x)

    quiet, dropped = Twice.on("chainer")()(X)
    assert_array_equal(quiet, X)
    assert (dropped.array == 0).any()


# Native links
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "names"),
    [
        (lambda: L.Linear(3, 2), ["weight", "bias"]),
        (lambda: L.Convolution2D(3, 2, 3), ["weight", "bias"]),
        (lambda: L.Convolution1D(3, 2, 3), ["weight", "bias"]),
        (lambda: L.Deconvolution3D(3, 2, 3, nobias=True), ["weight"]),
        (
            lambda: L.BatchNormalization(3),
            ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"],
        ),
        (lambda: L.LayerNormalization(3), ["weight", "bias"]),
        (lambda: L.EmbedID(5, 2), ["weight"]),
        (lambda: L.PReLU(), ["weight"]),
        (lambda: L.Scale(1, (3,)), ["W"]),
        (
            lambda: chainer.ChainList(L.EmbedID(5, 2), L.EmbedID(5, 2)),
            ["0.weight", "1.weight"],
        ),
    ],
)
def test_a_wrapped_link_has_neutral_names_and_loads_bit_for_bit(link, names):
    network = BACKEND.wrap(link())
    state = {name: value + 1 for name, value in network.neutral_state().items()}
    assert list(state) == names
    network.load_neutral_state(state)
    assert_equal(network.neutral_state(), state)


def test_a_wrapped_chain_shares_its_weights_and_has_no_prefix():
    chain = chainer.Sequential(L.Linear(3, 4), F.relu, L.Linear(4, 2))
    network = BACKEND.wrap(chain)
    network.load_neutral_state({"0.bias": np.full(4, 7.0)}, strict=False)
    assert (chain[0].b.array == 7).all()
    assert [path for path, _ in network.named_blocks()] == ["", "0", "1", "2"]


def test_a_shape_that_is_not_known_yet_is_an_error_until_the_first_call():
    network = Native()
    with pytest.raises(StateError, match="call the network once"):
        network.neutral_state()
    network(X)
    assert network.neutral_state()["head.weight"].shape == (2, 4 * 7 * 5)


# Optimizers
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "native", [chainer.optimizers.Adam, chainer.optimizers.CorrectedMomentumSGD]
)
@pytest.mark.parametrize("is_set_up", [True, False])
def test_a_native_optimizer_can_be_wrapped_before_or_after_its_setup(native, is_set_up):
    network = net()
    optimizer = native().setup(network) if is_set_up else native()
    wrapped, before = (
        BACKEND.wrap_optimizer(optimizer, network),
        network.neutral_state(),
    )
    wrapped.lr = 0.5
    wrapped.update(squares, X)
    assert wrapped.lr == 0.5
    assert (network.neutral_state()["fc.weight"] != before["fc.weight"]).any()


def test_a_parameter_without_gradient_does_not_decay():
    network = Branches.on("chainer")()
    native = chainer.optimizers.AdamW(weight_decay_rate=0.5)
    optimizer = BACKEND.wrap_optimizer(native, network)
    before = network.neutral_state()
    optimizer.update(squares, X[:, :, 0, 0], False)
    assert_array_equal(network.neutral_state()["b.weight"], before["b.weight"])


def test_gradients_leave_no_gradient_behind():
    network = net()
    found = BACKEND.gradients(squares, network, X)
    assert found.inputs[0].shape == X.shape
    assert all(parameter.grad is None for parameter in network.params())


# Arrays and attributes
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_no_result_or_gradient_is_wider_than_the_network(dtype):
    network = net(dtype=dtype)
    x = chainer.Variable(X.astype(dtype))
    loss = network.nn.cross_entropy(
        network(x), np.array([0, 1, 2, 3]), label_smoothing=0.1
    )
    loss.backward()
    values = [
        loss,
        x.grad,
        network.norm.running_mean,
        *(parameter.grad for parameter in network.params()),
    ]
    assert {str(value.dtype) for value in values} == {dtype}


def test_a_buffer_takes_over_values_without_their_graph_in_its_own_type():
    layer = BACKEND.nn.BatchNorm2d(3)
    layer.running_mean = chainer.Variable(np.arange(3.0))
    assert type(layer.running_mean) is np.ndarray
    assert layer.running_mean.dtype == np.float32


def test_variables_can_be_compared():
    x = chainer.Variable(np.array([1.0, 2.0]))
    assert_array_equal(x > 1.5, [False, True])
    assert_array_equal(np.array([1.0, 3.0]) == x, [True, False])


def test_the_gradient_of_a_slice_goes_where_it_was_taken():
    x = chainer.Variable(np.zeros((4, 3)))
    F.sum(x[1:3, None, ::2] * 2).backward()
    assert_array_equal(x.grad, [[0, 0, 0], [2, 0, 2], [2, 0, 2], [0, 0, 0]])


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: setattr(net().fc, "weight", 3), ArgumentError, "registered Parameter"),
        (
            lambda: setattr(net(), "xp", L.Linear(1, 1)),
            ConstructionError,
            "every Chainer link has",
        ),
        (lambda: BACKEND.array(1, dtype="float31"), DtypeError, "float32"),
        (lambda: BACKEND.check_device("@cupy:99"), DeviceError, "@numpy"),
        (
            lambda: BACKEND.nn.conv2d(X, np.zeros((4, 5, 3, 3), np.float32)),
            ShapeError,
            "does not fit",
        ),
        (
            lambda: BACKEND.nn.conv2d(X, np.zeros((4, 3, 3, 3))),
            DtypeError,
            "convert one",
        ),
    ],
)
def test_mistakes_are_named(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_a_block_may_be_called_repeat_as_a_method_of_links_is():
    network = net()
    network.repeat = BACKEND.nn.Linear(1, 2)
    assert "repeat.weight" in network.neutral_state()
    assert dict(network.copy().namedlinks())["/repeat"] is not network.repeat


class Repeating(Network):
    """Calls a block as a method of Chainer's links is called."""

    def __init__(self):
        super().__init__()
        self.repeat = self.nn.Sequential(self.nn.Linear(3, 2))

    def forward(self, x):
        return self.repeat(x)


def test_a_network_written_once_may_have_a_block_called_repeat():
    network = Repeating.on("chainer")()
    weight, bias = network.neutral_state().values()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_allclose(network(x).array, x @ weight.T + bias, rtol=1e-6)


def test_none_takes_a_parameter_away():
    layer = BACKEND.nn.Linear(3, 2)
    layer.bias = None
    assert list(layer.neutral_state()) == ["weight"]


def test_chainers_own_update_with_a_neutral_rule_skips_an_unused_parameter():
    network = Branches.on("chainer")()
    native = BACKEND.optimizer(rule("adamw", lr=0.1, weight_decay=0.5), network).native
    before = network.neutral_state()
    native.update(lambda: squares(network, X[:, :, 0, 0], False))
    assert_array_equal(network.neutral_state()["b.weight"], before["b.weight"])
    assert (network.neutral_state()["a.weight"] != before["a.weight"]).any()
