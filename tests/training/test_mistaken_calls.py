"""Calls of training that mean something else than they say are refused, or warned of."""

import random

import numpy as np
import pytest
import torch

from deliralike import backends, rules, zoo
from deliralike.errors import (
    ArgumentError,
    BatchError,
    DtypeError,
    SettingError,
)
from deliralike.training import Trainer, evaluate, predict
from deliralike.training.metrics import Accuracy, CrossEntropy
from tests.training.networks import Linear

X = np.random.default_rng(0).standard_normal((8, 3)).astype("float32")
Y = np.array([0, 1, 1, 0, 1, 0, 0, 1])


def mlp(backend="torch"):
    return zoo.build(
        "mlp", backend=backend, in_features=3, out_features=2, hidden=(4,), seed=0
    )


def trainer(network, **settings):
    return Trainer(network, rules.rule("sgd", lr=0.1), **settings)


def constant(outputs, targets):
    return 7.0


ENTROPY = torch.nn.functional.cross_entropy
BOTH = {"dice": ENTROPY, "other": ENTROPY}


# The cross-entropy of several losses is not their sum; what follows it is looked at too.
@pytest.mark.parametrize(
    ("losses", "metrics", "name"),
    [
        (BOTH, {"dice": constant}, "dice"),
        (BOTH, {"loss": constant}, "loss"),
        (BOTH, ["accuracy", "loss"], "loss"),
        ({"dice": ENTROPY}, {"loss": CrossEntropy(), "dice": constant}, "dice"),
    ],
)
def test_a_metric_that_is_called_like_a_loss_is_refused(losses, metrics, name):
    with pytest.raises(SettingError, match=f"metrics: '{name}' is the name of a loss"):
        trainer(mlp(), losses=losses, metrics=metrics)


def test_evaluate_takes_losses_as_a_trainer_does():
    network = mlp()
    losses = {"ce": torch.nn.functional.cross_entropy}
    found = evaluate(network, (X, Y), metrics={"accuracy": Accuracy()}, losses=losses)
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(
            network(torch.tensor(X)), torch.tensor(Y)
        )
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-6)


def test_a_run_is_not_resumed_from_a_number():
    with pytest.raises(
        ArgumentError, match="from the path of its folder, .* not from 5"
    ):
        trainer(mlp()).fit((X, Y), epochs=1, resume=5)


@pytest.mark.parametrize(
    ("result", "words"),
    [(np.ones(3), r"an array of shape \(3,\)"), (None, "None"), ("a", "'a'")],
)
def test_a_metric_gives_a_number(result, words):
    with pytest.raises(
        SettingError, match=f"metric 'mine' gives {words}, wanted one number"
    ):
        evaluate(mlp(), (X, Y), metrics={"mine": lambda outputs, targets: result})


@pytest.mark.parametrize("backend", ["torch", "chainer", "jax"])
def test_inputs_and_targets_that_are_exchanged_are_noted(backend):
    with pytest.raises(ValueError) as caught:
        trainer(mlp(backend)).fit((Y, X), epochs=1)
    assert any("are they exchanged?" in note for note in caught.value.__notes__)


def test_predict_refuses_more_arrays_than_the_network_has_inputs():
    with pytest.raises(
        BatchError, match="a tuple of 2 arrays, and the network takes 1 inputs"
    ):
        list(predict(mlp(), (X, Y)))


@pytest.mark.parametrize("is_native", [False, True])
def test_an_array_of_numpy_is_no_tensor(is_native):
    network = (
        backends.wrap(torch.nn.Linear(3, 2)) if is_native else Linear.on("torch")(3, 2)
    )
    with pytest.raises(
        DtypeError, match="Linear.*: got an array of NumPy, wanted a tensor"
    ):
        network(X)


class Noisy(Linear):
    def __init__(self, source):
        super().__init__(3, 2)
        self.source = source
        self.own = np.random.default_rng(0)

    def forward(self, x):
        if self.source == "numpy":
            noise = np.random.normal(size=3)
        elif self.source == "python":
            noise = [random.random()] * 3
        elif self.source == "own":
            noise = self.own.normal(size=3)
        else:
            noise = np.zeros(3)
        return self.fc(x + self.nn.constant(np.asarray(noise), x))


@pytest.mark.parametrize("source", ["numpy", "python", "own"])
def test_random_numbers_of_the_host_that_jax_draws_once_are_warned_of(source):
    network = Noisy.on("jax", seed=0)(source)
    with pytest.warns(
        RuntimeWarning, match="Noisy draws random .* in its forward pass"
    ):
        list(predict(network, X))


@pytest.mark.filterwarnings("error")
def test_a_network_that_draws_nothing_on_the_host_is_not_warned_of():
    list(predict(Noisy.on("jax", seed=0)("nothing"), X))
