"""Nested containers: the only recursion over them, containers of other libraries, and the arrays of
a batch.
"""

from deliralike.nest.tree import (
    described,
    first_difference,
    flatten,
    graft,
    leaves,
    leaves_with_paths,
    map,
    same_structure,
    unflatten,
)

__all__ = [
    "described",
    "first_difference",
    "flatten",
    "graft",
    "leaves",
    "leaves_with_paths",
    "map",
    "same_structure",
    "unflatten",
]
