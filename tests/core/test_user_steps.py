"""Steps, closures and prepared batches that a network was written with: native or not, wrapped or
replicated."""

import numpy as np
import pytest

from deliralike import DataParallel, Network, in_replicas, wrap
from deliralike.errors import UnknownName
from deliralike.optim.rules import rule
from deliralike.training import Trainer
from tests.parallel.networks import devices

RNG = np.random.default_rng(11)
X, Y = (
    RNG.normal(size=(5, 3)).astype(np.float32),
    RNG.normal(size=(5, 2)).astype(np.float32),
)
WEIGHT, BIAS = (
    RNG.normal(size=(2, 3)).astype(np.float32),
    RNG.normal(size=2).astype(np.float32),
)
RATE, PENALTY = 0.1, 0.25
CALLS = []  # the samples that each call of the native network's forward had


class Steps:
    """What a class that knows no Trainer of ours has of its own; `mean` is its framework's."""

    penalty = PENALTY

    def squares(self, network, x, y):
        return self.mean((network.body(x) - y) ** 2) * network.penalty

    def train_step(self, data, optim_wrapper):
        images, target = data
        return {
            "fit": optim_wrapper["default"].update(
                in_replicas(self.squares), images, target
            )
        }

    def val_step(self, data):
        images, _ = data
        return [row for row in self(images)]

    def test_step(self, data):
        return self.val_step(data)[::-1]

    @staticmethod
    def closure(
        model, data_dict, optimizers, criterions, iter_num=0, fold=0, **options
    ):
        return {"mine": float(fold)}, {"pred": model(data_dict["data"])}

    @staticmethod
    def prepare_batch(batch, input_device, output_device):
        return {"moved": sorted(batch), "to": (input_device, output_device)}


def torch_regressor():
    import torch

    class Regressor(Steps, torch.nn.Module):
        mean = staticmethod(torch.mean)

        def __init__(self):
            super().__init__()
            self.body = torch.nn.Linear(3, 2)

        def forward(self, x):
            assert isinstance(x, torch.Tensor)
            CALLS.append(len(x))
            return self.body(x)

    return Regressor()


def chainer_regressor():
    import chainer

    class Regressor(Steps, chainer.Chain):
        mean = staticmethod(chainer.functions.mean)

        def __init__(self):
            super().__init__()
            with self.init_scope():
                self.body = chainer.links.Linear(3, 2)

        def forward(self, x):
            CALLS.append(len(x))
            return self.body(x)

    return Regressor()


def jax_regressor():
    import jax
    from flax import nnx

    class Regressor(Steps, nnx.Module):
        mean = staticmethod(jax.numpy.mean)

        def __init__(self):
            self.body = nnx.Linear(3, 2, rngs=nnx.Rngs(0))

        def __call__(self, x):
            assert isinstance(x, jax.Array)
            CALLS.append(len(x))
            return self.body(x)

    return Regressor()


def regressor(backend, count=1):
    """The native network, wrapped, with known weights; over replicas."""
    net = wrap(
        {"torch": torch_regressor, "chainer": chainer_regressor, "jax": jax_regressor}[
            backend.name
        ]()
    )
    net.load_neutral_state({"body.weight": WEIGHT, "body.bias": BIAS})
    return DataParallel(net, devices(backend, count)) if count > 1 else net


def one_step_by_hand():
    """The loss, and the weights after a step, in NumPy."""
    error = X @ WEIGHT.T + BIAS - Y
    slope = PENALTY * 2 * error / error.size
    return (
        PENALTY * (error**2).mean(),
        WEIGHT - RATE * slope.T @ X,
        BIAS - RATE * slope.sum(0),
    )


