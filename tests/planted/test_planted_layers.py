"""Every planted mistake of layers, losses and wiring shows, and is the same mistake on every
backend."""

from functools import cache

import numpy as np
import pytest

from deliralike import random
from deliralike.conformance.agreement import compare
from tests.conftest import BACKENDS
from tests.planted import (
    activation,
    attention,
    convolution,
    dropout,
    losses,
    normalization,
    precision,
    sequence,
    weights,
    wiring,
)
from tests.planted.fixtures import FIXTURES, fixture

GROUPS = {
    module.__name__.rpartition(".")[2]: module.MISTAKES
    for module in (
        normalization,
        convolution,
        activation,
        dropout,
        attention,
        sequence,
        losses,
        wiring,
        weights,
        precision,
    )
}
MISTAKES = [mistake for group in GROUPS.values() for mistake in group]
SHOWN = 1e-9
FIRST, *OTHERS = BACKENDS
SLOW = "jax"  # compiles each network anew: one mistake of each group


def observed(subject, batch):
    """All that two candidates may differ in, by name."""
    network, backend = subject.network, subject.network.backend
    before = network.neutral_state()
    inputs = backend.prepare(batch, network)
    with random.portable(0):
        with network.training_mode(False):
            found = {"outputs": backend.to_numpy(network(inputs[0]))}
            found["loss in evaluation"] = backend.number(subject.loss(network, *inputs))
            moved = {
                f"{name} in evaluation": value for name, value in network.neutral_state().items()
            }
        with network.training_mode(True):
            gradients = backend.gradients(subject.loss, network, *batch)
    found |= moved | {"loss": gradients.loss, "gradient of the input": gradients.inputs[0]}
    found |= {f"gradient of {name}": value for name, value in gradients.parameters.items()}
    found |= network.neutral_state()
    network.load_neutral_state(before)
    return found


@cache
def right(name, backend):
    """A right subject, its batch, and what it computes."""
    subject, batch = fixture(name, backend)
    return subject, batch, observed(subject, batch)


@cache
def wrong(mistake, backend):
    """What the candidate with a mistake computes, and how it is not as it is to be."""
    subject, batch, expected = right(mistake.fixture, backend)
    mistaken = mistake.plant(subject)
    with np.errstate(all="ignore"):  # some have exponentials that overflow
        found = observed(mistaken, batch)
    said = []
    if not compare(expected, found).difference > SHOWN:
        said.append("does not show")
    ours, theirs = subject.network.neutral_state(), mistaken.network.neutral_state()
    if [(name, value.shape) for name, value in ours.items()] != [
        (n, v.shape) for n, v in theirs.items()
    ]:
        said.append("has other names or shapes")
    elif mistake.group != "weights" and not all(
        np.array_equal(ours[name], theirs[name]) for name in ours
    ):
        said.append("has other weights")
    return found, [f"{mistake.name} on {backend} {text}" for text in said]


def assert_right_subjects_stay_right(mistakes, backend):
    """After all has been planted in copies of them."""
    for name in {mistake.fixture for mistake in mistakes}:
        subject, batch, expected = right(name, backend)
        assert compare(expected, observed(subject, batch)).difference == 0.0, (name, backend)


def assert_the_same(mistakes, backend):
    """As on the first backend."""
    said = [text for mistake in mistakes for text in wrong(mistake, backend)[1]]
    for mistake in mistakes:
        difference = compare(wrong(mistake, FIRST)[0], wrong(mistake, backend)[0]).difference
        if mistake.group != "precision" and not difference < 1e-9:  # whose digits are noise
            said.append(
                f"{mistake.name} is another mistake on {backend} than on {FIRST}, by {difference}"
            )
    assert not said, "\n".join(said)
    assert_right_subjects_stay_right(mistakes, backend)


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("name", FIXTURES)
def test_right_subjects_agree_on_every_backend(name, backend):
    assert compare(right(name, FIRST)[2], right(name, backend)[2]).difference < 1e-10


@pytest.mark.parametrize("group", GROUPS)
def test_each_mistake_shows(group):
    said = [text for mistake in GROUPS[group] for text in wrong(mistake, FIRST)[1]]
    assert not said, "\n".join(said)
    assert_right_subjects_stay_right(GROUPS[group], FIRST)


def first_of_each_kind(mistakes):
    """The first in each fixture."""
    found = {}
    for mistake in mistakes:
        found.setdefault((mistake.group, mistake.fixture), mistake)
    return list(found.values())


@pytest.mark.parametrize("backend", OTHERS)
@pytest.mark.parametrize("group", GROUPS)
def test_a_mistake_of_each_kind_is_the_same_on_every_backend(group, backend):
    first = first_of_each_kind(GROUPS[group])
    assert_the_same(first[:1] if backend == SLOW else first, backend)


def test_mistakes_have_names_of_their_own():
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names))
