"""Networks written once, on every backend."""

import copy

import numpy as np
import pytest

from deliralike import AbstractNetwork, DataParallel, Network, build, start, wrap
from deliralike.errors import (
    ArgumentError,
    ConstructionError,
    DeviceError,
    DtypeError,
    SettingError,
    UnboundNetwork,
    UnknownName,
)
from tests.core.networks import Block, Classifier, TwoInTwoOut
from tests.losses import cross_entropy

RNG = np.random.default_rng(1)
X = np.random.default_rng(0).normal(size=(3, 3, 9, 7))
LABELS = np.array([0, 3, 1])


def run(network, *inputs):
    backend = network.backend
    return backend.to_numpy(network(*backend.prepare(inputs, network)))


@pytest.fixture
def classifier(backend):
    return Classifier.on(backend, dtype="float64")()


def test_a_bound_network_is_a_native_class(backend):
    native = {
        "torch": "torch.nn.modules.module.Module",
        "chainer": "chainer.link.Chain",
        "jax": "flax.nnx.module.Module",
    }
    ancestors = {
        f"{c.__module__}.{c.__name__}" for c in Classifier.on(backend.name).__mro__
    }
    assert native[backend.name] in ancestors
    assert issubclass(Classifier.on(backend.name), Classifier)


def test_binding_twice_gives_the_same_class(backend):
    assert Classifier.on(backend.name) is Classifier.on(backend)


@pytest.mark.parametrize("twice", [False, True])
def test_several_inputs_outputs_and_control_flow(backend, twice):
    network = TwoInTwoOut.on(backend, dtype="float64")(twice=twice)
    a, b = np.ones((2, 4)), np.full((2, 2), -0.5)
    state = network.neutral_state()
    left = (a @ state["left.weight"].T + state["left.bias"]) * (2 if twice else 1)
    expected = (left + b @ state["right.weight"].T + state["right.bias"]) * state[
        "scale"
    ]
    outputs = run(network, a, b)
    np.testing.assert_allclose(outputs["left"], left, atol=1e-13)
    np.testing.assert_allclose(outputs["sum"], expected, atol=1e-13)


def test_init_kwargs_belong_to_the_instance(backend):
    bound = Classifier.on(backend)
    first, second = bound(num_classes=5), bound(2, p=0.5)
    assert first.init_kwargs == {"num_classes": 5}
    assert second.init_kwargs == {"in_channels": 2, "p": 0.5}
    assert first.stages[0].init_kwargs == {"in_channels": 3, "channels": 5, "stride": 2}


def test_init_kwargs_describe_networks_and_hold_none(backend):
    class Pair(Network):
        def __init__(self, first, blocks):
            super().__init__()
            self.first, self.blocks = first, self.nn.ModuleList(blocks)

    nn = backend.nn
    pair = Pair.on(backend)(nn.Linear(3, 2), [nn.Linear(2, 2, bias=False)])
    assert repr(pair.init_kwargs["first"]) == "Linear(in_features=3, out_features=2)"
    assert (
        repr(pair.init_kwargs["blocks"])
        == "[Linear(in_features=2, out_features=2, bias=False)]"
    )


def test_start_values_that_are_no_distribution_are_refused(backend):
    class Named(Classifier):
        start_values = {"fc.weight": "zeros"}

    with pytest.raises(
        SettingError, match="start_values of Named: 'fc.weight' is 'zeros', wanted"
    ):
        Named.on(backend)()


def test_training_mode_is_restored_block_by_block(classifier):
    classifier.train()
    classifier.stages[1].eval()
    with pytest.raises(KeyError), classifier.training_mode(False):
        assert not classifier.stages[0].training
        raise KeyError
    assert classifier.training
    assert classifier.stages[0].bn.training
    assert not classifier.stages[1].training


