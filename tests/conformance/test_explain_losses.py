"""Explanations of losses: the wrong ones are written anew, with gradients by hand or by differences of closed forms."""

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance.explain.losses import explain_loss
from tests.conformance.accusing import gradient, numbers

LOGITS = numbers(6, 4)
LABELS = np.array([0, 3, 2, -100, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def probabilities(z):
    e = np.exp(z)
    return e / e.sum(1, keepdims=True)


def both(loss, x):
    """A loss's value and gradient."""
    return float(np.real(loss(x.astype(complex)))), gradient(lambda tree: loss(tree[0]), (x,), "args[0]")


def entropy(z, labels=LABELS, weight=WEIGHT, divisor="weights", smoothing=0.0, p=probabilities):
    """Label by label, as it is written in the book."""
    total, weights, count = 0.0, 0.0, 0
    for row, label in zip(p(z), labels, strict=True):
        if label < 0:
            continue
        total = total - (1 - smoothing) * weight[label] * np.log(row[label])
        total = total - smoothing / 4 * sum(weight[c] * np.log(row[c]) for c in range(4))
        weights, count = weights + weight[label], count + 1
    return (
        total / {"weights": weights, "count": count, "all": len(labels), "one": 1.0, "batch and classes": 24}[divisor]
    )


def explained(loss, **settings):
    settings = {"weight": WEIGHT, "ignore_index": -100} | settings
    smoothing = settings.get("label_smoothing", 0.0)
    usual = both(lambda z: entropy(z, smoothing=smoothing), LOGITS)
    return explain_loss(LOGITS, LABELS, usual, both(loss, LOGITS), settings)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda z: entropy(z, divisor="one"), ["sum instead of mean"]),
        (lambda z: entropy(z, divisor="count"), ["class weights by count"]),
        (lambda z: entropy(z, divisor="all"), ["ignored labels in the denominator"]),
        (lambda z: entropy(z, weight=np.ones(4)), ["class weights missing"]),
        (lambda z: entropy(z, weight=1 / WEIGHT), ["class weights inverted"]),
        (lambda z: entropy(z, labels=np.where(LABELS < 0, 3, LABELS)), ["ignored labels counted as the last class"]),
        (lambda z: entropy(z, smoothing=0.1), ["label smoothing=0.1 instead of 0"]),
        (lambda z: entropy(z, smoothing=0.137), ["label smoothing=0.137"]),
        (lambda z: entropy(z, labels=np.where(LABELS < 0, LABELS, (LABELS + 1) % 4)), ["labels off by one (+1)"]),
        (lambda z: entropy(z) / np.log(2), ["base 2"]),
        (lambda z: entropy(z, p=lambda z: probabilities(probabilities(z))), ["softmax twice"]),
        (lambda z: entropy(z / 1.7), ["temperature=1.7"]),
        (lambda z: entropy(z, p=lambda z: 1 / (1 + np.exp(-z))), ["sigmoid instead of softmax"]),
        (lambda z: entropy(z, weight=np.sqrt(WEIGHT)), ["class weights", "roots"]),
        (lambda z: entropy(z, weight=np.roll(WEIGHT, 1)), ["class weights in another order"]),
        (lambda z: entropy(z, labels=np.where(LABELS == 3, -1, LABELS)), ["class 3 ignored as well"]),
        (lambda z: entropy(z, labels=np.where(np.arange(6) < 3, LABELS, -1)), ["first half of the batch"]),
        (lambda z: 3.3 * entropy(z), ["loss times 3.3"]),
        (lambda z: entropy(z) + 0.5, ["loss plus 0.5", "does not depend"]),
    ],
)
def test_classification(loss, words):
    found = explained(loss)
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_label_smoothing_that_is_missing():
    found = explained(entropy, label_smoothing=0.2)
    assert found.known and "no label smoothing instead of 0.2" in found.cause


