"""Data parallelism by heat's names: ``import deliralike.heat as ht`` is all that its users change."""

from typing import Any

from deliralike.heat import nn, optim
from deliralike.heat.communication import Communication, get_comm, own, sanitize_comm, use_comm, world

__all__ = ["Communication", "get_comm", "nn", "optim", "sanitize_comm", "use_comm"]


def __getattr__(name: str) -> Any:
    """MPI begins when its communicators are asked for, not when this is imported."""
    if name == "MPI_WORLD":
        return world()
    if name == "MPI_SELF":
        return own()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
