"""Functions of very large, very small and infinite numbers in float32: values are PyTorch's."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

SIZES = [1e-12, 1e-5, 0.1, 0.3, 1.0, 2.5, 7.0, 20.0, 95.0, 1e10, 1e25, np.inf]
NUMBERS = np.array([0.0, *SIZES, *(-size for size in SIZES)], np.float32)
FIRST, SECOND = (
    pairs.ravel() for pairs in np.meshgrid(NUMBERS, NUMBERS, indexing="ij")
)
ARE_FINITE = np.isfinite(FIRST) & np.isfinite(SECOND)


def compare(backend, function, *arrays):
    given = [backend.array(array) for array in arrays]
    with np.errstate(all="ignore"):
        found = backend.numpy(function(backend.nn, *given))
    wanted = function(torch, *map(torch.tensor, arrays)).numpy()
    assert_allclose(found, wanted, rtol=1e-5, atol=1e-36)


@pytest.mark.parametrize("function", ["sinh", "cosh", "asinh", "tanh", "expm1"])
def test_no_number_in_between_overflows(backend, function):
    compare(backend, lambda nn, x: getattr(nn, function)(x), NUMBERS)


@pytest.mark.parametrize("function", ["hypot", "fmod", "remainder", "xlogy"])
def test_pairs_of_any_size_and_infinite_ones(backend, function):
    compare(backend, lambda nn, x, y: getattr(nn, function)(x, y), FIRST, SECOND)


def test_the_root_of_squares_that_are_too_small(backend):
    small = NUMBERS[np.isfinite(NUMBERS)] * np.float32(1e-18)
    compare(
        backend,
        lambda nn, x, y: nn.hypot(x, y),
        small[small != 0],
        small[small != 0],
    )


def test_an_angle_of_a_point_that_is_infinitely_far(backend):
    is_corner = np.isinf(FIRST) & np.isinf(SECOND)
    arrays = FIRST[~is_corner], SECOND[~is_corner]
    compare(backend, lambda nn, x, y: nn.atan2(x, y), *arrays)


@pytest.mark.parametrize("number", [0.1, -0.3, 3, 1e10, np.inf])
@pytest.mark.parametrize("function", ["floor_divide", "remainder", "fmod"])
def test_a_quotient_is_rounded_down_before_it_is_rounded(backend, function, number):
    finite = NUMBERS[np.isfinite(NUMBERS)]  # 1 // 0.1 is 9
    compare(backend, lambda nn, x: getattr(nn, function)(x, number), finite)


def test_quotients_of_pairs_are_rounded_down(backend):
    arrays = FIRST[ARE_FINITE], SECOND[ARE_FINITE]
    compare(backend, lambda nn, x, y: nn.div(x, y, rounding_mode="floor"), *arrays)


def test_the_power_of_an_unknown_exponent_is_unknown(backend):
    compare(
        backend,
        lambda nn, x, y: nn.pow(x, y),
        NUMBERS,
        np.full_like(NUMBERS, np.nan),
    )


def test_remainders_have_a_derivative(backend):
    x, y = np.array([7.3, -7.3, 2.5]), np.array([2.0, 2.0, -0.7])

    def total(nn, x):
        return nn.sum(nn.remainder(x[0], x[1]) * x[0] + nn.fmod(x[0], x[1]) * x[1])

    given = backend.array(np.stack([x, y]), "float64")
    found = backend.nn.gradient(lambda z: total(backend.nn, z), given)
    tensor = torch.tensor(np.stack([x, y]), requires_grad=True)
    total(torch, tensor).backward()
    assert_allclose(backend.numpy(found), tensor.grad.numpy(), rtol=1e-12)


def test_a_number_is_written_to_a_position_that_is_given_twice(backend):
    index = np.array([[0, 0, 3], [1, 1, 1]])
    x = backend.array(np.zeros((2, 4), np.float32))
    found = backend.nn.scatter(x, 1, backend.array(index), 1.0)
    wanted = torch.zeros(2, 4).scatter(1, torch.tensor(index), 1.0)
    assert_array_equal(backend.numpy(found), wanted.numpy())


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_an_interpolation_ends_at_its_end_however_far_it_began(backend, weight):
    arrays = FIRST[ARE_FINITE], SECOND[ARE_FINITE]
    compare(backend, lambda nn, x, y: nn.lerp(x, y, weight), *arrays)
    weights = np.full_like(arrays[0], weight)
    compare(backend, lambda nn, x, y, w: nn.lerp(x, y, w), *arrays, weights)


def test_the_logarithm_of_a_softmax_is_exact_where_its_scores_are_large(backend):
    scores = (np.arange(12.0).reshape(3, 4) % 5 / 8 + 2.0**13).astype(np.float32)
    found = backend.numpy(backend.nn.log_softmax(backend.array(scores), 1))
    wanted = torch.tensor(scores, dtype=torch.float64).log_softmax(1)
    assert_allclose(found, wanted.numpy(), rtol=1e-6)
