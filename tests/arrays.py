"""Mappings of arrays: states, gradients, moments."""

import numpy as np


def same_named(found, wanted, tolerance=1e-12, where=""):
    """The same names, and arrays of the same shape, type and numbers, or None in both."""
    assert found.keys() == wanted.keys(), where
    for name, value in wanted.items():
        message = f"{where}: {name}"
        if value is None:
            assert found[name] is None, message
            continue
        np.testing.assert_allclose(
            found[name], value, tolerance, tolerance, err_msg=message, strict=True
        )
