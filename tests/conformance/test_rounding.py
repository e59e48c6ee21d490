"""Level L2: right candidates in float32 are as exact as the reference, those that compute in
something shorter are not."""

import numpy as np
import pytest
import torch

from deliralike import zoo
from deliralike.conformance.findings import FAILED, PASSED
from deliralike.conformance.levels import rounding
from deliralike.conformance.probing import distance_loss
from deliralike.conformance.subject import Subject
from deliralike.training import classification_loss
from tests.conformance.small import (
    Deep,
    Network,
    Plain,
    Shared,
    TorchNet,
    batch,
    get,
    made,
    squares,
)
from tests.planted.fixtures import fixture

NETWORKS = {
    "lenet": ({}, (3, 1, 28, 28)),
    "mlp": ({"in_features": 7, "out_features": 3}, (5, 7)),
    "resnet8": ({}, (2, 1, 16, 16)),
}


def judged(reference, candidate, given=None, loss=classification_loss):
    """The level; networks on JAX run op by op."""
    with get("jax").op_by_op():
        return rounding.level(
            Subject(reference, loss), Subject(candidate, loss), batch() if given is None else given
        )


def wrapped(kind):
    network = get("torch").wrap(kind().double())
    network.load_neutral_state(made(Plain).neutral_state())
    return network


@pytest.mark.parametrize("kind", [Plain, Deep, Shared])
def test_right_candidates_are_as_exact_as_the_reference(backend, kind):
    found = judged(made(kind), made(kind, backend))
    assert (found.name, found.status, found.findings) == ("L2", PASSED, ())
    assert 0.05 < found.worst < rounding.LIMIT


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("other", ["torch", "chainer"])
def test_so_are_families_of_the_zoo(name, other):
    """Those on JAX are compared by the command and by the score."""
    settings, shape = NETWORKS[name]
    x = np.random.default_rng(0).standard_normal(shape)
    sides = [
        zoo.build(name, backend=side, seed=1, dtype="float64", **settings)
        for side in ("torch", other)
    ]
    found = judged(*sides, (x,), distance_loss)
    assert (found.status, found.findings) == (PASSED, ())
    assert 0.05 < found.worst < rounding.LIMIT


def test_the_figures_are_the_errors_of_the_candidate_in_sigmas():
    """Against sums of NumPy: the error of the candidate's output in float32, and a floor for
    sigma."""
    reference, (x, _) = made(Plain), batch()
    found = judged(reference, made(Plain, "chainer"), (x,), squares)
    x32 = x.astype(np.float32).astype(np.float64)
    state = {key: value.astype(np.float32) for key, value in reference.neutral_state().items()}
    wide = {key: value.astype(np.float64) for key, value in state.items()}
    exact = (x32 + np.tanh(x32 @ wide["one.weight"].T + wide["one.bias"])) @ wide[
        "two.weight"
    ].T + wide["two.bias"]
    with get("chainer").evaluating():
        network = get("chainer").in_dtype(made(Plain, "chainer"), "float32")
        given = network(*network.backend.prepare((x32,), network))
    error = np.linalg.norm(get("chainer").numpy(given).astype(np.float64) - exact)
    z = found.figures["z"]["eval"]["output"]
    sigma = error / z
    eps = float(np.finfo(np.float32).eps)
    assert eps / 4 * np.linalg.norm(exact) <= sigma * (1 + 1e-12)
    assert sigma < 4 * eps * np.linalg.norm(exact)


class Half(TorchNet):
    """Rounds to float16 in a run in float32."""

    def forward(self, x):
        hidden = self.one(x)
        hidden = hidden.half().to(x.dtype) if x.dtype == torch.float32 else hidden
        return self.two(x + torch.tanh(hidden))


def test_a_candidate_in_float16_is_far_outside():
    found = judged(made(Plain), wrapped(Half))
    assert found.status == FAILED
    assert found.worst > 100
    assert found.findings[0].level == "L2"
    assert {finding.limit for finding in found.findings} == {rounding.LIMIT}


class Normed(Network):
    """Moments of numbers whose mean is 1e4 deviations."""

    in_one_pass = False

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(9, 3)

    def forward(self, x):
        mean = self.nn.mean(x, 1, keepdim=True)
        if self.in_one_pass:
            variance = self.nn.mean(x * x, 1, keepdim=True) - mean * mean
        else:
            variance = self.nn.mean((x - mean) * (x - mean), 1, keepdim=True)
        return self.fc((x - mean) / (variance + 0.1) ** 0.5)


