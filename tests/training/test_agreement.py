"""Agreement: planted differences are found and named, exact zeros are not."""

import numpy as np
import pytest

from deliralike import Network, conformance, data
from deliralike.conformance.agreement import compare
from deliralike.optim import rules
from deliralike.training import fit


class Biased(Network):
    """A convolution whose bias a batch norm takes away again: its exact gradient is zero."""

    def __init__(self, eps=1e-5):
        super().__init__()
        self.conv = self.nn.Conv2d(1, 4, 3)
        self.bn = self.nn.BatchNorm2d(4, eps=eps)
        self.fc = self.nn.Linear(4 * 9, 3)

    def forward(self, x):
        return self.fc(self.nn.flatten(self.nn.relu(self.bn(self.conv(x)))))


def samples():
    generator = np.random.default_rng(0)
    return data.Samples(
        generator.normal(size=(12, 1, 5, 5)), generator.integers(0, 3, 12)
    )


def probed(backend, **settings):
    return conformance.probe(Biased.on(backend, dtype="float64")(**settings), samples())


@pytest.mark.parametrize("other", ["torch", "chainer", "jax"])
def test_backends_agree_and_the_null_gradient_is_named(other):
    found = compare(probed("torch").gradients, probed(other).gradients)
    assert found.difference < 1e-12
    assert found.null == ("conv.bias",)


def test_another_epsilon_is_found():
    reference, candidate = probed("torch"), probed("chainer", eps=2e-5)
    assert 1e-7 < compare(reference.outputs, candidate.outputs).difference < 1e-3
    assert compare(reference.gradients, candidate.gradients).difference > 1e-7


def test_a_probe_leaves_the_network_as_it_was(backend):
    network = Biased.on(backend.name, dtype="float64")().eval()
    before = network.neutral_state()
    conformance.probe(network, samples())
    assert all(
        (value == before[name]).all() for name, value in network.neutral_state().items()
    )
    assert not network.training


def test_the_worst_tensor_is_named():
    reference = {"a": np.ones(4), "b": np.array([3.0, 4.0])}
    found = compare(
        reference, {"a": np.ones(4) * (1 + 1e-9), "b": np.array([3.0, 4.0 + 5e-8])}
    )
    assert (found.worst, found.difference) == ("b", pytest.approx(1e-8, rel=1e-6))


def test_a_gradient_that_vanishes_on_one_side_only_is_no_null_gradient():
    found = compare(
        {"a": np.ones(2), "b": np.full(2, 1e-20)}, {"a": np.ones(2), "b": np.ones(2)}
    )
    assert (found.worst, found.null) == ("b", ())


@pytest.mark.parametrize(
    "candidate", [{}, {"a": None}, {"a": np.ones(3)}, {"a": np.array([1.0, np.nan])}]
)
def test_what_is_missing_shaped_otherwise_or_not_finite_is_infinitely_far(candidate):
    assert compare({"a": np.ones(2)}, candidate).difference == np.inf


def test_numbers_whose_squares_underflow_are_compared():
    assert conformance.relative_difference(
        [3e-300, 4e-300], [3e-300, 4.5e-300]
    ) == pytest.approx(0.1)


def test_runs_are_compared_step_by_step_and_moment_by_moment():
    def run(learning_rate):
        network = Biased.on("torch", dtype="float64")()
        rule = rules.rule("sgd", lr=learning_rate)
        history = fit(
            network.backend.optimizer(rule, network), samples(), epochs=2, batch_size=6
        )
        return history, {"after training": conformance.probe(network, samples())}

    same, other = (
        conformance.agreement(run(0.1), run(0.1)),
        conformance.agreement(run(0.1), run(0.1 + 1e-9)),
    )
    assert (
        same.losses.difference,
        same.outputs.difference,
        same.gradients.difference,
    ) == (
        0.0,
        0.0,
        0.0,
    )
    assert other.losses.worst.startswith("step ")
    assert other.gradients.worst.endswith("after training")
    assert 1e-11 < other.losses.difference < 1e-7