def test_frozen_parameters_get_no_gradient(classifier):
    names = classifier.set_trainable("stages.*", False)
    assert "stages.0.conv.weight" in names
    found = classifier.backend.gradients(cross_entropy, classifier, X, LABELS)
    assert set(found.parameters) == {"head.1.weight", "head.1.bias"}
    assert classifier.count_parameters(trainable_only=True) == 7 * 4 + 4


def test_freezing_nothing_is_an_error(classifier):
    with pytest.raises(
        UnknownName, match=r"no parameter of Classifier matches 'stage\.\*'"
    ):
        classifier.set_trainable("stage.*", False)


def test_an_unbound_network_says_how_to_bind_it():
    with pytest.raises(UnboundNetwork, match=r"write Classifier.on\('torch'\)\(...\)"):
        Classifier()


@pytest.mark.parametrize("name", ["seed", "dtype", "device"])
def test_an_argument_of_on_is_sent_there(backend, name):
    with pytest.raises(
        ArgumentError, match=rf"given to Classifier.on\(backend, {name}="
    ):
        Classifier.on(backend)(**{name: 1})


def test_an_unknown_argument_suggests_the_nearest(backend):
    with pytest.raises(
        ArgumentError, match="Classifier: .*'num_clases'. Did you mean 'num_classes'?"
    ):
        Classifier.on(backend)(num_clases=3)


def test_an_unknown_dtype_names_those_that_there_are(backend):
    with pytest.raises(
        DtypeError,
        match=rf"backend '{backend.name}' cannot compute in 'float65'. Did you mean 'float64'",
    ):
        Classifier.on(backend, dtype="float65")()


def test_an_unknown_device_names_those_that_there_are(backend):
    with pytest.raises(
        DeviceError, match=rf"backend '{backend.name}' has no device 'cuda:99' here"
    ):
        Classifier.on(backend, device="cuda:99")()


def test_a_network_whose_base_was_not_initialised_is_refused(backend):
    class Forgetful(Network):
        def __init__(self):
            self.fc = self.nn.Linear(2, 3)

    message = r"Forgetful: call super\(\).__init__\(\) before assigning 'fc'"
    with pytest.raises(ConstructionError, match=message):
        Forgetful.on(backend)()


def test_a_block_written_once_can_be_bound_alone_or_inside(backend):
    assert isinstance(Classifier.on(backend)().stages[0], Block)
    assert run(Block.on(backend, dtype="float64")(3, 5, 2), X).shape == (3, 5, 5, 4)


def test_what_is_no_network_is_refused():
    with pytest.raises(UnknownName, match="str is a network of no available backend"):
        wrap("resnet18")


def test_state_dict_has_the_neutral_names_on_every_backend(classifier):
    assert list(classifier.state_dict()) == list(classifier.neutral_state())


def test_a_network_without_parameters_keeps_the_type_that_it_was_built_with(backend):
    layer = build(backend.nn.MaxPool2d, 2, dtype="float64")
    assert layer.dtype_name == "float64"
    assert run(layer, X).dtype == np.float64


def test_a_block_may_be_called_as_something_that_only_networks_in_parallel_have(
    backend,
):
    class Freely(Network):
        def __init__(self):
            super().__init__()
            for name in ("settle", "updating", "no_sync"):
                setattr(self, name, self.nn.Linear(3, 3))

        def forward(self, x):
            return self.no_sync(self.nn.relu(self.updating(self.settle(x))))

    network = Freely.on(backend, dtype="float64")()
    replicated = DataParallel(network, [network.device_name] * 2)
    assert replicated.settle is network.settle
    x = RNG.normal(size=(5, 3))
    np.testing.assert_allclose(run(replicated, x), run(network, x), rtol=1e-12)


def test_every_network_has_twenty_public_names():
    names = [name for name in dir(AbstractNetwork) if not name.startswith("_")]
    assert len(names) <= 20


class Hiding(Network):
    """A block under the name of something that every network has."""

    def __init__(self, name):
        super().__init__()
        setattr(self, name, self.nn.Linear(2, 2))


