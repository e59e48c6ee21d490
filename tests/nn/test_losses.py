"""Losses, every argument, with gradients."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    agree_all,
    agree_function,
    get,
    hold,
    normal,
    numbers,
    property_test,
)

F = torch.nn.functional
reductions = st.sampled_from(["mean", "sum", "none"])


@st.composite
def cross_entropies(draw):
    settings = {
        "reduction": draw(reductions),
        "label_smoothing": draw(st.sampled_from([0.0, 0.1])),
        "ignore_index": draw(st.sampled_from([-100, -1, 1])),
    }
    size = draw(st.sampled_from([(), (3,), (2, 3), (2, 1, 2)]))
    return settings, size, draw(st.booleans()), draw(st.booleans())


@property_test(14, case=cross_entropies(), seed=numbers)
def test_cross_entropies_of_any_settings_agree(case, seed):
    settings, size, weighted, ignoring = case
    rng = np.random.default_rng(seed)
    logits, labels = rng.normal(size=(4, 3, *size)), rng.integers(0, 3, (4, *size))
    labels.flat[0] = 0
    if ignoring:
        labels.flat[1] = settings["ignore_index"]
    weight = rng.uniform(0.2, 2.0, 3) if weighted else None
    return FunctionCase(
        lambda nn, logits, labels: nn.cross_entropy(
            logits, labels, nn.constant(weight, like=logits) if weighted else None, **settings
        ),
        lambda logits, labels: F.cross_entropy(
            logits, labels, torch.tensor(weight) if weighted else None, **settings
        ),
        [logits, labels],
        seed=seed,
    )


@pytest.mark.parametrize("name", NAMES)
def test_cross_entropy_of_large_scores_does_not_overflow(name):
    x, labels = normal(0, 5, 4, scale=1000.0), np.array([0, 1, 2, 3, 0])
    agree_function(name, lambda nn, x, y: nn.cross_entropy(x, y), F.cross_entropy, [x, labels])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("name", NAMES)
def test_when_every_label_is_ignored_the_loss_is_zero_with_a_warning(name, smoothing):
    backend, network = get(name), hold(name)
    logits, labels = backend.prepare((normal(0, 2, 3), np.full(2, -100)), network)
    with pytest.warns(UserWarning, match="every label is ignored, the loss is 0"):
        loss = network.nn.cross_entropy(logits, labels, label_smoothing=smoothing)
    assert float(backend.numpy(loss)) == 0.0


@pytest.mark.filterwarnings("ignore:cross_entropy. every label is ignored")
@pytest.mark.parametrize("name", NAMES)
def test_when_every_label_is_ignored_the_gradient_is_zero(name):
    agree_function(
        name,
        lambda nn, x, y: nn.cross_entropy(x, y),
        lambda x, y: (x * 0.0).sum(),
        [normal(0, 2, 3), np.full(2, -100)],
    )


@property_test(
    8, reduction=reductions, weighted=st.booleans(), positive=st.booleans(), seed=numbers
)
def test_binary_cross_entropies_agree(reduction, weighted, positive, seed):
    rng = np.random.default_rng(seed)
    logits, target = 30.0 * rng.normal(size=(3, 2, 4)), rng.random((3, 2, 4))
    given = {"weight": rng.random((2, 4))} if weighted else {}
    given |= {"pos_weight": rng.uniform(0.5, 3.0, 4)} if positive else {}

    def ours(nn, x, y):
        return nn.bce_with_logits(
            x, y, reduction=reduction, **{key: nn.constant(v, like=x) for key, v in given.items()}
        )

    def theirs(x, y):
        tensors = {key: torch.tensor(value) for key, value in given.items()}
        return F.binary_cross_entropy_with_logits(x, y, reduction=reduction, **tensors)

    return FunctionCase(ours, theirs, [logits, target])


def error(loss, reduction):
    x, y = normal(0, 3, 4), normal(1, 3, 4)
    x[0] = y[0]
    return FunctionCase(
        lambda nn, x, y: getattr(nn, loss)(x, y, reduction),
        lambda x, y: getattr(F, loss)(x, y, reduction=reduction),
        [x, y],
    )


@pytest.mark.parametrize("name", NAMES)
def test_squared_and_absolute_errors_agree_also_where_the_error_is_zero(name):
    agree_all(
        name,
        {
            f"{loss} {reduction}": error(loss, reduction)
            for loss in ("mse_loss", "l1_loss")
            for reduction in ("mean", "sum", "none")
        },
    )


def dice(reduction, background):
    probabilities = np.random.default_rng(0).random((2, 3, 4, 5))
    target = np.eye(3)[np.random.default_rng(1).integers(0, 3, (2, 4, 5))].transpose(0, 3, 1, 2)
    first = 0 if background else 1

    def theirs(p, t):
        p, t = p[:, first:], t[:, first:]
        overlap, total = (p * t).sum((2, 3)), p.sum((2, 3)) + t.sum((2, 3))
        loss = 1.0 - (2.0 * overlap + 0.1) / (total + 0.1)
        return {"mean": loss.mean, "sum": loss.sum, "none": lambda: loss}[reduction]()

    return FunctionCase(
        lambda nn, p, t: nn.dice_loss(p, t, 0.1, background, reduction),
        theirs,
        [probabilities, target],
    )


@pytest.mark.parametrize("name", NAMES)
def test_dice_agrees_with_its_formula(name):
    agree_all(
        name,
        {
            f"{reduction} {background=}": dice(reduction, background)
            for reduction in ("mean", "sum", "none")
            for background in (True, False)
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_one_hot_puts_the_class_on_axis_one(name):
    backend, network = get(name), hold(name)
    for shape in [(4,), (2, 3), (2, 3, 2)]:
        labels = np.random.default_rng(0).integers(0, 5, shape)
        target, like = backend.prepare((labels, np.zeros(1)), network)
        found = backend.numpy(network.nn.one_hot(target, 5, like=like))
        np.testing.assert_array_equal(
            found, np.moveaxis(np.eye(5)[labels], -1, 1), err_msg=str(shape)
        )
