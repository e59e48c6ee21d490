"""Explanations of losses: the wrong ones are written anew, with gradients by hand or by differences
of closed forms."""

import numpy as np
import pytest

from deliralike import backends
from deliralike.conformance.explain import losses as loss_terms
from deliralike.conformance.explain.arguments import bound
from deliralike.conformance.explain.losses import Composition, Term, Total
from tests.conformance.accusing import gradient, numbers

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
        total
        / {
            "weights": weights,
            "count": count,
            "all": len(labels),
            "one": 1.0,
            "batch and classes": 24,
        }[divisor]
    )


def explain_loss(prediction, target, reference, candidate, settings=None, kind="cross_entropy"):
    """The cause of a loss of one term, by its value and gradient on both sides."""
    mine, its = (Total(value, {"z": slope}) for value, slope in (reference, candidate))
    given = bound(kind, settings or {}, {}, (prediction, target), {})
    loss = Composition(TORCH, {"z": prediction}, (Term(kind, given, mine),), mine, its, (target,))
    return loss_terms.explain(loss)


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
        (lambda z: entropy(z, p=lambda z: probabilities(probabilities(z))), ["softmax twice"]),
        (lambda z: entropy(z, p=lambda z: 1 / (1 + np.exp(-z))), ["sigmoid instead of softmax"]),
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
    found = explain_loss(z, labels, both(mean, z), both(lambda z: mean(z) / 6, z), settings)
    assert found is not None and found.known and "the number of labels" in found.cause, str(found)


def test_label_smoothing_that_is_missing():
    found = explained(entropy, label_smoothing=0.2)
    assert found.known and "no label smoothing instead of 0.2" in found.cause


def test_the_reference_is_that_of_the_vocabulary():
    nn, array = TORCH.nn, TORCH.array
    value = float(
        nn.cross_entropy(array(LOGITS), array(LABELS), array(WEIGHT), label_smoothing=0.2)
    )
    assert value == pytest.approx(both(lambda z: entropy(z, smoothing=0.2), LOGITS)[0], rel=1e-12)


PREDICTION, TRUTH = numbers(5, 3, seed=1), numbers(5, 3, seed=2)


@pytest.mark.parametrize(
    ("loss", "gradient", "words"),
    [
        (lambda d: 0.5 * (d**2).mean(), lambda d: d / 15, ["halved"]),
        (lambda d: (d**2).sum(), lambda d: 2 * d, ["sum instead of mean"]),
        (lambda d: (d**2).sum() / 5, lambda d: 2 * d / 5, ["sum over each sample"]),
        (
            lambda d: np.abs(d).mean(),
            lambda d: np.sign(d) / 15,
            ["absolute error instead of squared error"],
        ),
        (
            lambda d: np.where(np.abs(d) < 0.7, 0.5 * d**2, 0.7 * (np.abs(d) - 0.35)).mean(),
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
            lambda d: 4 * d / 15,
            ["gradient of the loss times 2", "value as it should be"],
        ),
        (lambda d: (d**2).mean(), lambda d: 0 * d, ["loss without a gradient (detached)"]),
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
        (lambda z: binary(z, 1 - BINARY).mean(), ["targets exchanged"]),
        (lambda z: binary(1 / (1 + np.exp(-z))).mean(), ["sigmoid twice"]),
        (lambda z: binary(z, BINARY * 0.9 + 0.05).mean(), ["label_smoothing=0.1"]),
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


# Dice: overlaps written anew, sample by sample
# -----------------------------------------------------------------------------

P = probabilities(numbers(2, 3, 8, seed=4))
REGIONS = np.moveaxis(np.eye(3)[np.arange(16).reshape(2, 8) * 7 % 3], -1, 1)


def coefficients(p, groups, above=1e-5, below=1e-5, power=1):
    """Of each group of (sample, class) pairs."""
    found = []
    for group in groups:
        overlap = sum((p[i, k] * REGIONS[i, k]).sum() for i, k in group)
        total = sum((p[i, k] ** power).sum() + (REGIONS[i, k] ** power).sum() for i, k in group)
        found.append((2.0 * overlap + above) / (total + below))
    return np.array(found)


EACH = [[(i, k)] for i in range(2) for k in range(3)]


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            lambda p: (1 - coefficients(p, EACH, 0.37, 0.37)).mean(),
            ["smooth=0.37 instead of 1e-05"],
        ),
        (lambda p: (1 - coefficients(p, EACH, power=2)).mean(), ["squares in the denominator"]),
        (lambda p: (1 - coefficients(p, EACH)).sum(), ["sum instead of mean"]),
        (lambda p: -coefficients(p, EACH).mean(), ["negative coefficient"]),
        (
            lambda p: (1 - coefficients(p, [[(0, k), (1, k)] for k in range(3)])).mean(),
            ["over the whole batch"],
        ),
        (lambda p: (1 - coefficients(p, EACH[1:3] + EACH[4:])).mean(), ["background", "left out"]),
    ],
)
def test_dice(loss, words):
    usual = both(lambda p: (1 - coefficients(p, EACH)).mean(), P)
    found = explain_loss(P, REGIONS, usual, both(loss, P), {"smooth": 1e-5}, "dice_loss")
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


