"""Functions that move, join, gather and multiply."""

import math

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike import Network, build
from deliralike.errors import DeliralikeError, ShapeError
from tests.nn.agreement import (
    get,
    hold,
)


def test_casts_have_the_type_asked_for(name):
    backend, network, numbers = get(name), hold(name), np.array([0.0, 1.0, -2.0])
    (x,) = backend.prepare((numbers,), network)
    for dtype in ("float32", "float64", "int64", "bool"):
        found = backend.numpy(network.nn.cast(x, dtype))
        assert_array_equal(found, numbers.astype(dtype), err_msg=dtype, strict=True)


INDICES = [
    1,
    (slice(None), -1),
    (..., slice(1, 4, 2)),
    (slice(0, 2), slice(-2, None)),
    (0, slice(None), 2),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_elements_are_replaced_in_a_copy_as_numpy_replaces_them(name, index):
    backend, generator = get(name), np.random.default_rng(0)
    x, weight = generator.normal(size=(2, 3, 3, 5))
    value = generator.normal(size=x[index].shape)

    def loss(network, x, value):
        return network.nn.sum(
            network.nn.set_at(x, index, value) * backend.array(weight)
        )

    found = backend.gradients(
        loss, build(Network.on(backend), dtype="float64"), x, value
    )
    wanted, kept = x.copy(), weight.copy()
    wanted[index], kept[index] = value, 0.0
    assert_allclose(found.loss, (wanted * weight).sum(), rtol=1e-12)
    for got, gradient in zip(found.inputs, (kept, weight[index]), strict=True):
        assert_allclose(got, gradient, rtol=1e-12)


def test_one_number_replaces_elements_of_any_type_and_those_of_a_mask(network):
    backend = network.backend
    for numbers in (np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3)):
        x, mask = backend.prepare((numbers, numbers > 3), network)
        wanted = numbers.copy()
        wanted[:, 1:] = 7
        found = backend.numpy(network.nn.set_at(x, (slice(None), slice(1, None)), 7))
        assert_array_equal(found, wanted)
        none = backend.numpy(network.nn.set_at(x, slice(1, 1), 7))
        assert_array_equal(none, numbers)
        masked = backend.numpy(network.nn.set_at(x, mask, 7))
        assert_array_equal(masked, np.where(numbers > 3, 7, numbers))
        assert_array_equal(backend.numpy(x), numbers)


@pytest.mark.parametrize(
    ("index", "value"), [(5, 1.0), ((0, 0, 0), 1.0), (0, np.ones(4))]
)
def test_elements_that_are_not_there_and_values_that_do_not_fit_are_refused(
    network, index, value
):
    backend = network.backend
    (x,) = backend.prepare((np.ones((2, 3)),), network)
    value = backend.prepare((value,), network)[0] if np.ndim(value) else value
    with pytest.raises(DeliralikeError, match="set_at|broadcast_to"):
        network.nn.set_at(x, index, value)


def test_minus_one_keeps_the_size_of_an_axis(network):
    x = np.arange(6.0).reshape(3, 1, 2)
    backend = network.backend
    (given,) = backend.prepare((x,), network)
    found = backend.numpy(network.nn.broadcast_to(given, (4, -1, 5, -1)))
    assert_array_equal(found, np.broadcast_to(x, (4, 3, 5, 2)))
    for shape in ((-1, 3, 1, 2), (3, 2)):
        with pytest.raises(DeliralikeError, match="broadcast_to: cannot be computed"):
            network.nn.broadcast_to(given, shape)


@pytest.mark.parametrize("sizes", [(), (2, 3)])
def test_pixels_are_shuffled_whatever_axes_come_before_them(network, sizes):
    x = np.arange(math.prod(sizes) * 4 * 6.0).reshape(*sizes, 4, 2, 3)
    backend = network.backend
    (given,) = backend.prepare((x,), network)
    y = network.nn.pixel_shuffle(given, 2)
    wanted = torch.nn.functional.pixel_shuffle(torch.tensor(x), 2)
    assert_array_equal(backend.numpy(y), wanted.numpy())
    back = backend.numpy(network.nn.pixel_unshuffle(y, 2))
    assert_array_equal(back, x)
    for function in ("pixel_shuffle", "pixel_unshuffle"):
        with pytest.raises(ShapeError, match=f"{function}: got .* wanted .*channels"):
            getattr(network.nn, function)(y[(0,) * len(sizes) + (0,)], 2)
