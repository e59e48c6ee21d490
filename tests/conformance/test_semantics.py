"""Level L1: what is looked at, what differs, and why a look may say nothing."""

import numpy as np
import pytest
import torch

from deliralike.conformance import compare
from deliralike.conformance.findings import FAILED
from deliralike.conformance.levels import semantics
from deliralike.conformance.observe.units import Call, Recording
from deliralike.conformance.places import Tap
from deliralike.conformance.subject import Subject
from deliralike.training import classification_loss
from tests.arrays import same_named
from tests.conformance.small import Deep, Network, Plain, batch, get, made


def look(network, training=True, given=None, loss=classification_loss, **options):
    """One side; on JAX op by op."""
    with get("jax").op_by_op():
        return semantics.look(
            Subject(network, loss),
            batch() if given is None else given,
            training,
            **options,
        )


def modes(reference, candidate, **options):
    return {
        name: semantics.compared(
            look(reference, training, **options), look(candidate, training, **options)
        )
        for name, training in semantics.MODES.items()
    }


def test_a_look_is_what_the_backend_computes(backend):
    network = made(Deep, backend)
    before = network.neutral_state()
    seen = look(network)
    with network.training_mode(True), backend.op_by_op():
        wanted = backend.gradients(classification_loss, network, *batch())
    after = network.neutral_state()
    network.load_neutral_state(before)
    assert seen.error is None
    assert float(seen.recording.output) == pytest.approx(wanted.loss, rel=1e-14)
    same_named(seen.recording.parameters, wanted.parameters)
    for name in ("norm.running_mean", "norm.running_var"):
        np.testing.assert_allclose(seen.recording.state[name], after[name], rtol=1e-14)
    np.testing.assert_allclose(
        seen.recording.inputs[0], wanted.inputs[0], rtol=1e-12, atol=1e-15
    )


class Biased(Deep):
    """Its running statistics move twice as fast."""

    def __init__(self):
        super().__init__()
        self.norm = self.nn.BatchNorm1d(4, momentum=0.2)


def test_statistics_differ_in_training_only(backend):
    found = modes(made(Deep), made(Biased, backend))
    assert not found["train"].agrees
    assert found["eval"].agrees
    level = semantics.level(found)
    assert level.status == FAILED
    assert [(finding.what, finding.mode) for finding in level.findings] == [
        ("statistics", "train")
    ]
    assert level.findings[0].place in ("norm.running_mean", "norm.running_var")


class Twice(Plain):
    """The gradient of its first layer is twice as large; all values are right."""

    def forward(self, x):
        hidden = self.nn.tanh(self.one(x))
        return self.two(x + 2.0 * hidden - self.nn.stop_gradient(hidden))


def test_gradients_alone_may_differ(backend):
    found = modes(made(Plain), made(Twice, backend))["train"]
    assert found.differences["output"].difference < 1e-13
    assert found.differences["loss"].difference < 1e-13
    assert found.differences["gradients"].difference == pytest.approx(1.0, rel=1e-9)
    assert found.differences["gradients"].worst.startswith("one.")
    assert found.differences["gradient of the input"].difference > 1e-3


class OwnCall(torch.nn.Module):
    """Has a ``__call__`` of its own, which no hook of PyTorch sees."""

    times = 2.0

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def __call__(self, x):
        return self.fc(x) * self.times


@pytest.mark.parametrize(("times", "proved"), [(2.0, True), (2.5, False)])
def test_a_class_with_a_call_of_its_own_is_judged_by_its_loss(times, proved):
    other = OwnCall()
    other.times = times
    batch = np.random.default_rng(0).standard_normal((6, 4)), np.arange(6) % 3
    assert compare(OwnCall(), other, batch, weights="load").proved is proved


def call(output):
    return Call(None, (), {}, output)


@pytest.mark.parametrize(
    ("outputs", "loss", "words"),
    [
        ({"a": np.ones(3), "": np.ones(2)}, 1.0, ""),
        (
            {"a": np.array([1.0, np.nan, np.nan]), "": np.full(2, np.nan)},
            np.nan,
            "a: 2 of 3 elements",
        ),
        ({"a": np.array([1.0, -np.inf]), "": np.ones(2)}, 1.0, ""),
        ({"a": np.array([1.0, -np.inf]), "": np.ones(2)}, np.inf, "a: 1 of 2 elements"),
        (
            {"a": np.ones(2), "": np.array([np.nan])},
            1.0,
            "the network: 1 of 1 elements",
        ),
        ({"a": np.ones(2, int), "": np.ones(1)}, np.nan, "the loss"),
    ],
)
def test_the_first_block_that_is_not_finite(outputs, loss, words):
    found = semantics.not_finite(
        Recording(loss, {Tap(name): call(output) for name, output in outputs.items()})
    )
    assert found.startswith(words)
    assert bool(found) == bool(words)


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("float64", ""),
        ("int32", ""),
        ("bool", ""),
        ("float32", "a gives float32"),
        ("float16", "a gives float16"),
    ],
)
def test_the_first_block_that_gives_a_shorter_type(dtype, words):
    outputs = {
        "first": call({"x": np.ones(2)}),
        "a": call((None, np.ones(3, dtype))),
        "b": call(np.ones(2, "float32")),
    }
    if not words:
        outputs.pop("b")
    recording = Recording(1.0, {Tap(name): one for name, one in outputs.items()})
    assert semantics.short(recording, ()) == words


class Far(Network):
    """A difference of numbers of ten millions: it magnifies the last bit of a bias."""

    factor = 1.0

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x) - 1e7


class Halves(Far):
    """The same in another order of sums."""

    def forward(self, x):
        return (self.fc(2.0 * x) * 0.5 + self.fc(0.0 * x) * 0.5 - 1e7) * self.factor


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "proved"), (1.0 + 1e-6, "diverges")]
)
def test_rounding_that_a_network_magnifies_is_no_difference_and_a_factor_is(
    backend, factor, verdict
):
    sides = made(Far), made(type("Halves", (Halves,), {"factor": factor}), backend)
    for side in sides:
        side.load_neutral_state({"fc.bias": np.full(3, 1e7)}, strict=False)
    proof = compare(*sides, batch(), levels=("L0", "L1"))
    assert proof.verdict == verdict, str(proof)
    assert proof.level("L1").worst > 1e-10
    assert ("Rounding is magnified here" in str(proof)) == (verdict == "proved")
    assert ("; errors in the last bit" in proof.headline) == (verdict == "proved")


class Certain(torch.nn.Module):
    """A softmax that is certain; in a port it is written out."""

    def __init__(self, scale, written_out=False, error=0.0):
        super().__init__()
        self.fc, self.scale = torch.nn.Linear(6, 3), scale
        self.written_out, self.error = written_out, error

    def forward(self, x):
        z = self.scale * self.fc(x)
        if not self.written_out:
            return torch.softmax(z, 1)
        e = torch.exp(z - z.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True) + self.error


@pytest.mark.parametrize("error", [0.0, 1e-7])
def test_what_cancels_in_the_gradient_of_a_certain_softmax_is_rounding(error):
    torch.manual_seed(0)
    batch = np.random.default_rng(0).normal(size=(5, 6)), np.arange(5) % 3
    sides = Certain(80.0), Certain(80.0, True, error)
    found = compare(*sides, batch, weights="load", levels=("L0", "L1"))
    assert found.proved == (error == 0.0), found