# Focal losses and weights that are solved for
# -----------------------------------------------------------------------------


def focal(z, alpha=0.25, gamma=2.0):
    p = 1 / (1 + np.exp(-z))
    share = np.where(BINARY == 1, 1 - p, p)
    return (np.where(BINARY == 1, alpha, 1 - alpha) * share**gamma * binary(z)).mean()


@pytest.mark.parametrize(
    ("how", "words"),
    [({"gamma": 1.3}, "gamma=1.3 instead of 2"), ({"alpha": 0.61}, "alpha=0.61 instead of 0.25")],
)
def test_focal(how, words):
    sides = both(focal, PREDICTION), both(lambda z: focal(z, **how), PREDICTION)
    settings = {"alpha": 0.25, "gamma": 2.0}
    found = explain_loss(PREDICTION, BINARY, *sides, settings, "binary_focal_loss")
    assert found is not None and found.known and words in found.cause, str(found)


def test_a_factor_that_nobody_would_write_is_no_cause():
    assert not explained(lambda z: 0.9134731 * entropy(z)).known


# Sums of functions, by what the whole makes of the network's output
# -----------------------------------------------------------------------------

Z = numbers(5, 3, seed=7)


def squares(z):
    return ((z - TRUTH) ** 2).mean()


def flags(z):
    return binary(z[:, :2], BINARY[:, :2]).mean()


def composed(whole):
    """The reference is squares of all and binary cross-entropy of two columns; the candidate is
    `whole`."""
    mine, its, squared, flagged = (
        Total(value, {"z": slope})
        for value, slope in (
            both(one, Z) for one in (lambda z: squares(z) + flags(z), whole, squares, flags)
        )
    )
    terms = (
        Term("mse_loss", {"prediction": Z, "target": TRUTH, "reduction": "mean"}, squared),
        Term("bce_with_logits", {"logits": Z[:, :2], "target": BINARY[:, :2]}, flagged),
    )
    return loss_terms.explain(Composition(TORCH, {"z": Z}, terms, mine, its))


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        (
            lambda z: squares(z) + 2 * binary(z[:, :2], BINARY[:, :2]).mean() * 5,
            ["bce_with_logits", "sum instead"],
        ),
        (lambda z: np.sqrt(squares(z)) + flags(z), ["mse_loss: root of the mean"]),
        (lambda z: squares(z) + flags(1 / (1 + np.exp(-z))), ["bce_with_logits", "sigmoid twice"]),
    ],
)
def test_terms(whole, words):
    found = composed(whole)
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_a_term_that_is_left_out():
    found = composed(squares)
    assert found is not None and found.known, str(found)
    assert "bce_with_logits left out" in found.cause


def test_two_wrong_terms_have_no_known_cause():
    assert not composed(lambda z: np.abs(z - TRUTH).mean() + flags(np.sin(z))).known


# Losses of the frameworks' own: nothing is known but outputs, targets, values and gradients
# -----------------------------------------------------------------------------

FLAGS = (numbers(6, 4, seed=12) > 0).astype(float)
NUMBERS = numbers(6, 4, seed=13)


def smoothed(z, share):
    return entropy(z, weight=np.ones(4), smoothing=share)


def huber(z, delta):
    d = z - NUMBERS
    size = np.where(d.real < 0, -d, d)
    return np.where(size.real < delta, 0.5 * d * d, delta * (size - 0.5 * delta)).mean()


def native(reference, candidate, target):
    """The explanation of two losses of which no function is known."""
    mine, its = both(reference, LOGITS), both(candidate, LOGITS)
    totals = [Total(value, {"z": slope}) for value, slope in (mine, its)]
    return loss_terms.explain(Composition(TORCH, {"z": LOGITS}, (), *totals, (target,)))


def plain(z):
    return smoothed(z, 0.0)


def squares_of_all(z):
    return ((z - NUMBERS) ** 2).mean()


def flags_of_all(z):
    return binary(z, FLAGS).mean()


