"""Where the gradient of code between layers is cut off, though its values are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.wiring_made import mixed
from deliralike.conformance.findings import MATCH, Explanation
from deliralike.conformance.places import Tap

_MOST_CUT = 2  # ways of one source that are cut off at once


@dataclass(frozen=True)
class Use:
    """An array that goes into a tap or out of the unit, with the gradient that comes back."""

    name: Tap
    array: np.ndarray
    gradient: np.ndarray


def gradients(
    named: Mapping[str, tuple[Any, Any]], sources: Mapping[str, np.ndarray], uses: Sequence[Use]
) -> Explanation | None:
    """Why gradients of sources differ: cut off on the way to some uses, or with a factor."""
    parts: list[tuple[float, str]] = []
    for name, (mine, theirs) in named.items():
        if relative_difference(mine, theirs) > MATCH:
            parts.append(min(_ways(name, np.asarray(mine), np.asarray(theirs), sources, uses)))
    if not parts:
        return None
    return Explanation("; ".join(words for _, words in parts), max(match for match, _ in parts))


def _ways(
    name: str,
    mine: np.ndarray,
    theirs: np.ndarray,
    sources: Mapping[str, np.ndarray],
    uses: Sequence[Use],
) -> Iterator[tuple[float, str]]:
    if not theirs.any():
        yield 0.0, f"no gradient through {name} (detached)"
        return
    size = float(np.vdot(mine, mine))
    factor = float(np.vdot(mine, theirs)) / size if size else 0.0
    yield relative_difference(theirs, factor * mine), f"gradient of {name} times {factor:.6g}"
    back = list(_back(name, mine.shape, sources, uses))
    for count in range(1, min(_MOST_CUT, len(back)) + 1):
        for cut in combinations(back, count):
            left = mine - sum(gradient for _, gradient in cut)
            off = relative_difference(theirs, left)
            yield (
                off,
                f"no gradient through {name} into {' and '.join(str(use) for use, _ in cut)} (detached "
                "there)",
            )


def _back(
    name: str, shape: tuple[int, ...], sources: Mapping[str, np.ndarray], uses: Sequence[Use]
) -> Iterator[tuple[Tap, np.ndarray]]:
    """The part of a source's gradient that comes from each use: of itself, or of a sum with it."""
    source = sources.get(name)
    for use in uses:
        if (
            source is None
            or use.array.shape != shape
            or use.gradient.shape != shape
            or not use.gradient.any()
        ):
            continue
        if np.array_equal(use.array, source):
            yield use.name, use.gradient
            continue
        made = mixed(sources, use.array)
        if made and name in made.terms and relative_difference(use.array, made.array) <= MATCH:
            yield use.name, made.terms[name] * use.gradient
