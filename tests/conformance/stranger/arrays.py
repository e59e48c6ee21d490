"""Arrays are NumPy's; within a gradient they are autograd's boxes around them."""

import autograd.numpy as anp
import numpy as np
from autograd.tracer import getval, isbox

DTYPES = ("float32", "float64")


def array(value, dtype=None, device=None):
    """A copy, so that no one else's storage is changed."""
    if isbox(value):
        return value if dtype is None else value.astype(dtype)
    return np.array(value, dtype=dtype, order="C")


def numpy(value):
    """A copy without any graph."""
    return np.array(getval(value))


def is_array(value):
    """Whether it is an array, traced or not; NumPy's scalars are what sums give."""
    return isbox(value) or isinstance(value, np.ndarray | np.generic)


def split(value, sizes, dim, devices):
    """Slices along an axis."""
    if len(sizes) == 1:
        return [value]
    ends, before = np.cumsum(sizes), (slice(None),) * (dim % value.ndim)
    return [value[(*before, slice(end - size, end))] for end, size in zip(ends, sizes)]


def concatenate(values, dim, device=None):
    """One device: nothing has to move."""
    return anp.concatenate(list(values), dim)


def stack(values, device=None):
    """Along a new first axis."""
    return anp.stack(list(values))
