"""Functions that move, join, gather and multiply."""

import numpy as np
import pytest

from tests.nn.agreement import (
    NAMES,
    get,
    hold,
)


@pytest.mark.parametrize("name", NAMES)
def test_casts_have_the_type_asked_for(name):
    backend, network, numbers = get(name), hold(name), np.array([0.0, 1.0, -2.0])
    (x,) = backend.prepare((numbers,), network)
    for dtype in ("float32", "float64", "int64", "bool"):
        found = backend.numpy(network.nn.cast(x, dtype))
        np.testing.assert_array_equal(found, numbers.astype(dtype), err_msg=dtype, strict=True)
