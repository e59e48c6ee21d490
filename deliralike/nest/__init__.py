"""Nested containers: the only recursion over them, and the arrays that they hold."""

from deliralike.nest.tree import (
    SplitNest,
    described,
    first_difference,
    flatten,
    graft,
    leaves,
    leaves_with_paths,
    map,
    map_where,
    path_of,
    split,
    unflatten,
)

__all__ = [
    "SplitNest",
    "described",
    "first_difference",
    "flatten",
    "graft",
    "leaves",
    "leaves_with_paths",
    "map",
    "map_where",
    "path_of",
    "split",
    "unflatten",
]
