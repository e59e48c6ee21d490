"""Explanations of losses: the wrong ones are written anew, with gradients by hand or by differences
of closed forms."""

from functools import partial

import numpy as np
import pytest
import torch

from deliralike import backends
from deliralike.conformance.explain import losses
from deliralike.conformance.explain.arguments import bound
from deliralike.conformance.places import Tap
from tests.conformance.accusing import numbers

TORCH = backends.get("torch")
LOGITS = numbers(6, 4)
LABELS = np.array([0, 3, 2, -100, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def probabilities(z):
    e = np.exp(z)
    return e / e.sum(1, keepdims=True)


def both(loss, x):
    """A loss's value, and its gradient: f(x + i h) = f(x) + i h f'(x) without cancellation."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[index] += 1e-30j
        gradient[index] = np.imag(loss(moved)) / 1e-30
    return float(np.real(loss(x.astype(complex)))), gradient


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
    given = bound(kind, settings or {}, {}, (prediction, target), {})
    mine, its = (
        {"value": np.array(value), "z": slope}
        for value, slope in (reference, candidate)
    )
    run = partial(executed, {"": prediction}, {Tap(function=kind): given})
    return losses.explain(losses.Loss(run, {Tap(function=kind): given}, mine, its))


def executed(parts, calls, at, formula):
    """The value and the gradients of a sum of losses, one of them by another formula."""
    leaves = {name: torch.tensor(x, requires_grad=True) for name, x in parts.items()}
    total = 0.0
    for (tap, given), x in zip(calls.items(), leaves.values()):
        native = {
            n: torch.tensor(v) if isinstance(v, np.ndarray) else v
            for n, v in given.items()
        }
        native |= {next(iter(given)): x}
        own = formula if tap == at else losses.formula_of(tap.function)
        total = total + own(TORCH.nn, native)
    slopes = torch.autograd.grad(total, list(leaves.values()))
    found = {"value": total.detach().numpy()}
    return found | {f"z{name}": one.numpy() for name, one in zip(leaves, slopes)}


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
            lambda z: entropy(z, labels=np.where(LABELS < 0, LABELS, (LABELS + 1) % 4)),
            ["labels off by one (+1)"],
        ),
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
        (lambda d: 0.5 * (d**2).mean(), lambda d: d / 15, ["loss times 0.5"]),
        (lambda d: (d**2).sum(), lambda d: 2 * d, ["sum instead of mean"]),
        (lambda d: (d**2).sum() / 5, lambda d: 2 * d / 5, ["sum over each sample"]),
        (
            lambda d: np.abs(d).mean(),
            lambda d: np.sign(d) / 15,
            ["absolute error instead of squared error"],
        ),
        (
            lambda d: np.where(
                np.abs(d) < 0.7, 0.5 * d**2, 0.7 * (np.abs(d) - 0.35)
            ).mean(),
            lambda d: np.clip(d, -0.7, 0.7) / 15,
            ["Huber loss with delta = 0.7"],
        ),
        (
            lambda d: np.sqrt((d**2).mean()),
            lambda d: d / 15 / np.sqrt((d**2).mean()),
            ["root of the mean"],
        ),
        (
            lambda d: (d**2).mean(),
            lambda d: 0 * d,
            ["loss without a gradient (detached)"],
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
        (lambda z: binary(z, positive=2.5).mean(), ["pos_weight=2.5"]),
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

TWO = {
    Tap(function="mse_loss"): bound("mse_loss", {}, {}, (PREDICTION, TRUTH), {}),
    Tap(function="bce_with_logits"): bound(
        "bce_with_logits", {}, {}, (LOGITS[:5, :3], BINARY), {}
    ),
}


def two(squares, flags):
    """The explanation of a sum of squares and of flags in the place of the usual one."""
    totals = []
    for one, other in ((usual_squares, usual_flags), (squares, flags)):
        (a, of_a), (b, of_b) = both(one, PREDICTION), both(other, LOGITS[:5, :3])
        totals.append({"value": np.array(a + b), "za": of_a, "zb": of_b})
    run = partial(executed, {"a": PREDICTION, "b": LOGITS[:5, :3]}, TWO)
    return losses.explain(losses.Loss(run, TWO, *totals))


def usual_squares(x):
    return ((x - TRUTH) ** 2).mean()


def usual_flags(z):
    return binary(z).mean()


@pytest.mark.parametrize(
    ("squares", "flags", "words"),
    [
        (usual_squares, lambda z: binary(z).sum(), ["bce_with_logits", "sum instead"]),
        (
            lambda x: np.sqrt(usual_squares(x)),
            usual_flags,
            ["mse_loss: root of the mean"],
        ),
        (usual_squares, lambda z: 0.0 * z.sum(), ["bce_with_logits", "left out"]),
        (lambda x: 0.37 * usual_squares(x), usual_flags, ["mse_loss", "times=0.37"]),
    ],
)
def test_of_two_terms_the_one_that_differs_is_named(squares, flags, words):
    found = two(squares, flags)
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_two_wrong_terms_have_no_known_cause():
    found = two(lambda x: np.abs(x - TRUTH).mean(), lambda z: binary(np.sin(z)).mean())
    assert str(found).startswith("Cause unknown: the loss is "), str(found)
