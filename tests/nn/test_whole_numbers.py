"""Functions by order, sums and products of short whole numbers: values are PyTorch's."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from deliralike.errors import DtypeError, IndexRangeError, OperationError

ARRAYS = {
    "uint8": np.array([3, 0, 255, 1, 0, 200], np.uint8),
    "int8": np.array([3, -128, 127, -1, -128, 100], np.int8),
    "int32": np.array([3, -(2**31), 2**31 - 1, 0], np.int32),
}
BY_ORDER = {
    "min": lambda nn, x: nn.min(x),
    "min along an axis": lambda nn, x: nn.min(x, 0)[0],
    "amin": lambda nn, x: nn.amin(x, 0),
    "argmin": lambda nn, x: nn.argmin(x, 0),
    "aminmax": lambda nn, x: nn.aminmax(x)[0],
    "cummin": lambda nn, x: nn.cummin(x, 0)[0],
    "sort": lambda nn, x: nn.sort(x, 0, True)[0],
    "topk": lambda nn, x: nn.topk(x, 3)[0],
    "median": lambda nn, x: nn.median(x),
}
SUMS = {
    "sum": lambda nn, x: nn.sum(x),
    "cumsum": lambda nn, x: nn.cumsum(x, 0),
    "prod": lambda nn, x: nn.prod(x[-2:] + 1),
    "cumprod": lambda nn, x: nn.cumprod(x[:3] - 1, 0),
}


def check(backend, function, array):
    found = backend.numpy(function(backend.nn, backend.array(array)))
    assert_array_equal(found, function(torch, torch.tensor(array)).numpy())


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("function", BY_ORDER)
def test_the_smallest_number_of_a_type_is_the_smallest(backend, function, array):
    check(backend, BY_ORDER[function], ARRAYS[array])


@pytest.mark.parametrize("array", ["uint8", "int8"])
@pytest.mark.parametrize("function", SUMS)
def test_sums_and_products_of_short_numbers_do_not_wrap(backend, function, array):
    check(backend, SUMS[function], ARRAYS[array])


BEYOND = {
    "add": lambda nn, x: nn.add(x, 300),
    "mul": lambda nn, x: nn.mul(x, -1),
    "clamp": lambda nn, x: nn.clamp(x, -1, 100),
    "maximum": lambda nn, x: nn.maximum(x, 300),
    "where": lambda nn, x: nn.where(x > 2, x, 300),
    "masked_fill": lambda nn, x: nn.masked_fill(x, x > 2, -1),
    "floor_divide": lambda nn, x: nn.floor_divide(x, -1),
}


@pytest.mark.parametrize("function", BEYOND)
def test_a_number_that_a_type_does_not_have_is_refused(backend, function):
    with pytest.raises(DtypeError, match=r"an array of uint8 cannot hold (300|-1)"):
        BEYOND[function](backend.nn, backend.array(ARRAYS["uint8"]))


@pytest.mark.parametrize("number", [-1, 300])
@pytest.mark.parametrize("function", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_a_number_that_a_type_does_not_have_is_compared_as_it_is(
    backend, function, number
):
    array = ARRAYS["uint8"]
    found = getattr(backend.nn, function)(backend.array(array), number)
    wanted = getattr(torch, function)(torch.tensor(array).long(), number)
    assert_array_equal(backend.numpy(found), wanted.numpy())


TABLE = np.arange(12.0).reshape(4, 3)
LABELS = np.array([2, 100, 0, 1])  # 100 is ignored
ROWS = np.array([3, 0])
BY_INDEX = {
    "cross_entropy": (
        lambda nn, x, index: nn.cross_entropy(x**1.5, index, ignore_index=100),
        LABELS,
        torch.nn.functional.cross_entropy(
            torch.tensor(TABLE**1.5), torch.tensor(LABELS), ignore_index=100
        ),
    ),
    "embedding": (lambda nn, x, index: nn.embedding(index, x), ROWS, TABLE[ROWS]),
    "index_select": (
        lambda nn, x, index: nn.index_select(x, 0, index),
        ROWS,
        TABLE[ROWS],
    ),
    "gather": (
        lambda nn, x, index: nn.gather(x, 0, index),
        ROWS[:, None],
        TABLE[ROWS, :1],
    ),
    "scatter_add": (
        lambda nn, x, index: nn.scatter_add(x, 0, index, x[:1, :2])[0, :2],
        ROWS[None] * 0,
        2 * TABLE[0, :2],
    ),
}


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
@pytest.mark.parametrize("function", BY_INDEX)
def test_short_whole_numbers_are_labels_and_positions(backend, function, dtype):
    ours, index, wanted = BY_INDEX[function]
    table, index = backend.array(TABLE, "float64"), backend.array(index.astype(dtype))
    found = backend.numpy(ours(backend.nn, table, index))
    assert_allclose(found, np.asarray(wanted), rtol=1e-12)


def test_no_function_counts_positions_from_the_end(backend):
    x = backend.array(TABLE, "float64")
    index = backend.array(np.array([[0, -1]]))
    for function in (backend.nn.scatter_add, backend.nn.scatter):
        with pytest.raises((IndexRangeError, OperationError), match="-1"):
            function(x, 1, index, x[:1, :2])


def test_a_constant_that_a_backend_cannot_hold_is_refused(backend):
    like = backend.array(TABLE, "float32")
    large = np.array([2**40, 3])
    try:
        found = backend.numpy(backend.nn.constant(large, like=like))
    except IndexRangeError as error:
        assert backend.name == "jax"
        assert "the whole number 1099511627776 does not fit int32" in str(error)
    else:
        assert_array_equal(found, large)


def test_products_by_an_equation_take_whole_numbers_and_no_truth_values(backend):
    x = np.arange(6).reshape(2, 3)
    for other, wanted in ((x, "int"), (x * 0.5, "float")):
        y = backend.nn.einsum("ij,kj->ik", backend.array(x), backend.array(other))
        assert wanted in str(y.dtype)
        assert_array_equal(backend.numpy(y), x @ other.T)
    with pytest.raises(DtypeError, match="einsum: got an array of bool"):
        backend.nn.einsum("ij->i", backend.array(x > 2))
