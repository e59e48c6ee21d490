"""Level L7: planted mistakes are detected, located and explained; right pairs give no alarm."""

import itertools

import numpy as np
import pytest

from deliralike import Network
from deliralike.conformance.levels import probes
from deliralike.conformance.subject import Subject
from deliralike.training import classification_loss
from tests.conformance.judging import assert_said
from tests.planted import probes as planted
from tests.planted.fixtures import CLASS_WEIGHTS, FIXTURES, IGNORED, fixture


@pytest.mark.parametrize("mistake", planted.MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_detected_located_and_explained(mistake):
    (reference, batch), (right, _) = (
        fixture(mistake.fixture, "torch"),
        fixture(mistake.fixture, "chainer"),
    )
    level = probes.level(reference, mistake.plant(right), batch)
    assert_said(level, mistake)


# The mistake, and what its loss gives for labels that are all to be ignored: 0 / 0, and the loss of
# class 4, whose logits are given.
ALL_IGNORED = [
    ("nothing but ignored labels is NaN", lambda losses: np.nan),
    ("ignored labels are the last class", lambda losses: losses[:, 4].mean()),
]


@pytest.mark.parametrize(("name", "wanted"), ALL_IGNORED)
def test_a_planted_loss_is_another_one_for_ignored_labels_alone(name, wanted):
    subject, (x, labels) = fixture("convolutional", "torch")
    mistake = next(each for each in planted.MISTAKES if each.name == f"probe: {name}")
    backend, network = subject.network.backend, subject.network
    with network.training_mode(False):
        logits = backend.numpy(network(*backend.prepare((x,), network)))
        ordinary, ignored = (
            backend.number(mistake.plant(subject).loss(network, *backend.prepare((x, y), network)))
            for y in (np.abs(labels) % 5, np.full_like(labels, IGNORED))
        )
    losses = np.log(np.exp(logits).sum(1, keepdims=True)) - logits  # (samples, classes)
    chosen = np.abs(labels) % 5
    weights = CLASS_WEIGHTS[chosen]
    expected = (weights * losses[np.arange(len(chosen)), chosen]).sum() / weights.sum()
    np.testing.assert_allclose(ordinary, expected, rtol=1e-12)
    np.testing.assert_allclose(ignored, wanted(losses), rtol=1e-12)


def test_there_are_as_many_mistakes_as_names():
    assert len({mistake.name for mistake in planted.MISTAKES}) == len(planted.MISTAKES) >= 15


@pytest.mark.parametrize("name", [name for name in FIXTURES if name != "unet"])
def test_right_pairs_give_no_alarm(name):
    (reference, batch), (candidate, _) = fixture(name, "torch"), fixture(name, "chainer")
    before = candidate.network.neutral_state()
    level = probes.level(reference, candidate, batch)
    assert level.status == "passed", level.findings
    after = candidate.network.neutral_state()
    assert all(np.array_equal(before[each], after[each]) for each in before)


def test_a_right_pair_with_jax_gives_no_alarm():
    (reference, batch), (candidate, _) = fixture("vectors", "torch"), fixture("vectors", "jax")
    level = probes.level(reference, candidate, batch)
    assert level.status == "passed", level.findings
    assert "batch of one" in level.figures
    assert "index -1 among the inputs" not in level.figures


def test_probes_that_do_not_fit_are_named_and_not_counted():
    (reference, batch), (candidate, _) = fixture("tasks", "torch"), fixture("tasks", "chainer")
    level = probes.level(reference, candidate, batch)
    assert (
        "not applicable, there is nothing of the kind: whole numbers among the inputs"
        in level.notes
    )
    assert (
        "not applicable, there is nothing of the kind: a label that the loss ignores" in level.notes
    )
    assert not any(
        "index" in name or "ignored" in name or "padding" in name for name in level.figures
    )
    (reference, batch), (candidate, _) = (
        fixture("recurrent", "torch"),
        fixture("recurrent", "chainer"),
    )
    level = probes.level(reference, candidate, batch)
    assert "not applicable, there is nothing of the kind: floating inputs" in level.notes
    assert {"index 1000000 among the inputs", "index -1 among the inputs"} <= level.figures.keys()


def test_the_loss_in_far_numbers_is_bounded_by_rounding_alone():
    """A variance in one pass is beyond the bound; two passes are within it by decades."""
    (reference, batch), (candidate, _) = fixture("far", "torch"), fixture("far", "chainer")
    right = probes.level(reference, candidate, batch).figures[
        "inputs with a mean of 1e4 deviations"
    ]["difference"]
    mistake = next(each for each in planted.MISTAKES if "batch norm" in each.name)
    level = probes.level(reference, mistake.plant(candidate), batch)
    found = {finding.place: finding.difference for finding in level.findings}
    assert found["inputs with a mean of 1e4 deviations"] > 1e2 * right


def test_zeros_are_made_at_the_very_layer():
    (reference, batch), (candidate, _) = fixture("vectors", "torch"), fixture("vectors", "chainer")
    mistake = next(each for each in planted.MISTAKES if each.name == "probe: relu'(0) = 1")
    findings = probes.level(reference, mistake.plant(candidate), batch).findings
    found = {finding.place: finding.what for finding in findings}
    assert found["zeros out of norm"].startswith("gradient of ")
    assert "zeros out of fc" not in found
    assert {finding.mode for finding in findings if finding.place == "zeros out of norm"} == {
        "train"
    }


class DeepNorms(Network):
    """Each batch norm magnifies the rounding of equal samples by one over the root of its
    epsilon."""

    def __init__(self):
        super().__init__()
        widths = (3, 7, 5, 7)
        pairs = itertools.pairwise(widths)
        self.layers = self.nn.ModuleList([self.nn.Linear(one, other) for one, other in pairs])
        self.norms = self.nn.ModuleList([self.nn.BatchNorm1d(width) for width in widths[1:]])
        self.fc = self.nn.Linear(widths[-1], 4)

    def forward(self, x):
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = self.nn.relu(norm(self.rounded(layer(x))))
        return self.fc(x)

    def rounded(self, x):
        return x


class OtherRounding(DeepNorms):
    """The same but for the last bit, of which each sample gets another."""

    def rounded(self, x):
        beside = x.new_tensor(range(len(x)))[:, None] * 0.1
        return x + beside - beside


def test_what_is_rounding_and_nothing_else_is_not_judged():
    """At constant inputs, batch norms divide zero by nearly zero: gradients of the two are decades
    apart."""
    sides = [
        Subject(of.on("torch", dtype="float64", seed=3)(), classification_loss)
        for of in (DeepNorms, OtherRounding)
    ]
    batch = np.random.default_rng(0).normal(size=(5, 3)), np.array([0, 1, 2, 3, 1])
    level = probes.level(*sides, batch)
    assert not [finding for finding in level.findings if finding.place == "constant inputs"]
    assert any("constant inputs: decided by rounding, not judged" in note for note in level.notes)
    assert level.figures["constant inputs"]["difference"] < 1e-9