@pytest.mark.parametrize("count", [1, 2])
def test_a_trainer_makes_the_steps_of_a_native_network(backend, count):
    net = regressor(backend, count)
    trainer = Trainer(net, rule("sgd", lr=RATE))
    history = trainer.fit((X, Y), (X, Y), batch_size=5)
    loss, weight, bias = one_step_by_hand()
    assert history.steps[0].losses == {"fit": pytest.approx(loss, rel=1e-5)}
    np.testing.assert_allclose(
        net.neutral_state()["body.weight"], weight, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        net.neutral_state()["body.bias"], bias, rtol=1e-4, atol=1e-6
    )
    after = (
        (X @ weight.T + bias - Y) ** 2
    ).mean()  # predictions are no losses: these are the default ones
    assert history.epochs[0].held_out["loss"] == pytest.approx(after, rel=1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_validation_and_test_steps_of_a_native_network_give_what_they_give(
    backend, count
):
    net = regressor(backend, count)
    CALLS.clear()
    rows = [backend.numpy(row) for row in net.val_step((X, Y))]
    assert sorted(CALLS) == ([5] if count == 1 else [2, 3])  # threads come in any order
    np.testing.assert_allclose(rows, X @ WEIGHT.T + BIAS, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(
        [backend.numpy(row) for row in net.test_step((X, Y))], rows[::-1]
    )


@pytest.mark.parametrize("count", [1, 2])
def test_closure_and_prepare_batch_of_a_native_network_are_its_own(backend, count):
    net, (place, *_) = regressor(backend, count), devices(backend, 1)
    values, predictions = net.closure(
        net, {"data": backend.array(X)}, None, {}, 3, fold=2
    )
    assert values == {"mine": 2.0}
    np.testing.assert_allclose(
        backend.numpy(predictions["pred"]), X @ WEIGHT.T + BIAS, rtol=1e-4, atol=1e-5
    )
    assert net.prepare_batch({"b": 1, "a": 2}, place, "there") == {
        "moved": ["a", "b"],
        "to": (place, "there"),
    }


def test_a_native_network_without_steps_has_the_default_ones(backend):
    net = wrap(regressor(backend).native.body)
    loss = net.val_step((X, Y))["loss"]
    assert float(backend.number(loss)) == pytest.approx(
        ((X @ WEIGHT.T + BIAS - Y) ** 2).mean(), rel=1e-5
    )
    with pytest.raises(AttributeError, match="has no attribute 'penalty'"):
        _ = net.penalty


# Networks written once, replicated
# -----------------------------------------------------------------------------


class Watched(Network):
    """Steps that ask the base class, read a setting and a private one, call a method, and keep a
    record."""

    def __init__(self, weight=3.0):
        super().__init__()
        self.fc = self.nn.Linear(3, 2)
        self.weight, self._offset, self.steps = weight, 0.5, 0

    def forward(self, x):
        return self.fc(x) * self.weight

    @property
    def doubled(self):
        return 2 * self.weight

    def outputs(self, x):
        CALLS.append(type(self.train_step).__name__)
        return self(*self.backend.prepare((x,), self))

    def train_step(self, batch, optimizers, losses=None):
        self.steps += 1
        return super().train_step(batch, optimizers, losses) | {
            "offset": self._offset,
            "doubled": self.doubled,
        }

    def val_step(self, batch):
        with self.training_mode(False):
            return {"sum": self.nn.sum(self.outputs(batch[0]))} | super().val_step(
                batch
            )

    def closure(self, data_dict, optimizers, losses, iter_num=0, fold=0):
        return self.outputs(data_dict["data"]), isinstance(self, Watched)

    @classmethod
    def prepare_batch(cls, batch, input_device, output_device):
        return cls.__name__, cls.backend.name


@pytest.mark.parametrize("count", [1, 2])
def test_steps_in_replicas_are_those_of_the_network_that_was_written(backend, count):
    plain = Watched.on(backend, dtype="float64", seed=4)(weight=2.0)
    state, x = plain.neutral_state(), X.astype(np.float64)
    outputs = 2.0 * (x @ state["fc.weight"].T + state["fc.bias"])
    loss = ((outputs - Y) ** 2).mean()
    net = DataParallel(plain, devices(backend, count)) if count > 1 else plain
    values = {
        name: float(backend.number(value))
        for name, value in net.val_step((x, Y)).items()
    }
    assert values == {
        "sum": pytest.approx(outputs.sum(), rel=1e-6),
        "loss": pytest.approx(loss, rel=1e-6),
    }
    given, is_watched = net.closure({"data": x}, None, {})
    np.testing.assert_allclose(backend.numpy(given), outputs, rtol=1e-6)
    assert is_watched
    assert net.prepare_batch({}, None, None) == ("Watched", backend.name)
    optimizer = backend.optimizer(rule("sgd", lr=RATE), net)
    came = net.train_step((x, Y), optimizer)
    assert (float(backend.number(came["loss"])), came["offset"], came["doubled"]) == (
        pytest.approx(loss),
        0.5,
        4.0,
    )
    assert plain.steps == 1
    slope = 2.0 * 2 * (outputs - Y) / outputs.size
    np.testing.assert_allclose(
        plain.neutral_state()["fc.weight"],
        state["fc.weight"] - RATE * slope.T @ x,
        rtol=1e-5,
        atol=1e-7,
    )


def test_what_no_network_inside_has_is_no_attribute(backend):
    net = regressor(backend, 2)
    assert net.penalty == PENALTY
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = net.nothing
    with pytest.raises(AttributeError, match="'_hidden'"):
        _ = net._hidden
    with pytest.raises(UnknownName):
        net.set_trainable("nothing.*", False)


def test_a_class_of_replicated_networks_prepares_batches_without_one(backend):
    kind = type(regressor(backend, 2))
    prepared = kind.prepare_batch({"data": X.astype(np.float64), "label": np.arange(5)})
    assert [str(backend.numpy(each).dtype) for each in prepared.values()] == [
        "float32",
        "int64",
    ]
