"""Functions that move, join, gather and multiply."""

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.nn.agreement import (
    NAMES,
    FunctionCase,
    agree_all,
    get,
    hold,
    normal,
    numbers,
    property_test,
)

X = normal(0, 3, 4, 5)


@st.composite
def paddings(draw):
    count = draw(st.integers(1, 3))
    mode = draw(st.sampled_from(["constant", "reflect", "replicate"]))
    return mode, [(draw(st.integers(-1, 2)), draw(st.integers(-1, 2))) for _ in range(count)]


@property_test(10, case=paddings(), value=st.sampled_from([0.0, -2.5]), seed=numbers)
def test_asymmetric_and_negative_padding_agrees_with_numpys(case, value, seed):
    mode, pads = case
    x = normal(seed, 3, 4, 5)
    before = [(0, 0)] * (3 - len(pads)) + pads
    index = np.arange(60).reshape(
        x.shape
    )  # which element each element of the result comes from, -1 for the constant
    more = [(max(0, b), max(0, a)) for b, a in before]
    if mode == "constant":
        source = np.pad(index, more, constant_values=-1)
    else:
        source = np.pad(index, more, mode={"reflect": "reflect", "replicate": "edge"}[mode])
    inner = tuple(
        slice(max(0, -b), m - max(0, -a)) for (b, a), m in zip(before, source.shape, strict=True)
    )
    source = torch.tensor(source[inner])

    def theirs(x):
        return torch.where(
            source < 0, value if mode == "constant" else 0.0, x.flatten()[source.clamp(min=0)]
        )

    return FunctionCase(lambda nn, x: nn.pad(x, pads, mode, value), theirs, [x])


def taking(dim, index):
    axis = dim % 3

    def theirs(x):
        flat = x.index_select(axis, torch.tensor(index.reshape(-1)))
        return flat.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])

    return FunctionCase(lambda nn, x, i: nn.take(x, i, dim), lambda x, i: theirs(x), [X, index])


INDICES = {"1-d": np.array([2, 0, 2]), "2-d": np.array([[1, 0], [2, 2]]), "0-d": np.array(1)}


@pytest.mark.parametrize("name", NAMES)
def test_taking_elements_along_an_axis_agrees_with_numpys(name):
    agree_all(
        name,
        {
            f"{label} along {dim}": taking(dim, INDICES[label])
            for label in INDICES
            for dim in (0, 1, -1)
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_casts_have_the_type_asked_for(name):
    backend, network, numbers = get(name), hold(name), np.array([0.0, 1.0, -2.0])
    (x,) = backend.prepare((numbers,), network)
    for dtype in ("float32", "float64", "int64", "bool"):
        found = backend.numpy(network.nn.cast(x, dtype))
        np.testing.assert_array_equal(found, numbers.astype(dtype), err_msg=dtype, strict=True)
