"""How far a candidate is from a reference: relative L2 differences of arrays by name.

Meant for float64, where right backends agree to about 1e-15 and the subtlest mistakes show at 1e-6
and above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from deliralike import nest
from deliralike.conformance.kinds import Named
from deliralike.weights.matching.distance import norm, wide
from deliralike.weights.matching.distance import (
    relative_difference as relative_difference,
)

K = TypeVar("K")  # names of tensors

# Below this fraction of the largest tensor's root mean square, a tensor holds rounding errors only.
NULL = 1e-12
# And gradients that differ by less than this fraction of it differ by the rounding of the large
# ones.
ROUNDING = 1e-15


@dataclass(frozen=True)
class Comparison:
    """One set of tensors against another.

    Attributes:
        difference: The largest relative difference of any tensor; infinite when a tensor is
            missing, of another shape or not finite on one side only.
        worst: The name of the tensor that has it; empty when nothing differs.
        null: Tensors that are zero up to rounding on both sides; their noise is not compared.
    """

    difference: float = 0.0
    worst: str = ""
    null: tuple[str, ...] = ()


def compare(reference: Named, candidate: Named, rounding: float = 0.0) -> Comparison:
    """Compare arrays by name, and find the one that differs most.

    A bias in front of a batch norm has a gradient of exactly zero, which shows as rounding noise
    that no two backends share. Tensors like it are listed as null; one that is null on one side
    only is compared as any other.

    Args:
        rounding: Differences below this fraction of the largest tensor's root mean square are none.

    Example:
        >>> compare({"a": np.array([3.0, 4.0]), "b": np.ones(2)}, {"a": np.array([3.0, 4.5]), "b": np.ones(2)})
        Comparison(difference=0.1, worst='a', null=())
    """
    found = differences(reference, candidate, rounding)
    null = tuple(
        sorted(name for name in {**reference, **candidate} if name not in found)
    )
    worst = max(found, key=found.__getitem__, default="")
    return Comparison(found.get(worst, 0.0), worst if found.get(worst) else "", null)


def differences(
    reference: Mapping[K, Any], candidate: Mapping[K, Any], rounding: float = 0.0
) -> dict[K, float]:
    """Return the relative difference of each tensor that is not null on both sides: see `compare`."""
    sizes = _sizes(reference)
    null = _null(sizes) & _null(_sizes(candidate))
    names = [name for name in {**reference, **candidate} if name not in null]
    floor = rounding * max(sizes.values(), default=0.0)
    found = {}
    for name in names:
        distance = relative_difference(reference.get(name), candidate.get(name))
        if distance * sizes.get(name, np.inf) <= floor:
            distance = 0.0
        found[name] = distance
    return found


def largest_difference(reference: Any, candidate: Any) -> float:
    """The largest relative difference of the arrays of two nests; infinite for two structures."""
    expected, actual = nest.leaves(reference), nest.leaves(candidate)
    if len(expected) != len(actual):
        return np.inf
    pairs = zip(expected, actual, strict=True)
    found = [relative_difference(x, y) for x, y in pairs if isinstance(x, np.ndarray)]
    return max(found, default=0.0)


def _sizes(tensors: Mapping[Any, Any]) -> dict[Any, float]:
    """The root mean square of each tensor whose numbers are all finite."""
    found = {}
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        value = wide(tensor)
        if np.isfinite(value).all():
            found[name] = norm(value) / max(1, value.size) ** 0.5
    return found


def _null(sizes: Mapping[Any, float]) -> set[Any]:
    """The names of tensors that are zero up to rounding, beside the largest of all."""
    largest = max(sizes.values(), default=0.0)
    return {name for name, size in sizes.items() if size <= NULL * largest}
