"""Functions of many elements in 16 bits: sums beyond 65504, the largest number of float16, and
positions and counts beyond those that 16 bits can tell apart. Wanted values are PyTorch's in double
precision, or written down."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike.nn.means import denominators

F = torch.nn.functional
SIDE = 300  # 90,000 elements
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(1, 3, SIDE, SIDE))
LABELS = RNG.integers(0, 3, (1, SIDE, SIDE))
ONE_HOT = np.moveaxis(np.eye(3)[LABELS], -1, 1)
CHANCES = np.full((1, 3, SIDE, SIDE), 0.5)
RISING = np.arange(3000) / 8.0
ZIGZAG = np.where(np.arange(3000) % 2, RISING, 0.0)


def labels(nn, x):
    return nn.constant(LABELS, like=x)


def one_hot(nn, x):
    return nn.constant(ONE_HOT, like=x)


def double(function, *arrays, **settings):
    return function(*map(torch.tensor, arrays), **settings).numpy()


def weighted():
    weight = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    return double(F.cross_entropy, LOGITS, LABELS, weight=weight)


# the call, its first array, and what is wanted
CASES = {
    "amax": (lambda nn, x: nn.amax(x), np.ones((SIDE, SIDE)), lambda: 1.0),
    "amin": (lambda nn, x: nn.amin(x), np.ones((SIDE, SIDE)), lambda: 1.0),
    "max": (lambda nn, x: nn.max(x), np.ones((SIDE, SIDE)), lambda: 1.0),
    "logsumexp": (
        lambda nn, x: nn.logsumexp(x, (0, 1)),
        np.zeros((SIDE, SIDE)),
        lambda: math.log(SIDE * SIDE),
    ),
    "nanmean": (
        lambda nn, x: nn.nanmean(x),
        np.full((SIDE, SIDE), 1e-3),
        lambda: 1e-3,
    ),
    "cumsum": (
        lambda nn, x: nn.cumsum(x, 0),
        np.ones(3000),
        lambda: np.arange(1.0, 3001.0),
    ),
    "cummax": (
        lambda nn, x: nn.cummax(x, 0).values,
        ZIGZAG,
        lambda: np.maximum.accumulate(ZIGZAG),
    ),
    "lp_pool": (
        lambda nn, x: nn.lp_pool2d(x, 2, 3),
        np.full((1, 1, 3, 3), 100.0),
        lambda: np.full((1, 1, 1, 1), 300.0),
    ),
    "avg_pool3d": (
        lambda nn, x: nn.avg_pool3d(x, 2),
        np.full((1, 2, 4, 4, 4), 3e4),
        lambda: np.full((1, 2, 2, 2, 2), 3e4),
    ),
    "cross_entropy": (
        lambda nn, x: nn.cross_entropy(x, labels(nn, x)),
        LOGITS,
        lambda: double(F.cross_entropy, LOGITS, LABELS),
    ),
    "weighted cross_entropy": (
        lambda nn, x: nn.cross_entropy(x, labels(nn, x), weight=[1.0, 2.0, 4.0]),
        LOGITS,
        weighted,
    ),
    "smoothed cross_entropy": (
        lambda nn, x: nn.cross_entropy(x, labels(nn, x), label_smoothing=0.1),
        LOGITS,
        lambda: double(F.cross_entropy, LOGITS, LABELS, label_smoothing=0.1),
    ),
    "log_softmax": (
        lambda nn, x: nn.log_softmax(x, 1),
        np.zeros((2, SIDE * SIDE)),
        lambda: np.full((2, SIDE * SIDE), -math.log(SIDE * SIDE)),
    ),
    "softmax": (
        lambda nn, x: nn.softmax(x, 1) * 1e4,
        np.zeros((2, SIDE * SIDE)),
        lambda: np.full((2, SIDE * SIDE), 1e4 / SIDE**2),
    ),
    "exp2": (
        lambda nn, x: nn.exp2(x) * 2.0**-14,
        np.array([14.0, 14.25, 14.75, 15.0]),
        lambda: 2.0 ** np.array([0.0, 0.25, 0.75, 1.0]),
    ),
    "gaussian_nll_loss": (
        lambda nn, x: nn.gaussian_nll_loss(x, x, x * 0.0),
        np.ones((2, 3)),
        lambda: 0.5 * math.log(1e-6),
    ),
    "nll_loss": (
        lambda nn, x: nn.nll_loss(nn.log_softmax(x, 1), labels(nn, x)),
        LOGITS,
        lambda: double(F.cross_entropy, LOGITS, LABELS),
    ),
    "focal_loss": (
        lambda nn, x: nn.focal_loss(x, labels(nn, x), gamma=0.0),
        LOGITS,
        lambda: double(F.cross_entropy, LOGITS, LABELS),
    ),
    "weighted mse_loss": (
        lambda nn, x: nn.mse_loss(x, x + 1.0, weight=x * 0.0 + 2.0),
        np.zeros((SIDE, SIDE)),
        lambda: 1.0,
    ),
    # of each class a third of the places, and half of all are predicted
    "dice_loss": (
        lambda nn, x: nn.dice_loss(x * 2.0, x * 0.0 + 1.0),
        CHANCES,
        lambda: 0.0,
    ),
    "generalized_dice_loss": (
        lambda nn, x: nn.generalized_dice_loss(x * 2.0, x * 0.0 + 1.0),
        CHANCES,
        lambda: 0.0,
    ),
    "tversky_loss": (
        lambda nn, x: nn.tversky_loss(x, one_hot(nn, x)),
        CHANCES,
        lambda: 1.0 - np.mean(ONE_HOT.mean((2, 3)) / (0.5 + ONE_HOT.mean((2, 3)))),
    ),
    "cosine_embedding_loss": (
        lambda nn, x: nn.cosine_embedding_loss(x, x, nn.constant(np.ones(2), like=x)),
        np.full((2, 5), 200.0),
        lambda: 0.0,
    ),
    "ctc_loss": (
        lambda nn, x: nn.ctc_loss(
            x, nn.constant(np.array([[1, 2]]), like=x), [300], [2]
        ),
        np.log(np.full((300, 1, 3), 1 / 3)),
        lambda: double(
            F.ctc_loss,
            np.log(np.full((300, 1, 3), 1 / 3)),
            np.array([[1, 2]]),
            input_lengths=torch.tensor([300]),
            target_lengths=torch.tensor([2]),
        ),
    ),
}


def types_of(backend):
    return [dtype for dtype in ("float16", "bfloat16") if dtype in backend.dtypes]


@pytest.mark.parametrize("case", CASES)
def test_sums_and_positions_of_many_elements_are_right(backend, case):
    call, values, wanted = CASES[case]
    for dtype in types_of(backend):
        found = call(backend.nn, backend.array(values, dtype))
        assert str(found.dtype).endswith(dtype)
        found = backend.numpy(backend.nn.cast(found, "float32"))
        near = 3e-3 if dtype == "float16" else 2e-2
        assert_allclose(found, wanted(), rtol=near, atol=near)


def test_positions_of_running_maxima_are_whole_numbers(backend):
    for dtype in (*types_of(backend), "float32"):
        for function in ("cummax", "cummin"):
            x = RISING if function == "cummax" else -RISING
            # numbers of 16 bits are rounded: of equal ones the last position counts
            exact = backend.nn.cast(backend.array(x[:, None], dtype), "float32")
            found = getattr(backend.nn, function)(backend.array(x[:, None], dtype), 0)
            wanted = getattr(torch, function)(
                torch.tensor(backend.numpy(exact)), 0
            ).indices
            assert "int" in str(found.indices.dtype)
            assert_array_equal(backend.numpy(found.indices), wanted.numpy())


def test_the_gradient_is_shared_by_many_equal_maxima(backend):
    x = backend.array(np.ones((SIDE, SIDE)), "float16")
    gradient = backend.numpy(backend.nn.gradient(backend.nn.amax, x))
    assert_allclose(gradient, 1.0 / SIDE**2, rtol=1e-2)


def test_the_denominator_of_a_mean_in_16_bits_is_known_and_finite(backend):
    nn = backend.nn
    x = backend.array(LOGITS, "float16")
    with denominators() as noted:
        entropy = nn.cross_entropy(x, labels(nn, x), weight=[1.0, 1.0, 1.0])
        dice = nn.dice_loss(x, one_hot(nn, x))
        other = nn.layer_norm(x, (SIDE,))
    assert float(backend.numpy(noted.of(entropy))) == SIDE * SIDE
    assert noted.of(dice) == 3
    assert noted.of(other) is None


GRADIENTS = {
    "binary_cross_entropy": (
        lambda f, x: f.binary_cross_entropy(x[0], x[0] * 0 + 1, reduction="sum"),
        [[-4.0, -2.0, -4 / 3], [0.0, 0.0, 0.0]],
    ),
    "smooth_l1_loss": (
        lambda f, x: f.smooth_l1_loss(x, x * 0, reduction="sum", beta=0.5),
        [[0.5, 1.0, 1.0], [1.0, -1.0, 1.0]],
    ),
    "huber_loss": (
        lambda f, x: f.huber_loss(x, x * 0, reduction="sum", delta=0.5),
        [[0.25, 0.5, 0.5], [0.5, -0.5, 0.5]],
    ),
}


@pytest.mark.parametrize("loss", GRADIENTS)
def test_a_branch_that_is_not_taken_leaves_no_nan_in_the_gradient(backend, loss):
    call, wanted = GRADIENTS[loss]
    for dtype in (*types_of(backend), "float32"):
        large = 400.0 if dtype == "float16" else 1e20
        x = backend.array(np.array([[0.25, 0.5, 0.75], [large, -large, 1.0]]), dtype)
        found = backend.nn.gradient(lambda x: call(backend.nn, x), x)
        found = backend.numpy(backend.nn.cast(found, "float32"))
        assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("function", ["asinh", "acosh"])
def test_an_inverse_of_a_large_number_is_small(backend, function):
    x = np.array([1.0, 300.0, 60000.0])
    found = backend.numpy(getattr(backend.nn, function)(backend.array(x, "float16")))
    assert_allclose(found, double(getattr(torch, function), x), rtol=2e-3)
