"""closure and prepare_batch: the same names, order of arguments, sums and types on every
backend."""

import numpy as np
import pytest

from deliralike import DataParallel, Network
from deliralike.errors import ArgumentError, BatchError, DeviceError, SettingError
from deliralike.network import build
from deliralike.network.closure import closure
from tests.arrays import same_named
from tests.parallel.networks import (
    Dense,
    Small,
    batch_of,
    built,
    device_of,
    devices,
    native_sgd,
    optimizer_of,
    replicated,
)


class SideFirst(Network):
    """What is trained is not the first of its outputs."""

    def __init__(self):
        super().__init__()
        self.side, self.main = self.nn.Linear(3, 2), self.nn.Linear(3, 2)

    def forward(self, x):
        return {"aux": self.side(x), "pred": self.main(x)}


def batch():
    x, labels = batch_of(6)
    return {"data": x, "label": labels}


def losses_of(backend):
    nn = backend.nn
    return {
        "entropy": nn.cross_entropy,
        "size": lambda scores, labels: nn.mean(scores * scores),
    }


@pytest.fixture
def network(backend):
    return built(backend, Small, 0.0)


def by_hand(network, data):
    """Scores in evaluation mode, and both losses in NumPy."""
    backend = network.backend
    with network.training_mode(False):
        scores = backend.numpy(network(*backend.prepare((data["data"],), network)))
    shifted = scores - scores.max(1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return (
        scores,
        -log_softmax[np.arange(len(scores)), data["label"]].mean(),
        (scores**2).mean(),
    )


@pytest.mark.parametrize("optimizers", [None, {}])
def test_evaluation_gives_each_loss_their_sum_and_the_predictions(network, optimizers):
    scores, entropy, size = by_hand(network, data := batch())
    values, predictions = network.closure(
        network, data, optimizers, losses_of(network.backend), 3, fold=1
    )
    assert {name: type(value) for name, value in values.items()} == {
        "total": float,
        "entropy": float,
        "size": float,
    }
    assert values["entropy"] == pytest.approx(entropy, rel=1e-12)
    assert values["size"] == pytest.approx(size, rel=1e-12)
    assert values["total"] == pytest.approx(entropy + size, rel=1e-12)
    np.testing.assert_allclose(
        network.backend.numpy(predictions["pred"]), scores, rtol=1e-12
    )


def has_graph(backend, array):
    return {
        "torch": lambda: array.requires_grad,
        "chainer": lambda: array.creator is not None,
    }[backend.name]()


def test_evaluation_builds_no_graph_and_training_does(network):
    if (
        network.backend.name == "jax"
    ):  # arrays never carry a graph: what is seen is traced in an update, and not here
        import jax

        seen_by = lambda array: isinstance(array, jax.core.Tracer)  # noqa: E731
    else:
        seen_by = lambda array: has_graph(network.backend, array)  # noqa: E731
    seen = []
    loss = {
        "watched": lambda scores, labels: (
            seen.append(seen_by(scores)),
            network.nn.mean(scores),
        )[1]
    }
    network.closure(network, batch(), {}, loss)
    network.closure(network, batch(), {"default": optimizer_of(network)}, loss)
    assert seen[0] is False
    assert seen[-1] is True


def test_training_is_one_update_on_the_sum_of_losses(backend):
    network, reference = built(backend, Small, 0.0), built(backend, Small, 0.0)
    data, losses = batch(), losses_of(backend)
    values, predictions = closure(
        network, data, {"default": optimizer_of(network)}, losses
    )

    def total(network, x, labels):
        scores = network(x)
        return losses["entropy"](scores, labels) + losses["size"](scores, labels)

    loss = optimizer_of(reference).update(total, data["data"], data["label"])
    assert values["total"] == pytest.approx(float(backend.numpy(loss)), rel=1e-12)
    assert predictions["pred"].shape == (6, 4)
    same_named(network.neutral_state(), reference.neutral_state())


@pytest.mark.parametrize("count", [1, 2])
def test_the_output_called_pred_is_trained_wherever_it_stands(backend, count):
    network = (
        replicated(backend, count, network=SideFirst)
        if count > 1
        else built(backend, SideFirst)
    )
    before = network.neutral_state()
    data = {"data": np.ones((4, 3)), "label": np.zeros(4, np.int64)}
    network.closure(
        network,
        data,
        {"default": optimizer_of(network)},
        {"entropy": backend.nn.cross_entropy},
    )
    moved = [
        name
        for name, value in network.neutral_state().items()
        if not np.array_equal(value, before[name])
    ]
    assert moved == ["main.weight", "main.bias"]


def test_a_loss_called_as_their_sum_is_refused(network):
    named = {
        "total": lambda scores, labels: network.nn.mean(scores),
        **losses_of(network.backend),
    }
    with pytest.raises(
        SettingError,
        match="a loss among 'total', 'entropy', 'size' is called 'total', as their sum is",
    ):
        network.closure(network, batch(), None, named)
    values, _ = network.closure(network, batch(), None, {"total": named["total"]})
    assert values == {
        "total": pytest.approx(by_hand(network, batch())[0].mean(), rel=1e-12)
    }
    named["loss"] = named.pop("total")
    with pytest.raises(
        SettingError, match="is called 'loss', as their sum is: give it another name"
    ):
        network.val_step((batch()["data"], batch()["label"]), named)


@pytest.mark.parametrize(
    ("key", "near"),
    [("data", "Did you mean 'dat'"), ("label", "Did you mean 'labels'")],
)
def test_a_batch_without_a_key_is_refused(network, key, near):
    data = {
        ("dat" if name == "data" else "labels") if name == key else name: value
        for name, value in batch().items()
    }
    with pytest.raises(BatchError, match=f"the batch has no '{key}'. {near}"):
        network.closure(network, data, None, losses_of(network.backend))


def test_optimizers_without_a_default_are_refused(network):
    with pytest.raises(
        SettingError,
        match=r"closure updates by optimizers\['default'\]; there is 'generator'",
    ):
        network.closure(
            network,
            batch(),
            {"generator": optimizer_of(network)},
            losses_of(network.backend),
        )


def test_no_loss_is_refused(network):
    with pytest.raises(SettingError, match="closure needs at least one loss"):
        network.closure(network, batch(), None, {})


def test_a_native_optimizer_that_holds_its_state_goes_on_from_step_to_step(backend):
    network, reference = built(backend, Small, 0.0), built(backend, Small, 0.0)
    native, ours = native_sgd(network), optimizer_of(reference)
    if not backend.optimizers_hold_state:
        with pytest.raises(ArgumentError, match="wrap it once, backend.wrap_optimizer"):
            closure(network, batch(), {"default": native}, losses_of(backend))
        native = backend.wrap_optimizer(native, network)
    for _ in range(3):
        closure(network, batch(), {"default": native}, losses_of(backend))
        closure(reference, batch(), {"default": ours}, losses_of(backend))
    same_named(network.neutral_state(), reference.neutral_state())


# prepare_batch
# -----------------------------------------------------------------------------


def types_of(backend, prepared):
    found = {
        key: backend.numpy(value).dtype
        for key, value in prepared.items()
        if backend.is_array(value)
    }
    return {
        key: str(dtype) for key, dtype in found.items() if dtype.kind != "U"
    }  # a NumPy array is Chainer's own


def mixed():
    return {
        "data": np.ones((2, 3)),
        "label": np.array([1, 2]),
        "small": np.array([1, 2], np.int32),
        "seen": np.array([True, False]),
        "half": np.ones(2, np.float16),
        "name": "train",
        "names": np.array(["a", "b"]),
        "nothing": None,
    }


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floating_arrays_take_the_type_and_all_others_keep_theirs(network, dtype):
    prepared = network.prepare_batch(mixed(), dtype=dtype)
    assert types_of(network.backend, prepared) == {
        "data": dtype,
        "label": "int64",
        "small": "int32",
        "seen": "bool",
        "half": dtype,
    }


def test_floating_arrays_become_float32_unless_told(network):
    assert types_of(network.backend, network.prepare_batch({"data": np.ones(2)})) == {
        "data": "float32"
    }


def test_native_arrays_are_prepared_too_and_nests_keep_their_structure(network):
    backend = network.backend
    given = {
        "data": (backend.array(np.ones(3)), [np.zeros(2)]),
        "label": {"a": backend.array(np.arange(3))},
    }
    prepared = network.prepare_batch(given)
    assert isinstance(prepared["data"], tuple)
    assert isinstance(prepared["data"][1], list)
    assert str(backend.numpy(prepared["data"][0]).dtype) == "float32"
    assert str(backend.numpy(prepared["data"][1][0]).dtype) == "float32"
    assert str(backend.numpy(prepared["label"]["a"]).dtype) == "int64"


def test_data_goes_to_the_input_device_and_the_rest_to_the_output_device(backend):
    network, (first, second) = built(backend, Dense), devices(backend, 2)
    prepared = network.prepare_batch(
        {"data": np.ones(2), "label": np.ones(2)}, first, second
    )
    if first != second:
        assert prepared["data"].devices() != prepared["label"].devices()
    with pytest.raises(DeviceError, match="has no device 'cpuu'"):
        network.prepare_batch({"data": np.ones(2)}, "cpuu")


def framework_device(backend):
    """The first device as the framework's own object."""
    if backend.name == "torch":
        import torch

        return torch.device("cpu")
    if backend.name == "chainer":
        import chainer

        return chainer.get_device("@numpy")
    import jax

    return jax.devices("cpu")[0]


def test_devices_may_be_objects_of_the_framework(backend):
    place, (name, *_) = framework_device(backend), devices(backend, 1)
    network = built(backend, Dense)
    prepared = network.prepare_batch(
        {"data": np.ones(2), "label": np.ones(2)}, place, output_device=place
    )
    assert {device_of(backend, each) for each in prepared.values()} == {name}
    assert DataParallel(network, [place, place], place).settings.devices == (name, name)
    assert build(type(network), device=place).device_name == name
    with pytest.raises(DeviceError, match="has no device 7.5 here"):
        network.prepare_batch({"data": np.ones(2)}, 7.5)


class TwoOutputs(Network):
    """A dict of outputs; the first is what the losses are told."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)

    def forward(self, x):
        scores = self.fc(x)
        return {"scores": scores, "twice": scores * 2.0}


def test_outputs_in_a_dict_keep_their_names(backend):
    network = built(backend, TwoOutputs)
    data = {"data": np.ones((5, 3)), "label": np.zeros((5, 2))}
    values, predictions = closure(
        network,
        data,
        None,
        {"mse": lambda scores, label: backend.nn.mean(scores * scores)},
    )
    assert list(predictions) == ["scores", "twice"]
    scores = backend.numpy(predictions["scores"])
    assert values["mse"] == pytest.approx((scores**2).mean(), rel=1e-12)
    np.testing.assert_allclose(
        backend.numpy(predictions["twice"]), 2 * scores, rtol=1e-12
    )


def test_the_batch_given_is_not_changed(network):
    given = mixed()
    prepared = network.prepare_batch(given, dtype="float64")
    if network.backend.name == "torch":
        prepared["data"][0, 0] = 7.0
    assert given["data"].dtype == np.float64
    assert (given["data"] == 1).all()
