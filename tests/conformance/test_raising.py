"""Errors that a network raises: each is the finding, with its text and place, and nothing else."""

import inspect

import numpy as np
import pytest
import torch

from deliralike import Network
from deliralike.backends.chainer.arrays import chainer
from deliralike.conformance import compare
from deliralike.conformance.explain import substitution
from deliralike.errors import ProofFailed
from tests.conformance.small import batch, made

MODES = {"train": True, "eval": False}


class Block(Network):
    """A layer that nothing raises in."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = self.nn.Linear(4, 4), self.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.nn.tanh(self.fc(x)))


class Outer(Network):
    """Two blocks and a head."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = Block(), self.block(), self.nn.Linear(4, 3)

    block = Block

    def forward(self, x):
        return self.head(self.second(self.first(x)))


class Unknown(Block):
    """Calls what `nn` has not, in training."""

    mode = True

    def forward(self, x):
        if self.training is self.mode:
            return self.nn.no_such_function(x)  # the line
        return super().forward(x)


class UnknownInEvaluation(Unknown):
    mode = False


KINDS = {"train": Unknown, "eval": UnknownInEvaluation}


def raising(mode):
    return type("Outer", (Outer,), {"block": KINDS[mode]})


def line_of(function, text="# the line"):
    lines, first = inspect.getsourcelines(function)
    return first + next(at for at, line in enumerate(lines) if text in line)


HERE = f"test_raising.py:{line_of(Unknown.forward)}, in forward"


@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_the_candidate_is_the_finding(backend, mode):
    candidate = made(raising(mode), backend)
    proof = compare(made(Outer), candidate, batch(), levels=("L0", "L1", "L3"))
    (finding,) = proof.findings
    assert proof.headline.startswith(
        f"DIVERGES at second ({KINDS[mode].__name__}), raises UnknownOperation: "
    )
    assert "self.nn has no 'no_such_function'" in proof.headline
    assert proof.headline.endswith(f"{HERE}.")
    assert (finding.level, finding.mode, finding.explanation) == ("L1", mode, None)
    assert proof.level("L3").status == "not needed"
    assert "Dropout" not in str(proof)


@pytest.mark.parametrize("mode", MODES)
def test_an_error_of_the_reference_ends_the_comparison(backend, mode):
    with pytest.raises(
        ProofFailed, match=f"in {mode} mode.*no_such_function.*in second"
    ) as caught:
        compare(
            made(raising(mode), backend),
            made(Outer, "chainer"),
            batch(),
            levels=("L0", "L1"),
        )
    assert HERE in str(caught.value)


# In the backward pass
# -----------------------------------------------------------------------------


class OnTorch(torch.autograd.Function):
    """The identity without a derivative."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        raise ZeroDivisionError("planted")


class Backward(Block):
    """Raises in its backward pass."""

    def forward(self, x):
        return OnTorch.apply(super().forward(x))


def test_an_error_of_the_backward_pass_is_the_finding():
    other = type("Outer", (Outer,), {"block": Backward})
    proof = compare(made(Outer), made(other), batch(), levels=("L0", "L1", "L3"))
    assert proof.headline.startswith(
        "DIVERGES at the network, raises ZeroDivisionError: planted (in the backward pass), train."
    )
    assert "test_raising.py:" in proof.headline
    assert {finding.level for finding in proof.findings} == {"L1"}


def test_an_error_of_a_loss_is_named_as_that():
    def loss(network, x, labels):
        network(x)
        raise ZeroDivisionError("planted")

    with pytest.raises(
        ProofFailed, match="ZeroDivisionError: planted .in loss at .*test_raising.py"
    ):
        compare(made(Outer), made(Outer), batch(), loss=loss, levels=("L0", "L1"))


# Native candidates
# -----------------------------------------------------------------------------


class Layer(torch.nn.Module):
    """A linear layer that is given one feature too many in training."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)

    def forward(self, x):
        if self.training:
            x = torch.cat([x, x[:, :1]], 1)
        return self.drop(self.fc(x))


class Right(Layer):
    """The same without the mistake."""

    def forward(self, x):
        return self.drop(self.fc(x))


class Link(chainer.Chain):
    """The same on Chainer."""

    def __init__(self):
        super().__init__()
        with self.init_scope():
            self.fc = chainer.links.Linear(4, 3)

    def forward(self, x):
        if chainer.config.train:
            x = chainer.functions.concat([x, x[:, :1]], 1)
        return chainer.functions.dropout(self.fc(x))


@pytest.mark.parametrize(
    ("candidate", "error"), [(Layer, "RuntimeError"), (Link, "InvalidType")]
)
def test_an_error_of_a_framework_names_the_layer_and_the_line_that_called_it(
    candidate, error
):
    proof = compare(
        Right(), candidate(), batch(), weights="load", levels=("L0", "L1", "L3")
    )
    assert proof.headline.startswith(f"DIVERGES at fc (Linear), raises {error}: ")
    line = line_of(candidate.forward, "self.fc(x)")
    assert proof.headline.endswith(f"test_raising.py:{line}, in forward.")
    assert "ropout" not in str(proof)  # which the candidate does not get to
    assert {finding.mode for finding in proof.findings} == {"train"}
    assert np.isfinite(proof.level("L1").figures["differences"]["eval, output"])


# What we try ourselves
# -----------------------------------------------------------------------------


class Slower(Block):
    """With another activation."""

    def forward(self, x):
        return self.drop(self.nn.sigmoid(self.fc(x)))


def test_an_explanation_that_fails_is_a_line_of_the_report(monkeypatch):
    def broken(*given):
        raise ValueError("operands could not be broadcast")

    monkeypatch.setattr(substitution, "explain", broken)
    other = type("Outer", (Outer,), {"block": Slower})
    proof = compare(
        made(Outer), made(other, "chainer"), batch(), levels=("L0", "L1", "L3")
    )
    assert proof.headline.startswith("DIVERGES at second (")
    assert "raises" not in str(proof)
    assert (
        "An explanation of second failed and was left out: ValueError: operands could not be "
        "broadcast."
    ) in proof.level("L3").notes
