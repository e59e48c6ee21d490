"""Why code between layers differs: a short table of what ports write there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.causes import number
from deliralike.conformance.explain import relations
from deliralike.conformance.explain.trials import Trial
from deliralike.conformance.findings import MATCH, Explanation, is_array
from deliralike.conformance.kinds import Arrays
from deliralike.conformance.places import ARGUMENT, OUTPUT, UNIT, Quantity, Tap

_ENOUGH = 8  # elements, so that a factor that fits means something
_FORMER = "what it should be"


@dataclass(frozen=True)
class Glue:
    """An array that both sides compute between layers, and differently.

    Attributes:
        sources: What is at hand: the block's inputs, the outputs of its layers, and of the calls
            that only the candidate makes.
        reference, candidate: The array on each side.
        what: Where the array goes; None where gradients alone differ.
        gradients: Of each source, on both sides, where these differ.
        beyond: The calls among the sources that only the candidate makes.
    """

    sources: Mapping[Quantity, np.ndarray]
    reference: Any
    candidate: Any
    what: Quantity | None = None
    gradients: Mapping[Quantity, tuple[Any, Any]] = field(default_factory=dict)
    beyond: frozenset[Tap] = frozenset()


def explain(glue: Glue) -> Explanation | None:
    """The entry of the table that gives what the candidate computes; None where none does."""
    if glue.what is None:
        return _of_gradients(glue)
    mine, theirs = glue.reference, glue.candidate
    where = str(glue.what)
    if glue.what.tap == UNIT and glue.what.kind == OUTPUT:
        where = f"the {where}"
    if not (is_array(mine) and is_array(theirs)):
        return Explanation.from_observation(
            f"{where} being {theirs!r} instead of {mine!r}"
        )
    if theirs.size < _ENOUGH:
        return None
    apart = relative_difference(mine, theirs)
    limit = min(MATCH, 1e-3 * apart)
    for one in _tried(glue, mine, theirs):
        if one.distance <= limit:
            return Explanation(f"{where} being {one.cause}", one.distance, apart)
    return None


def _tried(glue: Glue, mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """What the candidate's array may be, the likely things first."""
    sources = {}
    for name, array in glue.sources.items():
        alone = " (only the candidate calls that)" if name.tap in glue.beyond else ""
        sources[f"{_called(name)}{alone}"] = array
    if mine.shape == theirs.shape:
        hidden = not (np.isfinite(mine).all() and np.isfinite(theirs).all())
        if hidden or mine.dtype.kind == theirs.dtype.kind == "b":
            yield from _masks(mine, theirs)
            return
        if mine.dtype.kind == theirs.dtype.kind == "f":
            yield from _sums(sources, mine, theirs)
    usual = next((said for said, _ in _of_sources(sources, mine)), "")
    for said, distance in _of_sources(sources, theirs):
        if usual:
            but = f" instead of {usual}"
        else:
            but = " alone: what else there should be is missing"
        yield Trial(f"{said}{but}", distance)
    if theirs.dtype.kind != "f" or np.ptp(theirs) == 0.0:
        return  # that it is one number throughout has no cause of its own
    found = relations.nearest(mine, theirs)
    if found is not None:
        yield Trial(f"{_FORMER}: {found.cause}", found.distance)
    for said, source in sources.items():
        if source.shape == mine.shape == theirs.shape:
            found = relations.nearest(mine - source, theirs - source)
            if found is not None:
                words = f"a sum in which what is added to {said} is {found.cause}"
                yield Trial(words, found.distance)


def _of_sources(sources: Arrays, array: np.ndarray) -> Iterator[tuple[str, float]]:
    """The sources that an array is, or is made of by one function, with the distance."""
    alike = {n: one for n, one in sources.items() if one.size == array.size > 0}
    for name, source in alike.items():
        if source.shape == array.shape and relative_difference(source, array) <= MATCH:
            yield name, relative_difference(source, array)
    for name, source in alike.items():
        if source.dtype.kind == array.dtype.kind == "f" and np.isfinite(source).all():
            found = relations.nearest(source, array)
            if found is not None and found.is_met:
                yield f"{found.cause} (of {name})", found.distance


def _sums(sources: Arrays, mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """The reference's sum with one term changed or missing, or with one more."""
    terms = {}
    for name, one in sources.items():
        if one.shape == mine.shape and one.any() and np.isfinite(one).all():
            terms[name] = one
    for name, source in terms.items():
        rest, square = mine - source, float(np.vdot(source, source))
        times = float(np.vdot(mine, source)) / square
        if relative_difference(mine, times * source) <= MATCH:
            continue  # it is no sum
        if any(relative_difference(rest, other) <= MATCH for other in terms.values()):
            said, term = f"a sum in which {name} is", theirs - rest
            yield Trial(f"{said} missing", relative_difference(rest, theirs))
            for other, instead in terms.items():
                yield Trial(f"{said} {other}", relative_difference(instead, term))
            found = relations.nearest(source, term)
            if found is not None:
                yield Trial(f"{said} changed: {found.cause}", found.distance)
            continue
        factor = float(f"{np.vdot(theirs - mine, source) / square:.9g}")
        said = f"{_FORMER} plus {factor:.6g} times {name} (one term more, as of a skip connection)"
        if factor == -1.0:
            said = f"{_FORMER} without {name} (as without a skip connection)"
        yield Trial(said, relative_difference(mine + factor * source, theirs))


def _masks(mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """Other masks: of truth values, or of scores that are minus infinity where they are hidden."""
    is_boolean = mine.dtype.kind == "b"
    usual, came = mine, theirs
    if not is_boolean:
        usual, came = np.isfinite(mine), np.isfinite(theirs)
        both = usual & came
        if relative_difference(mine[both], theirs[both]) > MATCH:
            found = relations.nearest(mine[both], theirs[both])
            if found is not None and np.array_equal(usual, came):
                words = f"{_FORMER}, where it is not hidden: {found.cause}"
                yield Trial(words, found.distance)
            return
    shown = np.unique(theirs[came & ~usual])
    if not is_boolean and shown.size == 1:
        yield Trial(
            f"a mask of {number(float(shown[0]))} instead of minus infinity", 0.0
        )
    if came.all():
        yield Trial(f"a mask that {'is set' if is_boolean else 'hides nothing'}", 0.0)
    hidden, seen = int((usual & ~came).sum()), int((came & ~usual).sum())
    words = f"another mask, which hides {hidden} elements more and shows {seen} more"
    yield Trial(words, 0.0)


def _of_gradients(glue: Glue) -> Explanation | None:
    """A gradient that is cut off, or has another factor."""
    found: list[Trial] = []
    for name, (mine, theirs) in glue.gradients.items():
        if relative_difference(mine, theirs) <= MATCH:
            continue
        if not np.any(mine):
            said = f"a gradient through {_called(name)}, which the reference stops (detached)"
            found.append(Trial(said, 0.0))
        elif not np.any(theirs):
            said = f"no gradient through {_called(name)} (detached)"
            found.append(Trial(said, 0.0))
        else:
            factor = float(np.vdot(mine, theirs)) / float(np.vdot(mine, mine))
            is_told = np.size(mine) >= _ENOUGH
            apart = relative_difference(factor * mine, theirs) if is_told else np.inf
            said = f"gradient of {_called(name)} times {factor:.6g}"
            found.append(Trial(said, apart))
    if not found or not all(one.is_met for one in found):
        return None
    causes = "; ".join(one.cause for one in found)
    return Explanation(causes, max(one.distance for one in found))


def _called(name: Quantity) -> str:
    return f"the input {name}" if name.kind == ARGUMENT else str(name)
