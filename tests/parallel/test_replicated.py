"""Replicated networks: on every backend what one device gives, for any number of replicas and any
shares."""

import copy
import pickle
import random as python_random
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import DataParallel, Network, backends, in_replicas, random, weights
from deliralike.errors import ArgumentError, BatchError, DeviceError, SettingError
from tests.arrays import same_named
from tests.conftest import BACKENDS
from tests.losses import cross_entropy, mean_square
from tests.parallel.networks import (
    Convolutional,
    Dense,
    Small,
    Torn,
    batch_of,
    built,
    device_of,
    devices,
    images_of,
    optimizer_of,
    replicated,
    same_runs,
    train,
)

STEPS = 20
SYNC = {"buffers": "sync"}


def batches(samples, steps=STEPS):
    return [images_of(samples, seed=step) for step in range(steps)]


# The same as one device
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "rule", "count", "samples"),
    [(cross_entropy, "sgd", 3, 7), (in_replicas(cross_entropy), "adamw", 4, 10)],
    ids=["gathered", "in replicas"],
)
def test_twenty_steps_are_those_of_one_device(backend, loss, rule, count, samples):
    """Losses, gradients, parameters and running statistics, with dropout and synchronised batch
    normalisation."""
    network = replicated(backend, count, network=Convolutional, settings=SYNC)
    wanted = train(built(backend, Convolutional), cross_entropy, batches(samples), rule)
    same_runs(train(network, loss, batches(samples), rule), wanted)


@pytest.mark.parametrize("norm", [False, True])
def test_masks_of_calls_in_training_are_those_of_one_network(backend, norm):
    """Other ones in each step and in each call."""
    network = replicated(backend, 2, 0.5, norm, settings=SYNC)
    single = built(backend, Small, 0.5, norm)
    for step in (0, 0, 1):
        outputs = []
        for each in (network, single):
            x, _ = backend.prepare(batch_of(7), each)
            with random.portable(3, step), each.training_mode(True):
                calls = [backend.numpy(backend.detached(each(x))) for _ in range(2)]
            outputs.append(calls)
        assert_allclose(*outputs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sorted({"torch", "chainer"} & {*BACKENDS}))
def test_replicas_compute_in_one_thread_where_they_are_told_to(name):
    network = replicated(backends.get(name), 2, settings={"parallel": False})
    threads = []

    def loss(network, x, labels):
        threads.append(threading.get_ident())
        return cross_entropy(network, x, labels)

    optimizer_of(network).update(in_replicas(loss), *batch_of(7))
    assert threads == [threading.get_ident()] * 2


def test_gradients_of_the_backend_are_those_of_one_network(backend):
    networks = (
        replicated(backend, 3, 0.0, network=Convolutional, settings=SYNC),
        built(backend, Convolutional, 0.0),
    )
    x, labels = images_of(7)
    found, wanted = (
        backend.gradients(cross_entropy, network, x, labels) for network in networks
    )
    assert found.loss == pytest.approx(wanted.loss, rel=1e-13)
    same_named(found.parameters, wanted.parameters, where="gradients")
    assert_allclose(found.inputs[0], wanted.inputs[0], rtol=1e-12, atol=1e-13)
    assert found.inputs[1] is None
    same_named(networks[0].neutral_state(), networks[1].neutral_state(), where="state")


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize(
    ("loss", "buffers"), [(cross_entropy, "mean"), (in_replicas(cross_entropy), "sync")]
)
def test_virtual_shards_are_bit_identical_on_any_number_of_devices(
    backend, loss, buffers
):
    """Ten samples in shards of 3, 3, 2 and 2."""
    states = []
    for count in (1, 2):
        network = replicated(
            backend, count, settings={"virtual_shards": 4, "buffers": buffers}
        )
        run = train(
            network, loss, [batch_of(10, seed=step) for step in range(3)], "adam"
        )
        states.append((run["losses"], run["states"][-1]))
    for losses, state in states[1:]:
        assert losses == states[0][0]
        assert all(
            np.array_equal(value, states[0][1][name]) for name, value in state.items()
        )


