"""Common causes between two arrays, and causes of other weights."""

import numpy as np
import pytest

from deliralike.conformance.explain.relations import nearest
from deliralike.conformance.explain.weights import explain_weights
from tests.conformance.accusing import numbers

X = numbers(2, 3, 4, 5, seed=1)
INPUT = numbers(2, 3, 4, 5, seed=2)


@pytest.mark.parametrize(
    ("candidate", "cause"),
    [
        (X * 0.37, "scaled: times 0.37"),
        (X / 3, "scaled: times 0.333333"),
        (0 * X + 2, "all 2, as at a fresh start"),
        (-X, "negated"),
        (X + 0.25, "plus 0.25"),
        (0 * X, "zero"),
        (X.transpose(0, 1, 3, 2), "axes permuted to (0, 1, 3, 2)"),
        (
            X.transpose(0, 2, 3, 1).reshape(2, -1),
            "axes permuted to (0, 2, 3, 1), then reshaped",
        ),
        (X.reshape(2, -1), "reshaped"),
        (X[:, ::-1], "reversed along axis 1"),
        (X[:, [1, 2, 0]], "axis 1 in the order [1, 2, 0]"),
        (np.maximum(X, 0), "relu of it"),
        (np.tanh(X), "tanh of it"),
        (None, "missing"),
        (X * np.nan, "not finite"),
    ],
)
def test_the_relation_is_named(candidate, cause):
    found = nearest(X, candidate)
    assert found.distance <= 1e-8
    assert found.cause.startswith(cause)


@pytest.mark.parametrize("size", [1e-2, 1e-6])
def test_noise_is_no_relation(size):
    found = nearest(X, X + size * INPUT * numbers(2, 3, 4, 5, seed=4))
    assert found.distance > 1e-3 * size


# Weights
# -----------------------------------------------------------------------------

KERNEL = numbers(4, 4, 3, 3, seed=5)
GATES = numbers(8, 3, seed=6)


@pytest.mark.parametrize(
    ("reference", "candidate", "cause"),
    [
        (KERNEL, KERNEL[:, :, ::-1, ::-1], "kernel flipped"),
        (KERNEL, KERNEL.transpose(1, 0, 2, 3), "axes permuted to (1, 0, 2, 3)"),
        (KERNEL, KERNEL.transpose(2, 3, 1, 0), "axes permuted to (2, 3, 1, 0)"),
        (KERNEL[0, 0], KERNEL[0, 0].T, "transposed"),
        (
            GATES,
            np.concatenate([GATES[:4], GATES[6:], GATES[4:6]]),
            "axis 0 in the order [0, 1, 2, 3, 6, 7, 4, 5]",
        ),
        (GATES, GATES * 0.1, "scaled: times 0.1"),
        (GATES, 0 * GATES, "zero"),
    ],
)
def test_causes_of_other_weights(reference, candidate, cause):
    ((name, found),) = explain_weights(
        {"w": reference, "b": X}, {"w": candidate, "b": X}
    )
    assert name == "w"
    assert found.known
    assert found.cause.startswith(cause)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_another_start_is_no_cause_but_something_to_look_at(scale):
    other = scale * numbers(4, 4, 3, 3, seed=7)
    ((_, found),) = explain_weights({"w": KERNEL}, {"w": other})
    assert not found.known
    assert f"spread {other.std():.3g} instead of {KERNEL.std():.3g}" in str(found)


def test_exchanged_tensors_are_named():
    one, two = numbers(3, 3, seed=8), numbers(3, 3, seed=9)
    found = dict(explain_weights({"a": one, "b": two}, {"a": two, "b": one}))
    assert found["a"].cause == "holds b (exchanged)"
    assert found["b"].cause == "holds a (exchanged)"


def test_disturbed_weights_have_no_known_cause():
    ((_, found),) = explain_weights(
        {"w": KERNEL}, {"w": KERNEL + 1e-5 * numbers(4, 4, 3, 3, seed=7)}
    )
    assert not found.known


def test_equal_weights_have_nothing_to_explain():
    assert explain_weights({"w": KERNEL}, {"w": KERNEL + 0.0}) == []
