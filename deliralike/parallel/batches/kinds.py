"""The only place that sorts the leaves of a nest: arrays of the backend, arrays of NumPy, others.

It is done once for each sequence of types, since the nests of a training run are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.nest.arrays import Arrays

_MOST = 256  # sequences of types that are remembered


@dataclass(frozen=True, kw_only=True)
class Kinds:
    """The kinds of the leaves of a nest.

    An array that the backend computes on is native, even where it is NumPy's.

    Attributes:
        types: The type of each leaf.
        is_native: Whether each leaf is an array of the backend.
        is_array: Whether each leaf is an array of the backend or of NumPy.
        all_native, all_host: Whether all leaves are native, or arrays of NumPy and not native.
        all_plain: Whether they are the latter, and of no subclass.
    """

    types: tuple[type, ...]
    is_native: tuple[bool, ...]
    is_array: tuple[bool, ...]
    all_native: bool
    all_host: bool
    all_plain: bool


def kinds_of(leaves: Sequence[Any], backend: Arrays | None) -> Kinds:
    """Return the kinds of leaves; the backend is asked about one leaf of each type."""
    types = tuple(map(type, leaves))
    kinds = _known.get((types, backend))
    if kinds is None:
        kinds = _sorted(types, leaves, backend)
        if len(_known) >= _MOST:
            _known.clear()
        _known[types, backend] = kinds
    return kinds


def _sorted(
    types: tuple[type, ...], leaves: Sequence[Any], backend: Arrays | None
) -> Kinds:
    native_types = set()
    host_types = set()
    for cls, leaf in dict(zip(types, leaves, strict=True)).items():
        if backend is not None and backend.is_array(leaf):
            native_types.add(cls)
        elif isinstance(leaf, np.ndarray):
            host_types.add(cls)
    array_types = native_types | host_types
    return Kinds(
        types=types,
        is_native=tuple(map(native_types.__contains__, types)),
        is_array=tuple(map(array_types.__contains__, types)),
        all_native=native_types.issuperset(types),
        all_host=host_types.issuperset(types),
        all_plain=host_types.issuperset(types) and {*types} == {np.ndarray},
    )


_known: dict[tuple[tuple[type, ...], Arrays | None], Kinds] = {}
