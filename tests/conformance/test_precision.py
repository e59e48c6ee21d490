"""Level L2: how exact both sides are in float32 is said in words, and makes no verdict."""

import numpy as np
import pytest
import torch

from deliralike import Network
from deliralike.conformance import compare
from deliralike.conformance.levels import precision
from deliralike.conformance.subject import Subject
from tests.conformance.small import Plain, TorchNet, batch, get, made

LEVELS = ("L0", "L1", "L2", "L3")


def wrapped(kind):
    network = get("torch").wrap(kind().double())
    network.load_neutral_state(made(Plain).neutral_state())
    return network


class Half(TorchNet):
    """Rounds to bfloat16 in a run in float32; in float64 it is right."""

    def forward(self, x):
        hidden = self.one(x)
        hidden = hidden.bfloat16().to(x.dtype) if x.dtype == torch.float32 else hidden
        return self.two(x + torch.tanh(hidden))


class OnePass(Network):
    """A variance as E[x²] - E[x]², of numbers whose mean is a hundred deviations."""

    in_one_pass = True

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        x = x + 100.0
        mean = self.nn.mean(x, 1, keepdim=True)
        if self.in_one_pass:
            variance = self.nn.mean(x * x, 1, keepdim=True) - mean * mean
        else:
            variance = self.nn.mean((x - mean) * (x - mean), 1, keepdim=True)
        return self.fc((x - mean) / (variance + 0.1) ** 0.5)


class TwoPasses(OnePass):
    in_one_pass = False


def test_a_right_port_that_is_less_exact_in_float32_is_proved_and_it_is_said(backend):
    proof = compare(made(TwoPasses), made(OnePass, backend), batch(), levels=LEVELS)
    assert proof.proved
    level = proof.level("L2")
    (line,) = level.notes
    assert (level.status, level.worst, level.findings) == ("measured", None, ())
    assert "times less exact than the reference's" in line
    assert line in str(proof)
    errors = level.figures["float32"]["outputs"]
    assert errors["candidate"]["output"] > 10 * errors["reference"]["output"]


def test_a_port_that_is_as_exact_is_called_so(backend):
    proof = compare(made(Plain), made(Plain, backend), batch(), levels=LEVELS)
    (line,) = proof.level("L2").notes
    assert line.startswith("Float32 outputs are as exact as the reference's (")
    assert "Float32 gradients are as exact as the reference's (" in line
    assert "z " not in str(proof)


def test_a_shorter_type_on_the_way_is_said_and_a_wrong_value_in_float64_diverges():
    proof = compare(made(Plain), wrapped(Half), batch(), levels=LEVELS)
    assert proof.proved and "times less exact" in proof.level("L2").notes[0]

    class Wrong(Half):
        def forward(self, x):
            return super().forward(x) * (1.0 + 1e-9)

    proof = compare(made(Plain), wrapped(Wrong), batch(), levels=LEVELS)
    assert proof.diverges
    assert proof.level("L2").status == "not needed"


def test_the_figures_are_relative_errors_of_float32():
    """Against NumPy."""
    reference, (x, labels) = made(Plain), batch()
    found = precision.level(Subject(reference), Subject(made(Plain)), (x, labels))
    state = {name: v.astype(np.float32) for name, v in reference.neutral_state().items()}
    outputs = []
    for kind in (np.float64, np.float32):
        one, two, bias, shift, given = (
            part.astype(kind)
            for part in (
                state["one.weight"],
                state["two.weight"],
                state["one.bias"],
                state["two.bias"],
                x.astype(np.float32),
            )
        )
        outputs.append((given + np.tanh(given @ one.T + bias)) @ two.T + shift)
    wanted = np.linalg.norm(outputs[1] - outputs[0]) / np.linalg.norm(outputs[0])
    for side in ("reference", "candidate"):
        error = found.figures["float32"]["outputs"][side]["output"]
        assert wanted / 5 < error < wanted * 5


class Doubling(TorchNet):
    """Cannot run in float32."""

    def forward(self, x):
        return self.two(x + torch.tanh(self.one(x)).double())


@pytest.mark.parametrize("side", ["reference", "candidate"])
def test_a_side_that_raises_in_float32_is_said(side):
    pair = [wrapped(TorchNet), wrapped(TorchNet)]
    pair[side == "candidate"] = wrapped(Doubling)
    proof = compare(*pair, batch(), levels=LEVELS)
    assert proof.proved
    (line,) = proof.level("L2").notes
    assert line.startswith(f"The {side} raises RuntimeError: ") and "in float32" not in line


class Safe(Network):
    """The logarithm of a softmax."""

    def __init__(self):
        super().__init__()
        self.fc = self.nn.Linear(4, 3)

    def forward(self, x):
        return self.nn.log_softmax(self.fc(x) * 120.0, dim=1)


class Unsafe(Safe):
    """The same, by a sum that float32 cannot hold."""

    def forward(self, x):
        y = self.fc(x) * 120.0
        return y - self.nn.log(self.nn.sum(self.nn.exp(y), 1, keepdim=True))


def test_an_overflow_in_float32_is_said(backend):
    proof = compare(made(Safe), made(Unsafe, backend), batch(), levels=("L1", "L2"))
    assert proof.proved
    assert "Float32 outputs are not finite, other than the reference's." in str(proof)
