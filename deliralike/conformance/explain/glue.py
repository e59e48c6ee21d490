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
    expected, actual = glue.reference, glue.candidate
    where = str(glue.what)
    if glue.what.tap == UNIT and glue.what.kind == OUTPUT:
        where = f"the {where}"
    if not (is_array(expected) and is_array(actual)):
        return Explanation.from_observation(
            f"{where} being {actual!r} instead of {expected!r}"
        )
    if actual.size < _ENOUGH:
        return None
    apart = relative_difference(expected, actual)
    limit = min(MATCH, 1e-3 * apart)
    for one in _tried(glue, expected, actual):
        if one.distance <= limit:
            return Explanation(f"{where} being {one.cause}", one.distance, apart)
    return None


def _tried(glue: Glue, expected: np.ndarray, actual: np.ndarray) -> Iterator[Trial]:
    """What the candidate's array may be, the likely things first."""
    sources = {}
    for name, array in glue.sources.items():
        alone = " (only the candidate calls that)" if name.tap in glue.beyond else ""
        sources[f"{_called(name)}{alone}"] = array
    if expected.shape == actual.shape:
        hidden = not (np.isfinite(expected).all() and np.isfinite(actual).all())
        if hidden or expected.dtype.kind == actual.dtype.kind == "b":
            yield from _masks(expected, actual)
            return
        if expected.dtype.kind == actual.dtype.kind == "f":
            yield from _sums(sources, expected, actual)
    usual = next((words for words, _ in _of_sources(sources, expected)), "")
    for words, distance in _of_sources(sources, actual):
        if usual:
            but = f" instead of {usual}"
        else:
            but = " alone: what else there should be is missing"
        yield Trial(f"{words}{but}", distance)
    if actual.dtype.kind != "f" or np.ptp(actual) == 0.0:
        return  # that it is one number throughout has no cause of its own
    found = relations.nearest(expected, actual)
    if found is not None:
        yield Trial(f"{_FORMER}: {found.cause}", found.distance)
    for called, source in sources.items():
        if source.shape == expected.shape == actual.shape:
            found = relations.nearest(expected - source, actual - source)
            if found is not None:
                words = f"a sum in which what is added to {called} is {found.cause}"
                yield Trial(words, found.distance)


def _of_sources(sources: Arrays, array: np.ndarray) -> Iterator[tuple[str, float]]:
    """The sources that an array is, or is made of by one function, with the distance."""
    same_size = {n: one for n, one in sources.items() if one.size == array.size > 0}
    for name, source in same_size.items():
        if source.shape == array.shape and relative_difference(source, array) <= MATCH:
            yield name, relative_difference(source, array)
    for name, source in same_size.items():
        if source.dtype.kind == array.dtype.kind == "f" and np.isfinite(source).all():
            found = relations.nearest(source, array)
            if found is not None and found.is_met:
                yield f"{found.cause} (of {name})", found.distance


def _sums(sources: Arrays, expected: np.ndarray, actual: np.ndarray) -> Iterator[Trial]:
    """The reference's sum with one term changed or missing, or with one more."""
    terms = {}
    for name, one in sources.items():
        if one.shape == expected.shape and one.any() and np.isfinite(one).all():
            terms[name] = one
    for name, source in terms.items():
        rest, square = expected - source, float(np.vdot(source, source))
        times = float(np.vdot(expected, source)) / square
        if relative_difference(expected, times * source) <= MATCH:
            continue  # it is no sum
        if any(relative_difference(rest, other) <= MATCH for other in terms.values()):
            words, term = f"a sum in which {name} is", actual - rest
            yield Trial(f"{words} missing", relative_difference(rest, actual))
            for other, instead in terms.items():
                yield Trial(f"{words} {other}", relative_difference(instead, term))
            found = relations.nearest(source, term)
            if found is not None:
                yield Trial(f"{words} changed: {found.cause}", found.distance)
            continue
        factor = float(f"{np.vdot(actual - expected, source) / square:.9g}")
        words = f"{_FORMER} plus {factor:.6g} times {name} (one term more, as of a skip connection)"
        if factor == -1.0:
            words = f"{_FORMER} without {name} (as without a skip connection)"
        yield Trial(words, relative_difference(expected + factor * source, actual))


def _masks(expected: np.ndarray, actual: np.ndarray) -> Iterator[Trial]:
    """Other masks: of truth values, or of scores that are minus infinity where they are hidden."""
    is_boolean = expected.dtype.kind == "b"
    usual, came = expected, actual
    if not is_boolean:
        usual, came = np.isfinite(expected), np.isfinite(actual)
        both = usual & came
        if relative_difference(expected[both], actual[both]) > MATCH:
            found = relations.nearest(expected[both], actual[both])
            if found is not None and np.array_equal(usual, came):
                words = f"{_FORMER}, where it is not hidden: {found.cause}"
                yield Trial(words, found.distance)
            return
    shown = np.unique(actual[came & ~usual])
    if not is_boolean and shown.size == 1:
        yield Trial(
            f"a mask of {number(float(shown[0]))} instead of minus infinity", 0.0
        )
    if came.all():
        yield Trial(f"a mask that {'is set' if is_boolean else 'hides nothing'}", 0.0)
    hidden, visible = int((usual & ~came).sum()), int((came & ~usual).sum())
    words = f"another mask, which hides {hidden} elements more and shows {visible} more"
    yield Trial(words, 0.0)


def _of_gradients(glue: Glue) -> Explanation | None:
    """A gradient that is cut off, or has another factor."""
    found: list[Trial] = []
    for name, (expected, actual) in glue.gradients.items():
        if relative_difference(expected, actual) <= MATCH:
            continue
        if not np.any(expected):
            words = f"a gradient through {_called(name)}, which the reference stops (detached)"
            found.append(Trial(words, 0.0))
        elif not np.any(actual):
            words = f"no gradient through {_called(name)} (detached)"
            found.append(Trial(words, 0.0))
        else:
            factor = float(np.vdot(expected, actual)) / float(
                np.vdot(expected, expected)
            )
            is_told = np.size(expected) >= _ENOUGH
            apart = (
                relative_difference(factor * expected, actual) if is_told else np.inf
            )
            words = f"gradient of {_called(name)} times {factor:.6g}"
            found.append(Trial(words, apart))
    if not found or not all(one.is_met for one in found):
        return None
    causes = "; ".join(one.cause for one in found)
    return Explanation(causes, max(one.distance for one in found))


def _called(name: Quantity) -> str:
    return f"the input {name}" if name.kind == ARGUMENT else str(name)
