"""The files of a framework's own: which there are is known without it, reading them needs its backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deliralike.errors import BackendUnavailable

if TYPE_CHECKING:
    from deliralike.backends import WeightFiles


def formats() -> list[tuple[str, WeightFiles]]:
    """Backends by name, and what their files are."""
    return importlib.import_module("deliralike.backends").weight_files()


def find(fits: Callable[[WeightFiles], bool]) -> tuple[str, WeightFiles | None]:
    """The first that fits, or an empty name and None."""
    return next(((name, files) for name, files in formats() if fits(files)), ("", None))


def backend(name: str, why: str) -> Any:
    """The backend of that name; if it cannot be loaded, the error says what for it was."""
    try:
        return importlib.import_module("deliralike.backends").get(name)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"{why}: {error}") from error
