"""Explanations of losses: the wrong ones are written anew, with gradients by hand or by differences
of closed forms."""

import numpy as np
import pytest
import torch

from deliralike import backends
from deliralike.conformance import compare
from deliralike.conformance.explain import explain, losses
from deliralike.conformance.findings import FailingBlock, Observed
from deliralike.conformance.subject import Subject
from tests.conformance.accusing import gradient, numbers
from tests.conformance.small import argument

TORCH = backends.get("torch")
LOGITS = numbers(6, 4)
LABELS = np.array([0, 3, 2, -100, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def probabilities(z):
    e = np.exp(z)
    return e / e.sum(1, keepdims=True)


def both(loss, x):
    """A loss's value and gradient."""
    return float(np.real(loss(x.astype(complex)))), gradient(
        lambda tree: loss(tree[0]), (x,), "args[0]"
    )


def entropy(
    z, labels=LABELS, weight=WEIGHT, divisor="weights", smoothing=0.0, p=probabilities
):
    """Label by label, as it is written in the book."""
    total, weights, count = 0.0, 0.0, 0
    for row, label in zip(p(z), labels, strict=True):
        if label < 0:
            continue
        total = total - (1 - smoothing) * weight[label] * np.log(row[label])
        total = total - smoothing / 4 * sum(
            weight[c] * np.log(row[c]) for c in range(4)
        )
        weights, count = weights + weight[label], count + 1
    return (
        total
        / {
            "weights": weights,
            "count": count,
            "all": len(labels),
            "one": 1.0,
            "batch and classes": 24,
        }[divisor]
    )


def explain_loss(
    prediction, target, reference, candidate, settings=None, kind="cross_entropy"
):
    """The cause of a loss of one term, by its value and gradient on both sides."""
    where, sides = argument("args[0]"), []
    for value, slope in (reference, candidate):
        sides.append(Observed(np.array(value), {where: slope}))
    given = (prediction, target), settings or {}
    block = FailingBlock("loss", kind, {}, {}, *given, np.ones(()), True, *sides)
    found = explain(block, TORCH)
    if found is not None and found.known:
        return found
    numbers = [
        {"value": np.array(value), "z": slope}
        for value, slope in (reference, candidate)
    ]
    return losses.explain(losses.Loss(*numbers))


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
        (
            lambda z: entropy(z, labels=np.where(LABELS < 0, 3, LABELS)),
            ["ignored labels counted as the last class"],
        ),
        (lambda z: entropy(z, smoothing=0.1), ["label_smoothing=0.1 instead of 0"]),
        (lambda z: entropy(z, smoothing=0.137), ["label_smoothing=0.137"]),
        (
            lambda z: entropy(z, p=lambda z: probabilities(probabilities(z))),
            ["softmax twice"],
        ),
        (
            lambda z: entropy(z, p=lambda z: 1 / (1 + np.exp(-z))),
            ["sigmoid instead of softmax"],
        ),
        (lambda z: 3.3 * entropy(z), ["loss times 3.3"]),
        (lambda z: entropy(z) + 0.5, ["loss plus 0.5", "does not depend"]),
    ],
)
def test_classification(loss, words):
    found = explained(loss)
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_a_loss_over_the_number_of_labels():
    """Divided by the weights of all pixels, and then by their number once more."""
    z, labels = numbers(2, 4, 3, seed=9), np.array([[0, 3, 2], [1, 1, 3]])

    def mean(z):
        z, flat = np.moveaxis(z, 1, -1).reshape(6, 4), labels.ravel()
        return entropy(z, flat)

    settings = {"weight": WEIGHT}
    found = explain_loss(
        z, labels, both(mean, z), both(lambda z: mean(z) / 6, z), settings
    )
    assert (
        found is not None and found.known and "the number of labels" in found.cause
    ), str(found)


def test_label_smoothing_that_is_missing():
    found = explained(entropy, label_smoothing=0.2)
    assert found.known and "no label smoothing instead of 0.2" in found.cause


def test_the_reference_is_that_of_the_vocabulary():
    nn, array = TORCH.nn, TORCH.array
    value = float(
        nn.cross_entropy(
            array(LOGITS), array(LABELS), array(WEIGHT), label_smoothing=0.2
        )
    )
    assert value == pytest.approx(
        both(lambda z: entropy(z, smoothing=0.2), LOGITS)[0], rel=1e-12
    )