@pytest.mark.parametrize(
    "name", ["train", "backend", "nn", "neutral_state", "val_step"]
)
def test_a_block_that_hides_what_every_network_has_is_refused(backend, name):
    with pytest.raises(ConstructionError, match=f"cannot be called '{name}'"):
        Hiding.on(backend)(name)


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        ("torch", "double"),
        ("torch", "on"),
        ("chainer", "links"),
        ("jax", "on"),
        ("jax", "sow"),
    ],
)
def test_a_block_that_hides_a_method_of_the_framework_is_refused(framework, name):
    with pytest.raises(
        ConstructionError, match=f"'{name}'.* (hide or be hidden|every Chainer)"
    ):
        Hiding.on(framework)(name)


class Applied(Network):
    """A function among its attributes that computes with a layer."""

    def __init__(self):
        super().__init__()
        self.fc = fc = self.nn.Linear(3, 2)
        self.twice = lambda x: 2 * fc(x)
        self.mask = self.nn.Buffer(None)

    def forward(self, x):
        return self.twice(x) if self.mask is None else x


def test_functions_of_a_copy_compute_with_the_layers_of_the_copy(backend):
    network, x = Applied.on(backend)(), RNG.normal(size=(5, 3)).astype(np.float32)
    twin = copy.deepcopy(network)
    state = network.neutral_state()
    assert set(state) == {"fc.weight", "fc.bias"}
    twin.load_neutral_state({name: 3 * value + 1 for name, value in state.items()})
    weight, bias = 3 * state["fc.weight"] + 1, 3 * state["fc.bias"] + 1
    wanted = 2 * (x @ weight.T + bias)
    np.testing.assert_allclose(run(twin, x), wanted, rtol=1e-5, atol=1e-6)
    outputs = 2 * (x @ state["fc.weight"].T + state["fc.bias"])
    np.testing.assert_allclose(run(network, x), outputs, rtol=1e-5, atol=1e-6)


class Outer(Network):
    """A block that was bound to a backend by itself."""

    def __init__(self, other):
        super().__init__()
        self.block = Block.on(other)(3, 4)


def test_a_block_of_another_backend_is_refused_where_it_is_created(backend):
    other = {"torch": "jax", "chainer": "torch", "jax": "chainer"}[backend.name]
    wanted = (
        f"of backend {other!r}, created within a network of backend {backend.name!r}"
    )
    with pytest.raises(ConstructionError, match=wanted):
        Outer.on(backend)(other)


class Drifting(Network):
    """A forward pass that would change a parameter."""

    def __init__(self):
        super().__init__()
        self.scale = self.nn.Parameter((2,), start.ONES)

    def forward(self, x):
        self.scale = self.scale * 2.0
        return x * self.scale


def test_a_parameter_that_a_forward_pass_would_change_is_named(backend):
    with pytest.raises(TypeError, match="'scale'"):
        run(Drifting.on(backend)(), np.ones((3, 2), np.float32))


def test_a_network_on_jax_is_built_within_flax_transformations():
    from flax import nnx

    shapes = nnx.eval_shape(lambda: Classifier.on("jax")())
    wanted = Classifier.on("jax", seed=3)()
    built = nnx.jit(lambda: Classifier.on("jax", seed=3)())()
    for name, value in wanted.neutral_state().items():
        assert shapes.neutral_slots()[name].shape == value.shape
        np.testing.assert_array_equal(built.neutral_state()[name], value)


class WithTable(Network):
    def __init__(self):
        super().__init__()
        self.table = self.nn.Buffer(np.ones(3, np.float32))

    def forward(self, x):
        return x if self.table is None else x * self.table


def test_a_buffer_that_is_set_to_none_is_no_part_of_the_state(backend):
    network = WithTable.on(backend)()
    assert list(network.neutral_state()) == ["table"]
    network.table = None
    assert network.table is None and not network.neutral_state()
    x = backend.array(np.full((2, 3), 2.0, np.float32))
    np.testing.assert_array_equal(backend.numpy(network(x)), backend.numpy(x))