TRAPS = {
    "smoothing": (plain, lambda z: smoothed(z, 0.1), LABELS, "label_smoothing=0.1 instead of 0"),
    "ignored counted": (
        plain,
        lambda z: plain(z) * 5 / 6,
        LABELS,
        "ignored labels in the denominator",
    ),
    "halved": (squares_of_all, lambda z: squares_of_all(z) / 2, NUMBERS, "times 0.5 (halved)"),
    "Huber": (squares_of_all, lambda z: huber(z, 0.5), NUMBERS, "delta = 0.5"),
    "probabilities": (
        flags_of_all,
        lambda z: flags_of_all(1 / (1 + np.exp(-z))),
        FLAGS,
        "sigmoid twice",
    ),
}


@pytest.mark.parametrize("trap", TRAPS)
def test_what_people_do_with_losses_of_their_framework(trap):
    reference, candidate, target, words = TRAPS[trap]
    found = native(reference, candidate, target)
    assert found is not None and found.known, str(found)
    assert words in found.cause, found.cause


def test_a_native_loss_that_is_not_known_is_compared_with_both_values():
    found = native(lambda z: np.sin(z).sum(), lambda z: np.cos(z).sum(), NUMBERS)
    assert not found.known
    assert str(found).startswith("Cause unknown: the loss is ")


def test_of_a_native_loss_that_is_not_known_a_factor_is():
    found = native(lambda z: np.sin(z).sum(), lambda z: np.sin(z).mean(), NUMBERS)
    assert found.known and "1 / the number of elements" in found.cause, str(found)


def test_equal_native_losses_have_nothing_to_explain():
    assert native(plain, plain, LABELS) is None


# Losses of two terms of which one is written out: what is known of it is what it gives
# -----------------------------------------------------------------------------

SHARES = 1 / (1 + np.exp(-numbers(4, 6, seed=21)))
SEEN = (numbers(4, 6, seed=22) > 0).astype(float)
MEAN, LOG = numbers(4, 5, seed=23), 0.3 * numbers(4, 5, seed=24)


def entropy_of_shares(p):
    return -(SEEN * np.log(p) + (1 - SEEN) * np.log(1 - p)).sum() / 4


def of_normals(mean, log, square=np.square):
    return 0.5 * (square(mean) + np.exp(log) - log - 1).sum()


def of_pictures(reconstruction, divergence):
    """Value and gradients of a loss of pictures and of means and variances."""
    gradients = {}
    for name, value in (("p", SHARES), ("mean", MEAN), ("log", LOG)):

        def loss(tree, name=name):
            given = {"p": SHARES, "mean": MEAN, "log": LOG, name: tree[0]}
            return reconstruction(given["p"]) + divergence(given["mean"], given["log"])

        gradients[name] = gradient(loss, (value,), "args[0]")
    return Total(float(reconstruction(SHARES) + divergence(MEAN, LOG)), gradients)


def quarter(mean, log):
    return 0.25 / 4 * of_normals(mean, log)


PICTURES = {
    "mean over the latent axes": (
        entropy_of_shares,
        lambda mean, log: quarter(mean, log) / 5,
        ["sum() of (4, 5) times 0.2", "1 / the size of axis 1"],
    ),
    "another distance": (
        lambda p: ((p - SEEN) ** 2).sum() / 4,
        quarter,
        ["squared error instead of binary cross-entropy of probabilities"],
    ),
}


@pytest.mark.parametrize("case", PICTURES)
def test_a_loss_of_two_terms_is_explained_by_the_one_that_differs(case):
    *candidate, words = PICTURES[case]
    outputs = {"p": SHARES, "mean": MEAN, "log": LOG}
    through = of_pictures(lambda p: 0.0 * p.sum(), quarter)
    term = Term("sum", {"x": MEAN}, through, 0.25 / 4)
    totals = of_pictures(entropy_of_shares, quarter), of_pictures(*candidate)
    found = loss_terms.explain(Composition(TORCH, outputs, (term,), *totals, (SEEN,)))
    assert found is not None and found.known, str(found)
    assert all(word in found.cause for word in words), found.cause


def test_of_causes_that_fit_equally_the_factor_comes_first():
    """Two numbers for each sample: half of their sum is their mean."""
    z, t = numbers(5, 2, seed=31), numbers(5, 2, seed=32)
    mine, its = (both(lambda z, f=f: f * ((z - t) ** 2).sum() / 5, z) for f in (0.5, 1.0))
    found = explain_loss(z, t, mine, its)
    assert found.known and found.cause.startswith("loss times 2 (sum over each sample"), found
