"""Explanations of attention and of steps that are written out between layers, anew in NumPy."""

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance.explain import by_hand, steps
from deliralike.conformance.explain.wiring import Wiring
from tests.conformance.accusing import numbers
from tests.conformance.test_explain_layers import known

HEADS, GROUPS, SIZE, LENGTH = 4, 2, 4, 5
QUERIES = numbers(2, LENGTH, HEADS * SIZE, seed=1)
KEYS = numbers(2, LENGTH, GROUPS * SIZE, seed=2)
VALUES = numbers(2, LENGTH, GROUPS * SIZE, seed=3)


def in_heads(x, count):
    return x.reshape(2, LENGTH, count, SIZE).transpose(0, 2, 1, 3)


def rotated(x, pairs="halves", base=1e4, sign=1):
    """Complex numbers turned by position times frequency."""
    turn = np.exp(1j * sign * np.outer(np.arange(LENGTH), base ** (-np.arange(2) / 2)))
    if pairs == "halves":
        turned = (x[..., :2] + 1j * x[..., 2:]) * turn
        return np.concatenate([turned.real, turned.imag], -1)
    turned = (x[..., ::2] + 1j * x[..., 1::2]) * turn
    return np.stack([turned.real, turned.imag], -1).reshape(x.shape)


def scores(scale=0.5, future=0, tiled=False, turn=rotated, keys=KEYS):
    q, k = turn(in_heads(QUERIES, HEADS)), turn(in_heads(keys, GROUPS))
    k = np.tile(k, (1, 2, 1, 1)) if tiled else np.repeat(k, 2, 1)
    hidden = np.triu(np.ones((LENGTH, LENGTH), bool), 1 + future)
    return np.where(hidden, -np.inf, q @ k.transpose(0, 1, 3, 2) * scale)


def why(reference, candidate, **sources):
    return by_hand.explain(Wiring(sources, reference, candidate), backends.get("torch"))


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"scale": 0.25}, "scale 1/sqrt(16) (whole width) instead of 0.5"),
        ({"scale": 0.3}, "scale=0.3 instead of 0.5"),
        ({"future": 1}, "shows one token more"),
        ({"future": -1}, "the token itself where it is causal"),
        ({"future": LENGTH}, "mask missing"),
        ({"tiled": True}, "tiled instead of repeated"),
        (
            {"turn": lambda x: rotated(x, "pairs")},
            "neighbours (interleaved pairs) instead of halve",
        ),
        ({"turn": lambda x: rotated(x, base=1e3)}, "base of the rotary positions 1000"),
        ({"turn": lambda x: rotated(x, sign=-1)}, None),  # both are turned back: the same scores
        ({"turn": lambda x: x}, "nothing (no positions) instead of halves"),
        ({"keys": VALUES}, "keys from v instead of k"),
    ],
)
def test_scores(how, words):
    found = why(scores(), scores(**how), q=QUERIES, k=KEYS, v=VALUES)
    if words is None:
        words = "turn the other way"
    known(found, words)


def test_scores_that_are_masked_by_zeros():
    right = scores()
    wrong = np.where(np.isinf(right), 0.0, right)
    known(why(right, wrong, q=QUERIES, k=KEYS), "forbidden scores of 0")


@pytest.mark.parametrize("samples", [1, 2], ids=["one for all", "one for each sample"])
def test_scores_with_a_mask_that_is_no_band_are_left_to_other_explanations(samples):
    hidden = np.random.default_rng(6).random((samples, 1, LENGTH, LENGTH)) < 0.3
    right = np.where(hidden, -np.inf, scores(future=LENGTH))
    wrong = np.where(hidden, -np.inf, scores(scale=0.3, future=LENGTH))
    assert why(right, wrong, q=QUERIES, k=KEYS) is None


def test_projections_in_one_array():
    q, k, v = np.split(numbers(2, LENGTH, 3 * SIZE, seed=4), 3, -1)
    right, wrong = (q @ other.transpose(0, 2, 1) * 0.5 for other in (k, v))
    found = why(right, wrong, c_attn=np.concatenate([q, k, v], -1))
    known(found, "keys from c_attn, third 3 of 3")


def test_outputs_of_heads():
    weights = np.abs(numbers(2, HEADS, LENGTH, LENGTH, seed=5))
    y = weights @ np.repeat(in_heads(VALUES, GROUPS), 2, 1)
    right = y.transpose(0, 2, 1, 3).reshape(2, LENGTH, -1)
    tiled = weights @ np.tile(in_heads(VALUES, GROUPS), (1, 2, 1, 1))
    tiled = tiled.transpose(0, 2, 1, 3).reshape(right.shape)
    given = {"v": VALUES, "weights": weights}
    known(why(right, y.reshape(right.shape), **given), "merged wrongly")
    known(why(right, tiled, **given), "tiled instead of repeated")


def test_what_is_no_attention_has_no_cause():
    right = scores()
    assert why(right, right + 1e-3 * numbers(*right.shape), q=QUERIES, k=KEYS) is None
    noise = numbers(*right.shape, seed=7)
    assert why(noise, right, q=QUERIES, k=KEYS, v=VALUES) is None


# Steps of padded sequences
# -----------------------------------------------------------------------------

STATES, LENGTHS = numbers(4, 7, 3, seed=8), np.array([7, 4, 2, 5])
WORDS = numbers(4, 2, seed=9)


def handed_on(last, words=WORDS):
    return np.concatenate([words, STATES[np.arange(4), last]], 1)


@pytest.mark.parametrize(
    ("candidate", "words"),
    [
        (handed_on([6] * 4), "after the padding, [6, 6, 6, 6] instead of [6, 3, 1, 4]"),
        (handed_on(LENGTHS * 0), "the first of each, [0, 0, 0, 0]"),
        (handed_on(LENGTHS - 2), "1 before the last one of each length, [5, 2, 0, 3]"),
        (
            handed_on(LENGTHS - 2, WORDS * (LENGTHS / (LENGTHS - 1))[:, None]),
            "and means over as many",
        ),
    ],
)
def test_steps(candidate, words):
    known(steps.explain(Wiring({"gru": STATES}, handed_on(LENGTHS - 1), candidate)), words)


def test_other_differences_are_no_steps():
    right = handed_on(LENGTHS - 1)
    assert steps.explain(Wiring({"gru": STATES}, right, right + 1e-6)) is None
    assert steps.explain(Wiring({"gru": STATES}, right, handed_on([6] * 4, WORDS + 1))) is None
    assert steps.explain(Wiring({"gru": STATES > 0}, right > 0, right < 0)) is None
