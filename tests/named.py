"""Arrays by name, such as weights and gradients, compared with others of the same names."""

import numpy as np


def assert_equal(found, wanted):
    """Every array that is wanted is there, with the same values."""
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=str(name))


def assert_close(found, wanted, rtol=1e-12, atol=1e-12):
    """Every array that is wanted is there, with nearly the same values."""
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=rtol, atol=atol, err_msg=str(name))
