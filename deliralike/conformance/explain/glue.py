"""Why code between layers differs: a short table of what ports write there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain import relations
from deliralike.conformance.explain.enumeration import other_orders
from deliralike.conformance.explain.trials import Trial
from deliralike.conformance.findings import MATCH, Explanation, is_array
from deliralike.conformance.kinds import Arrays
from deliralike.conformance.places import ARGUMENT, OUTPUT, UNIT, Quantity, Tap

_ENOUGH = 8  # elements, so that a factor that fits means something
_SMALL, _FEW = 2**16, 6  # elements, and sources, of which all pairs are tried
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
        return Explanation.seen(f"{where} being {theirs!r} instead of {mine!r}")
    if theirs.size < _ENOUGH:
        return None
    apart = relative_difference(mine, theirs)
    limit = min(MATCH, 1e-3 * apart)
    for one in _tried(glue, mine, theirs):
        if one.distance <= limit:
            return Explanation(f"{where} being {one.cause}", one.distance, apart, limit)
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
        yield from _sums(sources, mine, theirs)
        yield from _steps(sources, mine, theirs)
    usual = next((said for said, _ in _of_sources(sources, mine)), "")
    for said, distance in _of_sources(sources, theirs):
        but = f" instead of {usual}" if usual else " alone: what else there should be is missing"
        yield Trial(f"{said}{but}", distance)
    found = relations.nearest(mine, theirs)
    if found is not None:
        yield Trial(f"{_FORMER}: {found.cause}", found.distance)
    if mine.shape == theirs.shape:
        yield from _pairs(sources, mine, theirs)


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
            for order in other_orders(array.ndim):
                far = relative_difference(source, array.transpose(order).reshape(source.shape))
                if far <= MATCH:
                    yield f"{name}, reshaped, with its axes permuted", far


def _sums(sources: Arrays, mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """The reference's sum with one term changed or missing, or with one more."""
    if mine.dtype.kind != "f" or theirs.dtype.kind != "f":
        return
    alike = _terms(sources, mine)
    for name, source in alike:
        rest, square = mine - source, float(np.vdot(source, source))
        times = float(np.vdot(mine, source)) / square
        if relative_difference(mine, times * source) <= MATCH:
            continue  # it is no sum
        if any(relative_difference(rest, other) <= MATCH for _, other in alike):
            yield Trial(f"a sum in which {name} is missing", relative_difference(rest, theirs))
            found = relations.nearest(source, theirs - rest)
            if found is not None:
                yield Trial(f"a sum in which {name} is changed: {found.cause}", found.distance)
            continue
        factor = float(np.vdot(theirs - mine, source)) / square
        factor = float(f"{factor:.9g}")
        said = f"{_FORMER} plus {factor:.6g} times {name} (one term more, as of a skip connection)"
        if factor == -1.0:
            said = f"{_FORMER} without {name} (as without a skip connection)"
        yield Trial(said, relative_difference(mine + factor * source, theirs))


def _pairs(sources: Arrays, mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """One source plus a function of another one."""
    if mine.size > _SMALL or theirs.dtype.kind != "f":
        return
    alike = _terms(sources, theirs)[:_FEW]
    for (one, rest), (other, source) in permutations(alike, 2):
        found = relations.nearest(source, theirs - rest)
        if found is not None:
            yield Trial(f"{one} plus another term: {found.cause} (of {other})", found.distance)


def _terms(sources: Arrays, array: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """What may be a term of an array."""
    alike = [(n, one) for n, one in sources.items() if one.shape == array.shape and one.any()]
    return [(n, one) for n, one in alike if one.dtype.kind == "f" and np.isfinite(one).all()]


def _steps(sources: Arrays, mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """Other steps of sequences ``(batch, steps, width)``, one of each, in some of the columns."""
    for name, states in sources.items():
        if mine.ndim != 2 or states.ndim != 3 or len(states) != len(mine) or len(states) < 2:
            continue
        width = states.shape[2]
        for first in range(mine.shape[1] - width + 1):
            columns = slice(first, first + width)
            usual, came = (_nearest_steps(states, one[:, columns]) for one in (mine, theirs))
            made = mine.copy()
            made[:, columns] = states[np.arange(len(states)), came]
            said = f"the steps {came.tolist()} of {name} instead of {usual.tolist()}"
            if (came == states.shape[1] - 1).all():
                said += " (the last one of all, also after padding)"
            elif not came.any():
                said += " (the first one of each)"
            yield Trial(said, relative_difference(made, theirs))


def _nearest_steps(states: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.abs(states - rows[:, None]).sum(-1).argmin(1))


def _masks(mine: np.ndarray, theirs: np.ndarray) -> Iterator[Trial]:
    """Other masks: of truth values, or of scores that are minus infinity where they are hidden."""
    usual, came = (one if one.dtype.kind == "b" else np.isfinite(one) for one in (mine, theirs))
    if mine.dtype.kind == "f":
        both = usual & came
        if not np.allclose(mine[both], theirs[both], rtol=MATCH, atol=MATCH):
            found = relations.nearest(mine[both], theirs[both])
            if found is not None and np.array_equal(usual, came):
                yield Trial(f"{_FORMER}, where it is not hidden: {found.cause}", found.distance)
            return
    ways = {"inverted": ~usual, "set nowhere": np.zeros_like(usual), "set": np.ones_like(usual)}
    if usual.ndim > 1:
        rows, columns = usual.shape[-2:]
        for shift, said in (
            (0, "causal"),
            (-1, "causal without the token itself"),
            (1, "causal with the next token"),
        ):
            ways[said] = np.broadcast_to(np.tri(rows, columns, shift, bool), usual.shape)
        if usual.shape[-1] == usual.shape[-2]:
            ways["transposed"] = usual.swapaxes(-1, -2)
    for said, made in ways.items():
        if np.array_equal(made, came):
            yield Trial(f"a mask that is {said}", 0.0)
    hidden, seen = int((usual & ~came).sum()), int((came & ~usual).sum())
    if (hidden or seen) and not (usual.all() or np.isnan(theirs).any()):
        yield Trial(f"another mask, which hides {hidden} elements more and shows {seen} more", 0.0)


def _of_gradients(glue: Glue) -> Explanation | None:
    """A gradient that is cut off, or has another factor."""
    found: list[tuple[str, float]] = []
    for name, (mine, theirs) in glue.gradients.items():
        if relative_difference(mine, theirs) <= MATCH:
            continue
        if not np.any(mine):
            said = f"a gradient through {_called(name)}, which the reference stops (detached)"
            found.append((said, 0.0))
        elif not np.any(theirs):
            found.append((f"no gradient through {_called(name)} (detached)", 0.0))
        elif np.size(mine) >= _ENOUGH:
            factor = float(np.vdot(mine, theirs) / np.vdot(mine, mine))
            far = relative_difference(factor * mine, theirs)
            found.append((f"gradient of {_called(name)} times {factor:.6g}", far))
        else:
            return None
    if not found or max(far for _, far in found) > MATCH:
        return None
    return Explanation("; ".join(said for said, _ in found), max(far for _, far in found))


def _called(name: Quantity) -> str:
    return f"the input {name}" if name.kind == ARGUMENT else str(name)