def test_a_variance_in_one_pass_is_outside_where_the_mean_is_large(backend):
    class OnePass(Normed):
        in_one_pass = True

    random = np.random.default_rng(5)
    near, labels = random.standard_normal((5, 9)), np.arange(5) % 3
    far = near + 1e4
    assert judged(made(Normed), made(Normed, backend), (far, labels)).status == PASSED
    found = judged(made(Normed), made(OnePass, backend), (far, labels))
    assert found.status == FAILED
    assert found.worst > 100
    assert judged(made(Normed), made(OnePass, backend), (near, labels)).status == PASSED


class Overflowing(Network):
    """The logarithm of a softmax, in one of two ways."""

    is_safe = True

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x) * 60.0
        if self.is_safe:
            return self.nn.log_softmax(y, dim=1)
        return y - self.nn.log(self.nn.sum(self.nn.exp(y), 1, keepdim=True))


def test_an_overflow_in_float32_is_outside(backend):
    class Unsafe(Overflowing):
        is_safe = False

    x = batch()[0] * 2
    assert judged(made(Overflowing), made(Overflowing, backend), (x,), squares).status == PASSED
    found = judged(made(Overflowing), made(Unsafe, backend), (x,), squares)
    assert found.status == FAILED
    assert found.worst == np.inf


class Doubling(TorchNet):
    """Cannot run in float32."""

    def forward(self, x):
        return self.two(x + torch.tanh(self.one(x)).double())


def test_a_side_that_cannot_run_in_float32():
    found = judged(made(Plain), wrapped(Doubling))
    assert found.status == FAILED
    assert {(finding.place, finding.what[:20]) for finding in found.findings} == {
        ("", "raises RuntimeError:")
    }
    assert (
        judged(wrapped(Doubling), made(Plain)).status == PASSED
    )  # what float32 holds at all says what to expect


def test_tensors_of_rounding_are_named_and_not_judged():
    """The bias in front of a batch norm has no gradient."""

    class Biased(Network):
        def __init__(self):
            super().__init__()
            self.fc, self.norm, self.head = (
                self.nn.Linear(4, 4),
                self.nn.BatchNorm1d(4),
                self.nn.Linear(4, 3),
            )

        def forward(self, x):
            return self.head(self.norm(self.fc(x)))

    found = judged(made(Biased), made(Biased, "chainer"))
    assert found.status == PASSED
    assert "such as gradient of fc.bias" in found.notes[0]


def test_the_networks_stay_as_they_were(backend):
    sides = [made(Deep), made(Deep, backend)]
    before = [side.neutral_state() for side in sides]
    judged(*sides)
    for side, state in zip(sides, before, strict=True):
        for key, value in side.neutral_state().items():
            np.testing.assert_array_equal(value, state[key])
            assert value.dtype == state[key].dtype


@pytest.mark.parametrize(
    ("rounded", "z", "is_null"),
    [
        (rounding.Rounded(1.0, 1e-6, 2e-6), 2.0, False),
        (rounding.Rounded(1.0, 0.0, rounding.EPS), 4.0, False),
        (rounding.Rounded(1.0, 1e-6, 0.0), 0.0, False),
        (rounding.Rounded(0.0, 0.0, 1e-3), np.inf, True),
        (rounding.Rounded(1e-9, 1e-9, 3e-9), 3.0, True),
        (rounding.Rounded(1.0, np.inf, np.inf), np.inf, True),
        (rounding.Rounded(1.0, 1e-6, np.inf), np.inf, False),
    ],
)
def test_sigmas(rounded, z, is_null):
    assert rounded.z == pytest.approx(z)
    assert rounded.is_null is is_null


@pytest.mark.parametrize("seed", [0, 3])
def test_a_reference_that_is_lucky_with_its_float32_is_no_measure(backend, seed):
    """At a mean of 1e4 deviations one sum in float32 may come out well by chance; JAX's was 66
    times worse."""
    (reference, given), (candidate, _) = (
        fixture("far", "torch", seed),
        fixture("far", backend.name, seed),
    )
    with backend.op_by_op():
        found = rounding.level(reference, candidate, given)
    assert (found.status, found.findings) == (PASSED, ())
