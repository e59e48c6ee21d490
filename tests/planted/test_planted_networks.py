"""Every planted mistake of layers, losses, wiring and weights is found where it is and nowhere
else, and explained; right subjects are proved."""

import warnings

import pytest

from deliralike.conformance import compare
from tests.planted import (
    attention,
    convolution,
    dropout,
    losses,
    normalization,
    sequence,
    weights,
    wiring,
)
from tests.planted.fixtures import FIXTURES, fixture

MODULES = (
    normalization,
    convolution,
    dropout,
    attention,
    sequence,
    losses,
    wiring,
    weights,
)
MISTAKES = [mistake for module in MODULES for mistake in module.MISTAKES]
# A mistake is written once, and looked for on PyTorch; what depends on how a backend rounds or ties
# on Chainer as well. JAX compiles two programs for each, and is in the tests of each cause.
ON_CHAINER = {
    "tied network: ties take one gradient",
    "attention: padding mask inverted",
}
LEVELS = ("L0", "L1", "L3")


def cases():
    for mistake in MISTAKES:
        for name in ("torch", "chainer") if mistake.name in ON_CHAINER else ("torch",):
            yield pytest.param(mistake, name, id=f"{mistake.name}-{name}")


@pytest.mark.parametrize(("mistake", "name"), list(cases()))
def test_a_mistake_is_found_where_it_is_and_nowhere_else(mistake, name):
    (reference, batch), (right, _) = (
        fixture(mistake.fixture, one) for one in ("torch", name)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mistaken network may divide by zero
        findings = compare(
            reference, mistake.plant(right), batch, levels=LEVELS
        ).findings
    located = [finding for finding in findings if finding.level in ("L0", "L3")]
    assert located
    for finding in located:
        place = f"{finding.place} {finding.kind} {finding.what}"
        assert any(text in place for text in mistake.place), finding
        explanation = finding.explanation
        assert explanation is None or explanation.known, finding
        cause = (
            finding.what if explanation is None else explanation.cause
        )  # of names and shapes
        assert any(text in cause for text in mistake.cause), finding


@pytest.mark.parametrize("name", FIXTURES)
def test_right_subjects_are_proved(name):
    (reference, batch), (candidate, _) = (
        fixture(name, one) for one in ("torch", "chainer")
    )
    assert compare(reference, candidate, batch, levels=LEVELS).proved


def test_mistakes_have_names_of_their_own():
    names = {mistake.name for mistake in MISTAKES}
    assert len(names) == len(MISTAKES) > 18
    assert ON_CHAINER <= names
    assert {mistake.fixture for mistake in MISTAKES} == {*FIXTURES}