# Storage and hooks
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "duplicate",
    [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_has_replicas_of_its_own(backend, duplicate):
    network = replicated(backend, 2)
    before = network.neutral_state()
    twin = duplicate(network)
    assert twin.settings == network.settings
    optimizer_of(twin).update(cross_entropy, *batch_of(5))
    same_named(network.neutral_state(), before, tolerance=0)
    for each in (network, twin):
        same_named(each.replicas[1].neutral_state(), each.neutral_state(), tolerance=0)
    assert not np.array_equal(twin.neutral_state()["fc.weight"], before["fc.weight"])


class Listening(Dense):
    """Notes when its replicas are made."""

    heard: list = []

    def __data_parallel_replicate__(self, context, copy_id):
        self.heard.append((copy_id, context))


def test_replication_callbacks_are_called_once_replicas_are_made(backend, monkeypatch):
    monkeypatch.setattr(Listening, "heard", heard := [])
    network = replicated(backend, 3, network=Listening)
    for _ in range(2):
        network(*backend.prepare((np.ones((4, 3)),), network))
    assert [copy_id for copy_id, _ in heard] == [0, 1, 2]
    assert len({id(context) for _, context in heard}) == 1


def native_random_state(backend):
    if backend.name == "torch":
        import torch

        return torch.get_rng_state().tolist()
    return None  # Chainer's is NumPy's; JAX has none outside of a network


def test_wrapping_changes_neither_weights_nor_random_states(backend):
    network = built(backend)
    before = network.neutral_state()
    seen = (
        python_random.getstate(),
        str(np.random.get_state()),
        native_random_state(backend),
    )
    wrapped = DataParallel(network, devices(backend, 3))
    assert (
        python_random.getstate(),
        str(np.random.get_state()),
        native_random_state(backend),
    ) == seen
    for each in (network, wrapped, *wrapped.replicas):
        same_named(each.neutral_state(), before, tolerance=0)


# Errors
# -----------------------------------------------------------------------------


class Faulty(Network):
    """Raises on a share of three samples, before or after the replicas have met, and on seven."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.bn, self.fc = self.nn.BatchNorm1d(3), self.nn.Linear(3, 2)

    def forward(self, x):
        is_faulty = x.shape[0] in (3, 7)
        if self.where == "before" and is_faulty:
            raise Torn("fc", 3, 4)
        x = self.bn(x)
        if self.where == "after" and is_faulty:
            raise Torn("fc", 3, 4)
        return self.fc(x)


def parameters(network):
    """Without the running statistics, which move as far as the network came before an error."""
    return {
        name: slot.read()
        for name, slot in network.neutral_slots().items()
        if slot.is_parameter
    }


@pytest.mark.parametrize(
    "loss", [mean_square, in_replicas(mean_square)], ids=["gathered", "in replicas"]
)
@pytest.mark.parametrize("where", ["before", "after"])
def test_an_error_in_a_replica_keeps_its_type_and_says_where_it_was(
    backend, within, where, loss
):
    # on JAX replicas that share statistics give way to one program of the whole batch
    settings = {} if backend.name == "jax" else SYNC
    network = replicated(backend, 2, where, network=Faulty, settings=settings)
    before, begin = parameters(network), time.monotonic()
    with pytest.raises(Torn, match="fc: wanted 3, came 4") as caught:
        within(optimizer_of(network).update, loss, np.ones((7, 3)))
    assert (caught.value.layer, caught.value.wanted, caught.value.came) == ("fc", 3, 4)
    assert (
        f"raised in replica 1 of 2 on {devices(backend, 2)[1]}"
        in caught.value.__notes__
    )
    assert time.monotonic() - begin < 100
    for replica in network.replicas:
        same_named(parameters(replica), before, tolerance=0)


def test_after_an_error_the_network_goes_on(backend, within):
    network = replicated(backend, 2, "after", network=Faulty, settings=SYNC)
    optimizer = optimizer_of(network)
    with pytest.raises(Torn):
        within(optimizer.update, mean_square, np.ones((7, 3)))
    single = built(backend, Faulty, "never")
    x = np.random.default_rng(0).normal(size=(9, 3))
    within(optimizer.update, mean_square, x)
    optimizer_of(single).update(mean_square, x)
    same_named(parameters(network), parameters(single))
    for replica in network.replicas[1:]:
        same_named(replica.neutral_state(), network.neutral_state(), tolerance=1e-14)


def test_arguments_that_disagree_are_refused_by_their_paths(backend):
    network = replicated(backend, 2, network=Flexible)
    x, y = backend.prepare((np.ones((4, 3)), np.ones((5, 3))), network)
    with pytest.raises(BatchError, match=r"args\[0\] has 4, kwargs\['other'\] has 5"):
        network(x, other=y)


@pytest.mark.parametrize(
    ("places", "settings", "error", "message"),
    [
        (["nowhere"], {}, DeviceError, "has no device 'nowhere'"),
        (None, {"output_device": "nowhere"}, DeviceError, "has no device 'nowhere'"),
        ([], {}, SettingError, "at least one device, not an empty list"),
        (
            None,
            {"bufers": "sync"},
            ArgumentError,
            "DataParallel has no setting 'bufers'. Did you mean 'buffers'",
        ),
        (
            None,
            {"buffers": "synced"},
            SettingError,
            "buffers='synced' is unknown. Did you mean 'sync'",
        ),
        (None, {"scalars": "max"}, SettingError, "scalars='max' is unknown"),
        (None, {"others": "first"}, SettingError, "others='first' is unknown"),
        (
            None,
            {"virtual_shards": 1},
            SettingError,
            "virtual_shards=1 is less than the 2 devices",
        ),
        (
            None,
            {"buffers": "sync", "parallel": False},
            SettingError,
            "buffers='sync' needs parallel=True",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    backend, places, settings, error, message
):
    with pytest.raises(error, match=message):
        DataParallel(
            built(backend),
            devices(backend, 2) if places is None else places,
            **settings,
        )


def test_one_device_gives_the_plain_network(backend):
    network = built(backend)
    assert DataParallel(network, devices(backend, 1)) is network


# Checkpoints
# -----------------------------------------------------------------------------


@pytest.mark.parametrize("loads", [1, 3])
def test_a_checkpoint_does_not_tell_how_many_replicas_there_were(
    backend, tmp_path, loads
):
    saved = replicated(backend, 2, settings=SYNC)
    optimizer = optimizer_of(saved, "adam")
    optimizer.update(cross_entropy, *batch_of(5))
    weights.write(tmp_path / "weights.safetensors", saved)
    loaded = replicated(backend, loads, settings=SYNC)
    assert list(weights.read(tmp_path / "weights.safetensors")) == list(
        built(backend).neutral_state()
    )
    weights.load(loaded, tmp_path / "weights.safetensors")
    resumed = optimizer_of(loaded, "adam")
    resumed.load_neutral_state(optimizer.neutral_state())
    for one in (optimizer, resumed):
        with random.portable(1, 1):
            one.update(cross_entropy, *batch_of(7, seed=1))
    same_named(loaded.neutral_state(), saved.neutral_state())
    same_named(resumed.neutral_state(), optimizer.neutral_state())


# Inputs and outputs
# -----------------------------------------------------------------------------


class Flexible(Network):
    """Takes and gives what it is told."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)

    def forward(self, x, other=None, twice=False, name="plain"):
        y = self.fc(x if other is None else x + other)
        return {"y": y * 2.0 if twice else y, "name": name}


class Scalar(Network):
    """Gives a scalar, the mean of its share."""

    def forward(self, x):
        return self.nn.mean(x)


class Modal(Network):
    """Doubles in training mode."""

    def __init__(self):
        super().__init__()
        self.inner = Flexible()

    def forward(self, x):
        return (
            x * (2.0 if self.training else 1.0) * (10.0 if self.inner.training else 1.0)
        )


def both(backend, network, *args, settings=None, count=3, **kwargs):
    """NumPy outputs of three replicas, and of one network."""
    outputs = []
    for each in (
        replicated(backend, count, network=network, settings=settings),
        built(backend, network),
    ):
        outputs.append(
            backend.to_numpy(
                each(*backend.prepare(args, each), **backend.prepare(kwargs, each))
            )
        )
    return outputs


@pytest.mark.parametrize("samples", [7, 3, 2, 1])
def test_positional_and_keyword_arguments_flags_and_strings_reach_the_replicas(
    backend, samples
):
    rng = np.random.default_rng(0)
    x, other = rng.normal(size=(2, samples, 3))
    found, wanted = both(backend, Flexible, x, other=other, twice=True, name="special")
    assert_allclose(found["y"], wanted["y"], rtol=1e-13, atol=1e-14)
    assert found["name"] == "special"


@pytest.mark.parametrize("scalars", ["stack", "mean", "sum"])
def test_scalars_are_gathered_as_declared(backend, scalars):
    x = np.random.default_rng(0).normal(size=(7, 3))
    found, whole = both(backend, Scalar, x, settings={"scalars": scalars})
    each = np.array([x[:3].mean(), x[3:5].mean(), x[5:].mean()])
    wanted = {"stack": each, "mean": whole, "sum": each.sum()}[scalars]
    assert_allclose(found, wanted, rtol=1e-13, strict=True)


def test_samples_may_be_counted_along_another_axis(backend):
    network = replicated(
        backend, 3, network=Scalar, settings={"dim": 1, "scalars": "mean"}
    )
    x = np.random.default_rng(0).normal(size=(2, 7))
    assert float(
        backend.numpy(network(*backend.prepare((x,), network)))
    ) == pytest.approx(x.mean(), rel=1e-13)


def test_a_spec_says_what_is_split(backend):
    """The second argument has as many rows as there are samples, by chance: every replica needs all
    of it."""
    network = replicated(
        backend, 2, network=Table, settings={"spec": (("split", "copy"), {})}
    )
    x, table = np.arange(10.0).reshape(5, 2), np.arange(5.0)
    found = backend.to_numpy(network(*backend.prepare((x, table), network)))
    assert_array_equal(found, x + table.sum())


class Table(Network):
    def forward(self, x, table):
        return x + self.nn.sum(table)


@pytest.mark.parametrize("which", [None, 0, 1])
def test_outputs_lie_on_the_output_device(backend, which):
    places = devices(backend, 2)
    network = replicated(
        backend,
        2,
        network=Scalar,
        settings={"output_device": None if which is None else places[which]},
    )
    outputs = network(*backend.prepare((np.ones((5, 3)),), network))
    assert device_of(backend, outputs) == places[which or 0]


# Modes
# -----------------------------------------------------------------------------


def test_training_mode_reaches_the_replicas_wherever_it_is_set(backend):
    network = replicated(backend, 2, network=Modal)
    factor = lambda: float(  # noqa: E731
        backend.numpy(network(*backend.prepare((np.ones((3, 1)),), network)))[-1, 0]
    )
    assert factor() == 20.0
    network.eval()
    assert (factor(), network.training, network.root.training) == (1.0, False, False)
    network.train()
    assert factor() == 20.0
    network.root.inner.eval()
    assert factor() == 2.0
    with network.training_mode(False):
        assert factor() == 1.0
    assert factor() == 2.0


def test_evaluation_leaves_no_trace(backend):
    network = replicated(backend, 3, settings={"buffers": "mean"})
    before = network.neutral_state()
    with network.training_mode(False):
        outputs = [
            backend.to_numpy(network(*backend.prepare(batch_of(7)[:1], network)))
            for _ in range(2)
        ]
    assert_array_equal(*outputs)
    assert network.training
    for replica in network.replicas:
        same_named(replica.neutral_state(), before, tolerance=0)
    single = built(backend).eval()
    wanted = backend.to_numpy(single(*backend.prepare(batch_of(7)[:1], single)))
    assert_allclose(outputs[0], wanted, rtol=1e-12, atol=1e-13)


def test_dropout_by_the_framework_differs_between_replicas_and_calls(backend):
    """Two shares of the same samples get different masks, and so do two calls; a seed brings them
    back."""
    network = replicated(backend, 2, network=Dropping)
    x = np.ones((4, 50))

    def masks():
        return backend.to_numpy(network(*backend.prepare((x,), network))) == 0

    first, second = masks(), masks()
    assert not np.array_equal(first[:2], first[2:])
    assert not np.array_equal(first, second)
    assert 0.3 < first.mean() < 0.7


class Dropping(Network):
    def __init__(self):
        super().__init__()
        self.dropout = self.nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(x)


class Changing(Network):
    """Scales by an attribute, if it has one."""

    def __init__(self):
        super().__init__()
        self.first, self.fc = self.nn.Linear(3, 4), self.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.first(x)) * getattr(self, "scale", 1.0)


