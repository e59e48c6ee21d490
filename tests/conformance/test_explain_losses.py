"""Explanations of losses: the wrong ones are written anew in PyTorch."""

from functools import partial

import numpy as np
import pytest
import torch

from deliralike import backends
from deliralike.conformance.explain import losses
from deliralike.conformance.explain.arguments import bound
from deliralike.conformance.places import Tap
from tests.conformance.accusing import known, numbers

TORCH = backends.get("torch")
F = torch.nn.functional
LOGITS = numbers(6, 4)
LABELS = np.array([0, 3, 2, -100, 1, 1])
WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def both(loss, x):
    """A loss's value and gradient."""
    x = torch.tensor(x, requires_grad=True)
    value = loss(x)
    value.backward()
    return value.item(), x.grad.numpy()


def entropy(z, labels=LABELS, weight=WEIGHT, divisor=None, smoothing=0.0):
    """With its own mean, or a sum over a number."""
    how = {"label_smoothing": smoothing, "reduction": "sum" if divisor else "mean"}
    labels, weight = torch.from_numpy(labels), torch.from_numpy(weight)
    return F.cross_entropy(z, labels, weight, **how) / (divisor or 1)


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
        (lambda z: entropy(z, divisor=1), ["sum instead of mean"]),
        (lambda z: entropy(z, divisor=5), ["class weights by count"]),
        (lambda z: entropy(z, divisor=6), ["ignored labels in the denominator"]),
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
        (lambda z: entropy(z.softmax(1)), ["softmax twice"]),
        (
            lambda z: F.nll_loss(
                F.logsigmoid(z), torch.from_numpy(LABELS), torch.from_numpy(WEIGHT)
            ),
            ["sigmoid instead of softmax"],
        ),
        (lambda z: 3.3 * entropy(z), ["loss times 3.3"]),
        (lambda z: entropy(z) + 0.5, ["loss plus 0.5", "does not depend"]),
    ],
)
def test_classification(loss, words):
    found = explained(loss)
    known(found, *words)


def test_a_class_that_is_not_ignored_is_counted_as_any_other():
    labels = np.where(LABELS < 0, 1, LABELS)
    ignored = partial(F.cross_entropy, target=torch.from_numpy(labels), ignore_index=1)
    reference = both(ignored, LOGITS)
    candidate = both(partial(F.cross_entropy, target=torch.from_numpy(labels)), LOGITS)
    settings = {"ignore_index": 1}
    found = explain_loss(LOGITS, labels, reference, candidate, settings)
    known(found, "ignored labels counted as those of any other class")


def test_a_loss_over_the_number_of_labels():
    """Divided by the weights of all pixels, and then by their number once more."""
    z, labels = numbers(2, 4, 3, seed=9), np.array([[0, 3, 2], [1, 1, 3]])

    settings = {"weight": WEIGHT}
    usual = both(lambda z: entropy(z, labels), z)
    other = both(lambda z: entropy(z, labels) / 6, z)
    found = explain_loss(z, labels, usual, other, settings)
    known(found, "the number of labels")


def test_label_smoothing_that_is_missing():
    found = explained(entropy, label_smoothing=0.2)
    known(found, "no label smoothing instead of 0.2")


PREDICTION, TRUTH = numbers(5, 3, seed=1), numbers(5, 3, seed=2)


def squares(x):
    return F.mse_loss(x, torch.from_numpy(TRUTH))


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda x, y: 0.5 * F.mse_loss(x, y), ["loss times 0.5"]),
        (partial(F.mse_loss, reduction="sum"), ["sum instead of mean"]),
        (lambda x, y: ((x - y) ** 2).sum() / 5, ["sum over each sample"]),
        (F.l1_loss, ["absolute error instead of squared error"]),
        (lambda x, y: F.mse_loss(x, y).sqrt(), ["root of the mean"]),
        (
            lambda x, y: F.mse_loss(x, y).detach() + 0.0 * x.sum(),
            ["loss without a gradient (detached)"],
        ),
    ],
)
def test_regression(loss, words):
    other = both(lambda x: loss(x, torch.from_numpy(TRUTH)), PREDICTION)
    sides = both(squares, PREDICTION), other
    found = explain_loss(PREDICTION, TRUTH, *sides, kind="mse_loss")
    known(found, *words)


BINARY = (numbers(5, 3, seed=3) > 0).astype(float)


def binary(z, reduction="mean"):
    target = torch.from_numpy(BINARY)
    return F.binary_cross_entropy_with_logits(z, target, reduction=reduction)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (partial(binary, reduction="sum"), ["sum instead of mean"]),
        (lambda z: binary(z.sigmoid()), ["sigmoid twice"]),
    ],
)
def test_binary(loss, words):
    sides = both(binary, PREDICTION), both(loss, PREDICTION)
    found = explain_loss(PREDICTION, BINARY, *sides, kind="bce_with_logits")
    known(found, *words)


def test_equal_losses_have_nothing_to_explain():
    assert explained(entropy) is None


def test_a_disturbed_loss_has_no_known_cause():
    assert not explained(lambda z: entropy(z) + 1e-4 * torch.sin(3 * z).sum()).known


# Focal losses and weights that are solved for
# -----------------------------------------------------------------------------


def focal(z, alpha=0.25, gamma=2.0):
    target = torch.from_numpy(BINARY)
    share = torch.where(target == 1, 1 - z.sigmoid(), z.sigmoid())
    weights = torch.where(target == 1, alpha, 1 - alpha)
    return (weights * share**gamma * binary(z, reduction="none")).mean()


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
    known(found, words)


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


def two(distance, flags):
    """The explanation of a distance and a loss of flags in the place of the usual sum."""
    totals = []
    for one, other in ((squares, binary), (distance, flags)):
        (a, of_a), (b, of_b) = both(one, PREDICTION), both(other, LOGITS[:5, :3])
        totals.append({"value": np.array(a + b), "za": of_a, "zb": of_b})
    run = partial(executed, {"a": PREDICTION, "b": LOGITS[:5, :3]}, TWO)
    return losses.explain(losses.Loss(run, TWO, *totals))


@pytest.mark.parametrize(
    ("distance", "flags", "words"),
    [
        (squares, partial(binary, reduction="sum"), ["bce_with_logits", "sum instead"]),
        (lambda x: squares(x).sqrt(), binary, ["mse_loss: root of the mean"]),
        (squares, lambda z: 0.0 * z.sum(), ["bce_with_logits", "left out"]),
        (lambda x: 0.37 * squares(x), binary, ["mse_loss", "times=0.37"]),
    ],
)
def test_of_two_terms_the_one_that_differs_is_named(distance, flags, words):
    found = two(distance, flags)
    known(found, *words)


def test_two_wrong_terms_have_no_known_cause():
    truth = torch.from_numpy(TRUTH)
    found = two(lambda x: F.l1_loss(x, truth), lambda z: binary(z.sin()))
    assert str(found).startswith("Cause unknown: the loss is "), str(found)