PREDICTION, TRUTH = numbers(5, 3, seed=1), numbers(5, 3, seed=2)


@pytest.mark.parametrize(
    ("loss", "gradient", "words"),
    [
        (lambda d: 0.5 * (d**2).mean(), lambda d: d / 15, ["times 0.5"]),
        (lambda d: (d**2).sum(), lambda d: 2 * d, ["sum instead of mean"]),
        (lambda d: (d**2).sum() / 5, lambda d: 2 * d / 5, ["sum over each sample"]),
        (
            lambda d: np.abs(d).mean(),
            lambda d: np.sign(d) / 15,
            ["absolute error instead of squared error"],
        ),
        (
            lambda d: np.sqrt((d**2).mean()),
            lambda d: d / 15 / np.sqrt((d**2).mean()),
            ["root of the mean"],
        ),
        (
            lambda d: (d**2).mean(),
            lambda d: 0 * d,
            ["without a gradient"],
        ),
    ],
)
def test_regression(loss, gradient, words):
    d = PREDICTION - TRUTH
    sides = ((d**2).mean(), 2 * d / 15), (loss(d), gradient(d))
    found = explain_loss(PREDICTION, TRUTH, *sides, kind="mse_loss")
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
        (lambda z: binary(1 / (1 + np.exp(-z))).mean(), ["sigmoid twice"]),
    ],
)
def test_binary(loss, words):
    sides = both(lambda z: binary(z).mean(), PREDICTION), both(loss, PREDICTION)
    found = explain_loss(PREDICTION, BINARY, *sides, kind="bce_with_logits")
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_equal_losses_have_nothing_to_explain():
    assert explained(entropy) is None


def test_a_disturbed_loss_has_no_known_cause():
    assert not explained(lambda z: entropy(z) + 1e-4 * np.sin(3 * z).sum()).known


# Focal losses and weights that are solved for
# -----------------------------------------------------------------------------


def focal(z, alpha=0.25, gamma=2.0):
    p = 1 / (1 + np.exp(-z))
    share = np.where(BINARY == 1, 1 - p, p)
    return (np.where(BINARY == 1, alpha, 1 - alpha) * share**gamma * binary(z)).mean()


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"gamma": 1.3}, "gamma=1.3 instead of 2"),
        ({"alpha": 0.61}, "alpha=0.61 instead of 0.25"),
    ],
)
def test_focal(how, words):
    sides = both(focal, PREDICTION), both(lambda z: focal(z, **how), PREDICTION)
    settings = {"alpha": 0.25, "gamma": 2.0}
    found = explain_loss(PREDICTION, BINARY, *sides, settings, "binary_focal_loss")
    assert found is not None and found.known and words in found.cause, str(found)


def test_a_factor_that_nobody_would_write_is_no_cause():
    assert not explained(lambda z: 0.9134731 * entropy(z)).known


# Sums of two losses, of which one differs
# -----------------------------------------------------------------------------


def term(network, x, labels):
    """The usual loss of two terms."""
    nn, z = network.nn, network(x)
    return 0.5 * nn.cross_entropy(z, labels) + 0.1 * nn.mse_loss(z, z * 0.0 + 1.0)


def written_out(network, x, labels):
    """The same with smoothed labels, by hand."""
    nn, z = network.nn, network(x)
    logs = nn.log_softmax(z, 1)
    own = nn.mean(nn.sum(logs * nn.one_hot(labels, 4, like=z), 1))
    entropy = -0.8 * own - 0.2 * nn.mean(logs)
    return 0.5 * entropy + 0.1 * nn.mean((z - 1.0) * (z - 1.0))


def test_of_two_terms_the_one_that_differs_is_named():
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 4)
    sides = [Subject(TORCH.wrap(network), loss) for loss in (term, written_out)]
    found = compare(*sides, (LOGITS, np.maximum(LABELS, 0)), levels=("L1", "L3"))
    (finding,) = found.level("L3").findings
    assert finding.place == "loss"
    assert finding.explained and "label_smoothing=0.2" in finding.explanation.cause