def test_what_changes_on_the_root_reaches_the_replicas(backend):
    """Attributes that come and go, another layer, parameters that are frozen and thawed: outputs
    and gradients are those of the root alone."""
    x = np.random.default_rng(1).normal(size=(5, 3))
    network = replicated(backend, 2, network=Changing)
    single = built(backend, Changing)

    def scale(net, factor):
        net.scale = factor

    def unscale(net):
        del net.scale

    def replace(net):
        net.fc = backend.nn.Identity()

    for change in (
        lambda net: scale(net, 3.0),
        unscale,
        lambda net: net.set_trainable("first.*", False),
        lambda net: net.set_trainable("first.*", True),
        replace,
    ):
        change(network.root)
        change(single)
        found, wanted = (
            backend.gradients(mean_square, net, x) for net in (network, single)
        )
        assert found.loss == pytest.approx(wanted.loss, rel=1e-13)
        same_named(found.parameters, wanted.parameters)
        trainable = {
            name: slot.trainable for name, slot in single.neutral_slots().items()
        }
        for replica in network.replicas:
            slots = replica.neutral_slots()
            assert {name: slot.trainable for name, slot in slots.items()} == trainable


class Settings(Network):
    """Scales by numbers in a list and a dict."""

    def __init__(self):
        super().__init__()
        self.factors, self.names = [1.0], {"scale": 1.0}

    def forward(self, x):
        return x * self.factors[0] * self.names["scale"]


