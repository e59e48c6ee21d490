"""Numbers and axes of NumPy, such as those of `np.prod` and `np.argmax`, count as Python's."""

import numpy as np
import pytest
import torch

X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
NUMBERS = [np.float32(0.5), np.float64(1.5), np.float16(2.0), np.int64(3), np.int32(2)]
OF_A_NUMBER = {
    **{
        name: lambda nn, x, number, name=name: getattr(nn, name)(x, number)
        for name in ("add", "mul", "div", "remainder", "eq", "gt", "xlogy")
    },
    "pow": lambda nn, x, number: nn.pow(nn.abs(x), number),
    "clamp": lambda nn, x, number: nn.clamp(x, -number, number),
    "lerp": lambda nn, x, number: nn.lerp(x, x + 1.0, number),
    "where": lambda nn, x, number: nn.where(x > 0, x, number),
    "where, first": lambda nn, x, number: nn.where(x > 0, number, x),
    "masked_fill": lambda nn, x, number: nn.masked_fill(x, x > 0, number),
}
AXIS = np.int64(1)
ALONG = {
    **{
        name: lambda nn, x, axis, name=name: getattr(nn, name)(x, axis)
        for name in ("sum", "mean", "amax", "argmax", "cumsum", "var", "logsumexp")
    },
    "max": lambda nn, x, axis: nn.max(x, axis)[0],
    "min": lambda nn, x, axis: nn.min(x, axis)[1],
    "softmax": lambda nn, x, axis: nn.softmax(x, axis),
    "sum over two": lambda nn, x, axis: nn.sum(x, (axis, axis - 1)),
    "flip": lambda nn, x, axis: nn.flip(x, (axis,)),
}


def compare(backend, function, argument, theirs):
    with np.errstate(all="ignore"):
        found = backend.numpy(function(backend.nn, backend.array(X), argument))
    wanted = function(torch, torch.tensor(X), theirs).numpy()
    assert found.dtype == wanted.dtype or found.dtype.kind in "iu"
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.dtype)
@pytest.mark.parametrize("function", OF_A_NUMBER)
def test_a_number_of_numpy_is_a_number(backend, function, number):
    compare(backend, OF_A_NUMBER[function], number, number.item())


@pytest.mark.parametrize("function", ALONG)
def test_an_axis_of_numpy_is_an_axis(backend, function):
    compare(backend, ALONG[function], AXIS, int(AXIS))


def test_a_number_of_numpy_is_scattered(backend):
    index = backend.array(np.array([[0, 2]]))
    found = backend.nn.scatter(backend.array(X), 1, index, np.float32(7.0))
    wanted = torch.tensor(X).scatter(1, torch.tensor([[0, 2]]), 7.0)
    np.testing.assert_array_equal(backend.numpy(found), wanted.numpy())
