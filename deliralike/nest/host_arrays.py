"""Conversion of a batch's NumPy arrays before a backend takes them: one rule for all backends."""

from collections.abc import Callable
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.errors import DtypeError

_KEPT = "fiubc"  # numbers and truth values
_WIDEST = {"f": 8, "c": 16}  # bytes: float64 and complex128


def plain(array: np.ndarray, where: str = "an array") -> np.ndarray:
    """Return an array of numbers or truth values in this machine's byte order.

    An array that is so already is returned itself. Floating types longer than float64 become
    float64, bfloat16 becomes float32. Values do not change otherwise.

    Raises:
        DtypeError: The array holds objects, texts or dates, or masked elements.

    Example:
        >>> plain(np.arange(3, dtype=">i4")).dtype.isnative
        True
    """
    dtype = array.dtype
    is_plain_type = dtype.kind in _KEPT and dtype.isnative and dtype.itemsize <= 8
    if type(array) is np.ndarray and is_plain_type:
        return array
    if np.ma.is_masked(array):
        raise DtypeError(
            f"{where} has {np.ma.count_masked(array)} masked elements, of which a network would "
            "see what lies under the mask: fill them, array.filled(value), or leave those samples "
            "out"
        )
    array = np.asarray(array)
    if "float" in dtype.name and dtype.kind != "f":
        # bfloat16 and shorter ones, which NumPy itself lacks
        return array.astype(np.float32)
    if dtype.kind not in _KEPT:
        remedy = "convert it, such as by array.astype('float32')"
        first = array.flat[0] if array.size else None
        if isinstance(first, str | bytes):
            remedy = (
                "number the texts, labels = np.unique(texts, return_inverse=True)[1]"
            )
        raise DtypeError(
            f"{where} is an array of {dtype}, wanted numbers or truth values: {remedy}"
        )
    size = min(dtype.itemsize, _WIDEST.get(dtype.kind, dtype.itemsize))
    return array.astype(np.dtype(f"{dtype.kind}{size}"), copy=False)


def converted(
    batch: Any, convert: Callable[[Any], Any], is_native: Callable[[Any], bool]
) -> Any:
    """Return a batch with every leaf converted.

    Raises:
        DtypeError: `convert` raises it; the error has the path of the leaf.
    """
    try:
        # Most batches are tuples of arrays: flattening a nest costs more than a small step.
        if type(batch) is tuple and {*map(type, batch)} == {np.ndarray}:
            return tuple([convert(leaf) for leaf in batch])
        return nest.map(convert, batch)
    except DtypeError as error:
        raise _explained(error, batch, is_native) from None


def _explained(
    error: Exception, batch: Any, is_native: Callable[[Any], bool]
) -> Exception:
    """Return the error of the first leaf of a batch that no backend takes, with its path.

    Where every leaf is fine, `error` itself is returned.
    """
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        try:
            if isinstance(leaf, np.ndarray):
                plain(leaf, path)
            else:
                refuse_foreign(leaf, is_native, path)
        except DtypeError as leaf_error:
            return leaf_error
    return error


def refuse_foreign(
    value: Any, is_native: Callable[[Any], bool], where: str = "an array"
) -> Any:
    """Return a value that is not an array of another framework, unchanged.

    Raises:
        DtypeError: The value is an array of another framework.
    """
    is_array = hasattr(value, "__dlpack__") and not isinstance(value, np.generic)
    if is_array and not is_native(value):
        raise DtypeError(
            f"{where} is {nest.described(value)}, which this backend does not compute on: convert "
            "it to a NumPy array"
        )
    return value