def test_settings_that_are_changed_in_place_reach_the_replicas(backend):
    network = replicated(backend, 2, network=Settings)
    values = np.random.default_rng(1).normal(size=(5, 3))
    x = backend.prepare(values, network)
    for factor, scale in ((1.0, 1.0), (3.0, 1.0), (3.0, 5.0)):
        network.root.factors[0], network.root.names["scale"] = factor, scale
        found = backend.to_numpy(network(x))
        assert_allclose(found, values * factor * scale, rtol=1e-14)


def test_what_is_no_list_of_devices_is_an_error(backend):
    for given in (backend.devices()[0], 2, None):
        with pytest.raises(SettingError, match=f"devices={given!r}: wanted a list"):
            DataParallel(built(backend), given)


def test_a_replicated_network_is_not_replicated_again(backend):
    with pytest.raises(
        SettingError,
        match="the network is replicated already: replicate what .*, network.root",
    ):
        DataParallel(replicated(backend, 2), devices(backend, 2))


class Outer(Network):
    """Two layers, of which the second may be replicated."""

    def __init__(self, tail):
        super().__init__()
        self.first, self.tail = self.nn.Linear(3, 3), tail

    def forward(self, x):
        return self.tail(self.first(x))


def test_neither_the_class_of_a_backend_nor_a_network_around_it_replicates_it_again(
    backend,
):
    """The inner replicas' gradients would be lost."""
    inner, places = replicated(backend, 2, network=Dense), devices(backend, 2)
    outer = Outer.on(backend, dtype="float64")(inner)
    with pytest.raises(
        SettingError,
        match="the block 'tail' of the network is replicated .*, network.tail.root",
    ):
        DataParallel(outer, places)
    for network in (inner, outer):
        with pytest.raises(SettingError, match="is replicated already: replicate"):
            type(inner)(network, places)
