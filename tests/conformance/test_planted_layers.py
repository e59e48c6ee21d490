"""Every planted mistake of layers, losses and wiring shows, and is the same mistake on every backend."""

import os

import numpy as np
import pytest

from deliralike import random
from deliralike.conformance.agreement import compare
from deliralike.conformance.planted import (
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
from deliralike.conformance.planted.fixtures import FIXTURES, fixture
from tests.conftest import BACKENDS

GROUPS = [normalization, convolution, activation, dropout, attention, sequence, losses, wiring, weights, precision]
MISTAKES = [mistake for group in GROUPS for mistake in group.MISTAKES]
SHOWN = 1e-9
QUICK, EACH = BACKENDS[:2], 8  # on the other backends, slower by a hundred times, each eighth mistake
STRIDE = 1 if os.environ.get("DELIRALIKE_TEST_MISTAKES") == "all" else EACH


@pytest.fixture(autouse=True)
def uncompiled():
    """JAX op by op: the operations of a fixture are compiled once for all of its mistakes."""
    if "jax" not in BACKENDS:
        yield
        return
    import jax

    with jax.disable_jit():
        yield


def observed(subject, batch):
    """All that two candidates may differ in, by name."""
    network, backend = subject.network, subject.network.backend
    before = network.neutral_state()
    inputs = backend.prepare(batch, network)
    with random.portable(0):
        with network.training_mode(False):
            found = {"outputs": backend.to_numpy(network(inputs[0]))}
            found["loss in evaluation"] = backend.number(subject.loss(network, *inputs))
            moved = {f"{name} in evaluation": value for name, value in network.neutral_state().items()}
        with network.training_mode(True):
            gradients = backend.gradients(subject.loss, network, *batch)
    found |= moved | {"loss": gradients.loss, "gradient of the input": gradients.inputs[0]}
    found |= {f"gradient of {name}": value for name, value in gradients.parameters.items()}
    found |= network.neutral_state()
    network.load_neutral_state(before)
    return found


_right = {}


def right(name, backend):
    """A right subject, its batch, and what it computes."""
    if (name, backend) not in _right:
        subject, batch = fixture(name, backend)
        _right[name, backend] = subject, batch, observed(subject, batch)
    return _right[name, backend]


@pytest.mark.parametrize("name", FIXTURES)
def test_right_subjects_agree_on_every_backend(name):
    first, *others = (right(name, backend)[2] for backend in BACKENDS)
    for other in others:
        assert compare(first, other).difference < 1e-10


@pytest.mark.parametrize("number", range(len(MISTAKES)), ids=lambda number: MISTAKES[number].name)
def test_each_mistake_shows_and_is_the_same_on_every_backend(number):
    mistake, found = MISTAKES[number], []
    for backend in QUICK if number % STRIDE else BACKENDS:
        subject, batch, expected = right(mistake.fixture, backend)
        mistaken = mistake.plant(subject)
        with np.errstate(all="ignore"):  # some have exponentials that overflow
            found.append(observed(mistaken, batch))
        assert compare(expected, found[-1]).difference > SHOWN
        ours, theirs = subject.network.neutral_state(), mistaken.network.neutral_state()
        assert [(name, value.shape) for name, value in ours.items()] == [(n, v.shape) for n, v in theirs.items()]
        if mistake.group != "weights":
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    for other in found[1:]:
        if mistake.group != "precision":  # whose digits are noise
            assert compare(found[0], other).difference < 1e-9


@pytest.mark.parametrize("name", FIXTURES)
def test_right_subjects_stay_right(name):
    """After all has been planted in copies of them."""
    for backend in BACKENDS:
        subject, batch, expected = right(name, backend)
        assert compare(expected, observed(subject, batch)).difference == 0.0


def test_mistakes_have_names_of_their_own():
    names = [mistake.name for mistake in MISTAKES]
    assert len(names) == len(set(names))
