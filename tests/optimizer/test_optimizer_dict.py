"""Optimizers by name under MMEngine's name: a trainer takes them, and their states move."""

import numpy as np
import pytest
import torch

from deliralike import OptimWrapperDict, data, zoo
from deliralike.errors import ArgumentError, CapabilityError, StateError, UnknownName
from deliralike.optim.rules import rule
from deliralike.training import Trainer
from tests.arrays import same_named
from tests.losses import cross_entropy

RNG = np.random.default_rng(6)
SAMPLES = data.Samples(RNG.normal(size=(11, 5)), RNG.integers(0, 3, 11))
RULES = {
    "body": (rule("sgd", lr=0.1, momentum=0.9), "layers.0.*"),
    "head": (rule("adam", lr=0.02), "layers.1.*"),
}


def made(backend):
    net = zoo.build(
        "mlp",
        backend=backend,
        in_features=5,
        hidden=(7,),
        out_features=3,
        dtype="float64",
    )
    return net, {
        name: net.backend.optimizer(each, net, pattern)
        for name, (each, pattern) in RULES.items()
    }


class Both(type(made("torch")[0]).written_once):
    """A step that updates one part after the other."""

    def train_step(self, batch, optimizers):
        *inputs, target = batch
        return {
            name: optimizers[name].update(cross_entropy, *inputs, target)
            for name in ("body", "head")
        }


def test_a_trainer_takes_them_like_a_dictionary(backend):
    states = []
    for kind in (dict, OptimWrapperDict):
        net = Both.on(backend, dtype="float64")(
            in_features=5, hidden=(7,), out_features=3
        )
        optimizers = {
            name: backend.optimizer(each, net, pattern)
            for name, (each, pattern) in RULES.items()
        }
        Trainer(net, kind(**optimizers)).fit(SAMPLES, epochs=2, batch_size=4)
        states.append(net.neutral_state())
    np.testing.assert_equal(states[1], states[0])


def test_states_go_to_another_backend():
    net, optimizers = made("torch")
    for each in optimizers.values():
        each.update(cross_entropy, SAMPLES.inputs, SAMPLES.labels)
    state = OptimWrapperDict(**optimizers).state_dict()
    _, others = made("jax")
    other = OptimWrapperDict(**others)
    other.load_state_dict(state)
    for name, arrays in other.state_dict().items():
        same_named(arrays, state[name])


def test_what_makes_no_sense_is_refused():
    net, optimizers = made("torch")
    both = OptimWrapperDict(**optimizers)
    with pytest.raises(
        ArgumentError,
        match="optimizer 'head' is a SGD: give one from backend.optimizer",
    ):
        OptimWrapperDict(head=torch.optim.SGD(net.parameters(), lr=0.1))
    with pytest.raises(
        NotImplementedError,
        match=r"optimizers\['name'\].update\(loss_function, \*batch\) for each",
    ):
        both.update_params(0.0)
    with pytest.raises(CapabilityError):
        both.update_params(loss=0.0)
    with pytest.raises(
        UnknownName,
        match="the state has an optimizer 'haed', which.*Did you mean 'head'",
    ):
        both.load_state_dict(both.state_dict() | {"haed": {}})
    with pytest.raises(StateError, match="the state lacks the optimizers 'body'"):
        both.load_state_dict({"head": both.state_dict()["head"]})
    with pytest.raises(KeyError):
        both["tail"]
