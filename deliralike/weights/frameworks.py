"""File formats of the frameworks: they are listed without a framework, and read by its backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from deliralike.errors import BackendUnavailable
from deliralike.weights.framework_files import WeightFiles


def formats() -> list[tuple[str, WeightFiles]]:
    """Return the names of the backends, each with its file format."""
    return importlib.import_module("deliralike.backends").weight_files()


def find(fits: Callable[[WeightFiles], bool]) -> tuple[str, WeightFiles | None]:
    """Return the first format that fits, or an empty name and None."""
    for name, files in formats():
        if fits(files):
            return name, files
    return "", None


def backend(name: str, why: str) -> Any:
    """Return the backend of that name; if it cannot be loaded, the error says why it is needed."""
    try:
        return importlib.import_module("deliralike.backends").get(name)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"{why}: {error}") from error
