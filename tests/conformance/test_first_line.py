"""The first line of a report says what is explained and matters."""

import numpy as np
import pytest

from deliralike import Network
from deliralike.conformance import compare

BATCH = (np.random.default_rng(0).standard_normal((5, 3)), np.array([0, 1, 2, 1, 0]))
LEVELS = ("L0", "L1", "L3")


class Normed(Network):
    def __init__(self, eps=1e-5, momentum=0.1, layer_eps=1e-5):
        super().__init__()
        nn = self.nn
        self.fc = nn.Linear(3, 4)
        self.bn = nn.BatchNorm1d(4, eps=eps, momentum=momentum)
        self.ln = nn.LayerNorm(4, eps=layer_eps)

    def forward(self, x):
        return self.ln(self.bn(self.fc(x)))


def found(candidate, **settings):
    reference = Normed.on("torch", seed=0)()
    return compare(reference, candidate, BATCH, levels=LEVELS, **settings)


def test_a_cause_that_is_known_comes_before_start_values_that_differ():
    proof = found(Normed.on("torch", seed=1)(eps=1e-3))
    assert proof.headline.startswith("DIVERGES at bn (BatchNorm1d)")
    assert "eps=0.001 instead of 1e-5" in proof.headline
    assert [finding.level for finding in proof.findings].count(
        "L0"
    ) == 2  # fc.weight and fc.bias


@pytest.mark.parametrize("backend", ["torch", "chainer"])
def test_what_changes_outputs_comes_before_statistics_that_training_moves(backend):
    proof = found(Normed.on(backend, seed=0)(momentum=0.2, layer_eps=1e-3))
    assert proof.headline.startswith("DIVERGES at ln (LayerNorm)")
    moved = next(finding for finding in proof.findings if finding.place == "bn")
    assert moved.effect == "No effect on evaluation outputs."
    assert proof.findings[0].effect != moved.effect
