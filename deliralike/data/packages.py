"""Import of optional packages on demand, with an error that says what to install."""

import importlib
from typing import Any

import numpy as np

from deliralike.errors import DataUnavailable


def needed(module: str, *, package: str, extra: str | None, purpose: str) -> Any:
    """Import and return the module of that name.

    Args:
        package: The package that contains the module, as its authors call it.
        extra: The extra of deliralike that installs the package; None where none does.
        purpose: The feature that needs the module, as the beginning of a sentence.

    Raises:
        DataUnavailable: It cannot be imported; the message says how to install it.

    Example:
        >>> needed("json", package="json", extra="data", purpose="reading settings").loads("[1]")
        [1]
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        installed = f"pip install {package}"
        if extra is not None:
            installed = f"pip install 'deliralike[{extra}]'"
        raise DataUnavailable(
            f"{purpose} needs the package {package!r}, which cannot be imported here ({error}): "
            f"{installed}"
        ) from error


def for_scipy(array: np.ndarray) -> np.ndarray:
    """Return an array in a type that ``scipy.ndimage`` takes, which has no half precision."""
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype == bool:
        return array.astype(np.uint8)
    return array
