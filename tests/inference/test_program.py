"""`backend.program`: what a call of the network gives, and does to it."""

import operator

import numpy as np
import pytest

from deliralike import DataParallel, backends, zoo
from deliralike.errors import IndexRangeError
from tests.inference.test_sliding_window import BACKENDS, Nested, network, picture


def outputs(net, x):
    return net.backend.program(operator.call, net)(x)


def on_host(net, outputs):
    found = net.backend.to_numpy(outputs)
    return [found["full"], found["half"][0]]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("training", [False, True])
def test_outputs_and_moved_statistics_are_those_of_a_call(backend, training):
    called, computed = network(backend, kind=Nested), network(backend, kind=Nested)
    x = backends.get(backend).array(picture(8, 6))
    with called.training_mode(training), computed.training_mode(training):
        wanted = on_host(called, called(x))
        found = on_host(computed, outputs(computed, x))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    states = called.neutral_state(), computed.neutral_state()
    for name in states[0]:
        np.testing.assert_allclose(states[0][name], states[1][name], rtol=0, atol=1e-12)
    moved = np.abs(states[1]["norm.running_mean"]).max() > 0
    assert moved == training


@pytest.mark.parametrize("backend", BACKENDS)
def test_replicas_give_the_outputs_of_the_plain_network(backend):
    net, device = network(backend, kind=Nested), backends.get(backend).devices()[0]
    x = net.backend.array(picture(8, 6, samples=3))
    with net.training_mode(False):
        wanted = on_host(net, outputs(net, x))
    replicas = DataParallel(net, [device, device])
    with replicas.training_mode(False), net.backend.evaluating():
        found = on_host(replicas, outputs(replicas, x))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_within_op_by_op_jax_compiles_no_program(monkeypatch):
    net = network("jax", kind=Nested)
    with net.backend.op_by_op(), net.training_mode(False):
        monkeypatch.setattr("jax.make_jaxpr", None)  # with which each program begins
        found = outputs(net, net.backend.array(picture(10, 4)))
    assert found["full"].shape == (2, 3, 10, 4)


class Remembering(Nested):
    def forward(self, x):
        self.seen = self.nn.mean(x)
        return super().forward(x)


class Branching(Nested):
    def forward(self, x):
        return super().forward(x if float(self.nn.mean(x)) > 0 else -x)


@pytest.mark.parametrize("kind", [Remembering, Branching])
def test_what_cannot_be_compiled_is_called_as_it_is(kind):
    net = network("jax", kind=kind)
    x = net.backend.array(picture(8, 6))
    with net.training_mode(False):
        for sign in (1, -1):
            found, wanted = (
                on_host(net, outputs(net, sign * x)),
                on_host(net, net(sign * x)),
            )
            for one, other in zip(found, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
            if kind is Remembering:
                outputs(net, 2 * sign * x)
                np.testing.assert_allclose(net.seen, (2 * sign * x).mean(), rtol=1e-12)


def test_indices_are_checked_at_each_call_of_a_program():
    net = zoo.build("gpt_mini", backend="jax", n_layer=1)
    with net.training_mode(False):
        outputs(net, net.backend.array(np.array([[1, 2, 3]])))
        with pytest.raises(IndexRangeError):
            outputs(net, net.backend.array(np.array([[1, 2, 1000]])))
