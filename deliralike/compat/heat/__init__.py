"""Data parallelism under heat's names.

``import deliralike.compat.heat as ht`` is all that heat's users change.
"""

import importlib
from typing import Any

from deliralike.compat.heat import nn, optim
from deliralike.compat.heat.communication import (
    Communication,
    get_comm,
    of_this_process,
    sanitize_comm,
    use_comm,
    world,
)

__all__ = ["Communication", "get_comm", "nn", "optim", "sanitize_comm", "use_comm"]


def __getattr__(name: str) -> Any:
    """Return a communicator of MPI, or an attribute of heat where it is installed.

    The first access to a communicator initializes MPI. Arrays and loaders are heat's own.
    """
    if name == "MPI_WORLD":
        return world()
    if name == "MPI_SELF":
        return of_this_process()
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        heat = importlib.import_module("heat")
    except ImportError as error:
        raise AttributeError(
            f"{__name__} has heat's data parallelism; {name!r} would be heat's own, which cannot "
            f"be imported here ({error}): pip install heat, or use what deliralike.data has for it"
        ) from error
    return getattr(heat, name)
