"""Agreement: planted differences are found and named, exact zeros are not."""

import numpy as np
import pytest

from deliralike import conformance
from deliralike.conformance.agreement import compare


def test_the_worst_tensor_is_named():
    reference = {"a": np.ones(4), "b": np.array([3.0, 4.0])}
    found = compare(
        reference, {"a": np.ones(4) * (1 + 1e-9), "b": np.array([3.0, 4.0 + 5e-8])}
    )
    assert (found.worst, found.difference) == ("b", pytest.approx(1e-8, rel=1e-6))


def test_a_gradient_that_vanishes_on_one_side_only_is_no_null_gradient():
    found = compare(
        {"a": np.ones(2), "b": np.full(2, 1e-20)}, {"a": np.ones(2), "b": np.ones(2)}
    )
    assert (found.worst, found.null) == ("b", ())


@pytest.mark.parametrize(
    "candidate", [{}, {"a": None}, {"a": np.ones(3)}, {"a": np.array([1.0, np.nan])}]
)
def test_what_is_missing_shaped_otherwise_or_not_finite_is_infinitely_far(candidate):
    assert compare({"a": np.ones(2)}, candidate).difference == np.inf


def test_numbers_whose_squares_underflow_are_compared():
    assert conformance.relative_difference(
        [3e-300, 4e-300], [3e-300, 4.5e-300]
    ) == pytest.approx(0.1)