def test_the_reference_is_that_of_the_vocabulary():
    nn = backends.get("torch").nn
    array = backends.get("torch").array
    value = float(nn.cross_entropy(array(LOGITS), array(LABELS), array(WEIGHT), label_smoothing=0.2))
    assert value == pytest.approx(both(lambda z: entropy(z, smoothing=0.2), LOGITS)[0], rel=1e-12)


PREDICTION, TRUTH = numbers(5, 3, seed=1), numbers(5, 3, seed=2)


@pytest.mark.parametrize(
    ("loss", "gradient", "words"),
    [
        (lambda d: 0.5 * (d**2).mean(), lambda d: d / 15, ["squared error, halved"]),
        (lambda d: (d**2).sum(), lambda d: 2 * d, ["squared error, sum instead of mean"]),
        (lambda d: (d**2).sum() / 5, lambda d: 2 * d / 5, ["sum over each sample"]),
        (lambda d: np.abs(d).mean(), lambda d: np.sign(d) / 15, ["absolute error, mean"]),
        (
            lambda d: np.where(np.abs(d) < 0.7, 0.5 * d**2, 0.7 * (np.abs(d) - 0.35)).mean(),
            lambda d: np.clip(d, -0.7, 0.7) / 15,
            ["Huber loss with delta=0.7"],
        ),
        (lambda d: np.sqrt((d**2).mean()), lambda d: d / 15 / np.sqrt((d**2).mean()), ["root of the mean"]),
        (lambda d: (d**2).mean(), lambda d: 4 * d / 15, ["gradient of the loss times 2", "value as it should be"]),
        (lambda d: (d**2).mean(), lambda d: 0 * d, ["loss without a gradient"]),
    ],
)
def test_regression(loss, gradient, words):
    d = PREDICTION - TRUTH
    found = explain_loss(PREDICTION, TRUTH, ((d**2).mean(), 2 * d / 15), (loss(d), gradient(d)))
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


BINARY = (numbers(5, 3, seed=3) > 0).astype(float)


def binary(z, target=BINARY, positive=1.0):
    p = 1 / (1 + np.exp(-z))
    return -(positive * target * np.log(p) + (1 - target) * np.log(1 - p))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda z: binary(z).sum(), ["sum instead of mean"]),
        (lambda z: binary(z, positive=2.5).mean(), ["pos_weight=2.5"]),
        (lambda z: binary(z, 1 - BINARY).mean(), ["targets exchanged"]),
        (lambda z: binary(1 / (1 + np.exp(-z))).mean(), ["sigmoid twice"]),
        (lambda z: binary(z, BINARY * 0.9 + 0.05).mean(), ["label smoothing=0.1"]),
    ],
)
def test_binary(loss, words):
    found = explain_loss(PREDICTION, BINARY, both(lambda z: binary(z).mean(), PREDICTION), both(loss, PREDICTION))
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_equal_losses_have_nothing_to_explain():
    assert explained(entropy) is None


def test_a_disturbed_loss_has_no_known_cause():
    assert not explained(lambda z: entropy(z) + 1e-4 * np.sin(3 * z).sum()).known


def test_without_gradients_the_value_alone_decides():
    d = PREDICTION - TRUTH
    found = explain_loss(PREDICTION, TRUTH, ((d**2).mean(), None), (np.abs(d).mean(), None))
    assert found.known and "absolute error" in found.cause


def test_a_single_value_tells_a_number_of_few_digits_only():
    usual = entropy(LOGITS).real, None
    settings = {"weight": WEIGHT, "ignore_index": -100}
    plain = explain_loss(LOGITS, LABELS, usual, (entropy(LOGITS, smoothing=0.033), None), settings)
    assert plain.known and "label smoothing=0.033" in plain.cause
    other = explain_loss(LOGITS, LABELS, usual, (entropy(LOGITS) + 0.0123456789, None), settings)
    assert other is None or not other.known
