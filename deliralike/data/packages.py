"""Import of optional packages on demand, with an error that says what to install."""

import importlib
from typing import Any

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
