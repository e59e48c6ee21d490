"""Where the gradient of code between layers is cut off, though its values are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.formulas import mixed
from deliralike.conformance.findings import MATCH, Explanation
from deliralike.conformance.kinds import Arrays, Shape
from deliralike.conformance.places import Tap

_PER_NUMBER = 4  # elements of a gradient, so that a factor that fits means something
_MOST_CUT = 2  # ways of one source that are cut off at once


@dataclass(frozen=True)
class Use:
    """An array that goes into a tap or out of the unit, with the gradient that comes back."""

    name: Tap
    array: np.ndarray
    gradient: np.ndarray


def gradients(
    named: Mapping[str, tuple[Any, Any]], sources: Arrays, uses: Sequence[Use]
) -> Explanation | None:
    """Why gradients of sources differ: cut off on the way to some uses, or with a factor."""
    parts: dict[str, list[str]] = {}
    worst = 0.0
    for name, (mine, theirs) in named.items():
        if relative_difference(mine, theirs) > MATCH:
            ways = _ways(name, np.asarray(mine), np.asarray(theirs), sources, uses)
            match, words = min(ways, key=lambda way: way[0], default=(np.inf, ""))
            parts.setdefault(words, []).append(name)
            worst = max(worst, match)
    if not parts:
        return None
    several = (words.replace("{}", " and ".join(names)) for words, names in parts.items())
    return Explanation("; ".join(several), worst)


def _ways(
    name: str,
    mine: np.ndarray,
    theirs: np.ndarray,
    sources: Arrays,
    uses: Sequence[Use],
) -> Iterator[tuple[float, str]]:
    if not theirs.any():
        nothing = np.zeros_like(theirs)
        yield relative_difference(theirs, nothing), "no gradient through {} (detached)"
        return
    size = float(np.vdot(mine, mine))
    factor = float(np.vdot(mine, theirs)) / size if size else 0.0
    if mine.size >= _PER_NUMBER:
        yield relative_difference(theirs, factor * mine), f"gradient of {{}} times {factor:.6g}"
    back = list(_back(name, mine.shape, sources, uses))
    for count in range(1, min(_MOST_CUT, len(back)) + 1):
        for some in combinations(back, count):
            taps = " and ".join(str(use) for use, _ in some)
            through = sum(gradient for _, gradient in some)
            cut = f"no gradient through {{}} into {taps} (detached there)"
            yield relative_difference(theirs, mine - through), cut
            more = f"a gradient through {{}} into {taps}, which is not stopped there (detached)"
            yield relative_difference(theirs, mine + through), more


def _back(
    name: str, shape: Shape, sources: Arrays, uses: Sequence[Use]
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
