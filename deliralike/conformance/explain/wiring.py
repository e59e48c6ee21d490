"""Why a block's code between its layers differs: its formulas, and which layers it calls.

The formula of the reference is sought, then that of the candidate, and what has changed from one to
the other is said. What the candidate calls besides is done again on the reference's side before it
is believed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only, without
from deliralike.conformance.explain.formulas import (
    Formula,
    Found,
    changed,
    first_exact,
    formulas,
    mixed,
    nearest,
    scaled,
    simple,
)
from deliralike.conformance.explain.wiring_gradients import Use, gradients
from deliralike.conformance.explain.wiring_masks import masks
from deliralike.conformance.findings import MATCH, Explanation, arrays_in, is_array
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.places import (
    ARGUMENT,
    INPUT,
    OUTPUT,
    UNIT,
    Quantity,
    Tap,
    inputs,
    named,
)

__all__ = ["Differing", "Made", "Use", "Wiring", "explain"]

Sources = Mapping[str, np.ndarray]  # by words

_TELLING = 8  # of fewer numbers the nearest formula is no hint


@dataclass(frozen=True)
class Differing:
    """A value that both sides compute between their layers, and differently.

    ``what`` says where it goes.
    """

    what: Quantity
    reference: Any
    candidate: Any


@dataclass(frozen=True)
class Made:
    """A call that only the candidate makes.

    Attributes:
        args, kwargs: What it was given.
        output: What it gave.
        off: How far the reference's own function or block is from that, for the same inputs.
    """

    args: Any
    kwargs: Any
    output: Any
    off: float = 0.0


@dataclass(frozen=True)
class Stopped:
    """A side without whose `stop_gradient` nothing would differ.

    Attributes:
        side: ``"reference"`` or ``"candidate"``.
        apart: How far the sides are from each other without it.
    """

    side: str
    apart: float


@dataclass(frozen=True)
class Wiring:
    """An array that both sides compute from the same arrays, and differently.

    Attributes:
        sources: What is at hand: the block's inputs and the outputs of its layers.
        reference, candidate: The array on each side.
        gradients: Of each source, on both sides, where these differ.
        differing: All values that differ, in the order of the candidate's calls; the first is the
            array above.
        calls: What the reference gives to each tap, positional and named, in the order of its
            calls.
        beyond: Calls that only the candidate makes, in their order.
        order: The candidate's taps in the order of its calls, without those.
        uses: What goes into each tap of the reference, with the gradient from there.
        stopped: The side whose `stop_gradient` makes the difference, if one does.
        given: As `calls`, with those that no call of the candidate's corresponds to.
        kinds: The class of each block that is called, by tap.
        tables: The buffers of the reference.
    """

    sources: Mapping[Quantity, np.ndarray]
    reference: Any
    candidate: Any
    gradients: Mapping[Quantity, tuple[Any, Any]] = field(default_factory=dict)
    differing: tuple[Differing, ...] = ()
    calls: Mapping[Tap, Any] = field(default_factory=dict)
    beyond: Mapping[Tap, Made] = field(default_factory=dict)
    order: tuple[Tap, ...] = ()
    uses: tuple[Use, ...] = ()
    stopped: Stopped | None = None
    given: Mapping[Tap, Any] = field(default_factory=dict)
    kinds: Mapping[Tap, str] = field(default_factory=dict)
    tables: Mapping[str, np.ndarray] = field(default_factory=dict)


def explain(wiring: Wiring) -> Explanation | None:
    """Return the nearest formula of the available arrays; None where there is no explanation."""
    sources = _sources(wiring)
    if wiring.stopped is not None:
        return _stopped(wiring, wiring.stopped, sources)
    called = {_called(name): pair for name, pair in wiring.gradients.items()}
    if not wiring.differing:
        return gradients(called, sources, wiring.uses)
    first = wiring.differing[0]
    found = _why(wiring, sources, first)
    if np.size(first.candidate) == 1 and (found is None or not found.known):
        # of a loss the gradients tell more than its one number does
        terms = gradients(called, sources, wiring.uses)
        if terms is not None and terms.known:
            return replace(terms, cause=f"terms of {_where(first.what)}: {terms.cause}")
    return found


def _sources(wiring: Wiring) -> Tensors:
    """The arrays at hand, in words: also what the reference gives to what precedes the first one."""
    known = {_called(name): array for name, array in wiring.sources.items() if is_array(array)}
    differing = {one.what.tap for one in wiring.differing if one.what.kind == INPUT}
    for tap, given in wiring.given.items():
        if tap in differing:
            break
        for name, leaf in named(inputs(tap, *given), given).items():
            if is_array(leaf) and leaf.ndim and not _is_known(known, leaf):
                known[str(name)] = leaf
    return known


def _is_known(sources: Sources, array: np.ndarray) -> bool:
    """Whether an array is one of some others, or a sum of them."""
    total = mixed(sources, array)
    is_sum = total is not None and relative_difference(array, total.array) <= MATCH
    return is_sum or bool(_name(sources, array))


def _stopped(wiring: Wiring, stopped: Stopped, sources: Sources) -> Explanation:
    """What the gradient does not go through on one side, which was tried without that."""
    known = {**sources, **_beyond(wiring, sources)}
    given: list[np.ndarray] = []
    for name, made in wiring.beyond.items():
        if name.stops:
            given += arrays_in(made.args)
        elif is_array(made.output):
            known.setdefault(f"the output of {name}", made.output)
    found = (nearest(known, leaf).exact for leaf in given)
    names = [one.words for one in found if one is not None]
    what = " and ".join(dict.fromkeys(names)) or "what is given to stop_gradient()"
    words = f"no gradient through {what} (stopped there; without that the gradients are the reference's)"
    if stopped.side == "reference":
        words = (
            "a gradient through what the reference stops (stop_gradient() is missing; without it "
            "the gradients are equal)"
        )
    return Explanation(words, stopped.apart)


def _where(what: Quantity) -> str:
    """Where a value goes, in words."""
    return f"the {what}" if what.tap == UNIT and what.kind == OUTPUT else str(what)


def _called(name: Quantity) -> str:
    return f"the input {name}" if name.kind == ARGUMENT else str(name)


def _why(wiring: Wiring, sources: Sources, one: Differing) -> Explanation | None:
    mine, theirs = one.reference, one.candidate
    if not (is_array(mine) and is_array(theirs)):
        return Explanation.seen(f"{_where(one.what)} being {theirs!r} instead of {mine!r}")
    beyond = _beyond(wiring, sources)
    visible = np.isfinite(mine) if mine.dtype.kind == "f" else np.ones(mine.shape, bool)
    if visible.any() and not visible.all() and np.array_equal(visible, np.isfinite(theirs)):
        # of scores with the same mask on both sides those that are not hidden
        alike = {name: array for name, array in sources.items() if array.shape == mine.shape}
        sources = {name: array[visible] for name, array in alike.items()}
        beyond = {n: a[visible] for n, a in beyond.items() if a.shape == mine.shape}
        mine, theirs = mine[visible], theirs[visible]
    right = nearest(sources, mine).exact
    found = _found(wiring, sources, beyond, right, mine, theirs)
    formula = found.formula
    if formula is None or not math.isfinite(found.off):
        return None
    if found.exact is None and theirs.size < _TELLING:
        return None
    cause, notes = f"{_where(one.what)} being {formula.words}", list(_of_calls(wiring))
    if right is not None:
        usual, left_out = _usual(wiring, sources, right, formula)
        if " instead of " not in formula.words:
            cause += f" instead of {usual}"
        notes = [*left_out, *_of_terms(wiring, right, formula), *notes]
    next_best = found.next_best if math.isfinite(found.next_best) else None
    # what is no nearer than the reference explains nothing, however near that is
    limit = min(MATCH, 1e-3 * relative_difference(mine, theirs))
    return Explanation("; ".join([cause, *notes]), found.off, next_best, limit)


def _found(
    wiring: Wiring,
    sources: Sources,
    beyond: Sources,
    right: Formula | None,
    mine: Any,
    theirs: Any,
) -> Found:
    """The candidate's formula: of what it has called itself, then of what the reference has.

    ``right`` is the reference's formula.
    """
    own = {**without(sources, _not_called(wiring)), **beyond}
    same = {} if right is None else only(sources, right.terms)
    if theirs.size == 1:  # one number would bear out any other
        return first_exact(simple(own, theirs), theirs)

    def stages() -> Iterator[Any]:
        yield scaled(own, theirs)
        yield scaled(same, theirs)  # the reference's formula with another factor
        yield masks(mine, theirs)
        for one in scaled({"what it should be": mine}, theirs):
            (factor,) = one.terms.values() or (0.0,)
            yield [replace(one, words=f"what it should be, scaled by the factor {factor:.6g}")]
        yield from simple(own, theirs)
        yield from formulas(own, theirs)
        yield changed(mine, "what it should be")
        yield from formulas({**sources, **beyond}, theirs)

    return first_exact(stages(), theirs)


def _not_called(wiring: Wiring) -> set[str]:
    """The sources that the candidate has not: outputs of taps that it does not call."""
    if not wiring.order:
        return set()
    outputs = [name for name in wiring.sources if name.kind == OUTPUT]
    return {_called(name) for name in outputs if name.tap not in wiring.order}


# What the candidate calls besides
# -----------------------------------------------------------------------------


def _beyond(wiring: Wiring, sources: Sources) -> Tensors:
    """Return the results of the candidate's own calls, by a formula in words.

    Calls that could not be repeated are left out.
    """
    known, given = dict(sources), dict(_given(wiring))
    for name, made in wiring.beyond.items():
        words = _call(name, made, known, given) if made.off <= MATCH else None
        if words is None:
            continue
        for path, leaf in nest.leaves_with_paths(made.output, words):
            if is_array(leaf):
                known[path] = leaf
    return without(known, sources)


def _given(wiring: Wiring) -> Iterator[tuple[str, np.ndarray]]:
    """What the reference gives to its layers, by the place in words."""
    for tap, given in wiring.calls.items():
        for name, leaf in named(inputs(tap, *given), given).items():
            if is_array(leaf):
                yield str(name).replace("the input", "the reference's input"), leaf


def _call(name: Tap, made: Made, known: Sources, given: Sources) -> str | None:
    """Return a call in words, ``"softmax(the output of fc, 1)"``, if its inputs are known."""
    shown: list[str] = []
    for leaf in nest.leaves((made.args, made.kwargs)):
        if is_array(leaf):
            argument = nearest(known, leaf).exact
            words = _name(given, leaf) if argument is None else argument.words
            if not words:
                return None
            shown.append(words)
        elif leaf is not None and leaf is not False:
            shown.append(str(leaf))
    is_reduction = name.function in ("mean", "sum") and len(shown) == 2
    if is_reduction and is_array(made.args[0]):
        array, axis = shown
        size = made.args[0].shape[int(axis)]
        return f"the {name.function} over all {size} of axis {axis} of {array}"
    once_more = " once more" if name.call > 1 and name.path else ""
    called = name.function or name.path
    return f"{called}{once_more}({', '.join(dict.fromkeys(shown))})"


def _given_to(wiring: Wiring, source: str) -> tuple[Tap | None, list[np.ndarray]]:
    """The call that gives a source, and the arrays that the reference gives to it."""
    for tap, given in wiring.given.items():
        if source == f"the output of {tap}":
            return tap, arrays_in(given)
    return None, []


def _usual(
    wiring: Wiring, sources: Sources, right: Formula, wrong: Formula
) -> tuple[str, list[str]]:
    """The reference's formula in words, and what is left out of it if that gives the candidate's.

    Of an array that one call gives the block's class is told, or which activation it is.
    """
    tap, arrays = _given_to(wiring, right.words)
    if tap is None or not arrays:
        return right.words, []
    kind = f"{tap} ({wiring.kinds[tap]})" if tap in wiring.kinds else tap
    words = f"the output of {kind}"
    if len(arrays) > 1:
        return words, []
    if relative_difference(arrays[0], wrong.array) <= MATCH:
        return words, [f"{kind} is left out"]
    name = _name(sources, arrays[0])
    usual = first_exact([changed(arrays[0], name)], right.array).exact if name else None
    if usual is not None:
        words = f"{usual.words} ({kind})"
    return words, []


# What has changed
# -----------------------------------------------------------------------------


def _of_terms(wiring: Wiring, right: Formula, wrong: Formula) -> Iterator[str]:
    """What is missing in a sum, scaled or added."""
    if not right.terms or not (set(right.terms) & set(wrong.terms) or wrong.words == "zeros"):
        return
    roles = _roles(wiring, right.terms)
    ratios = {name: wrong.terms.get(name, 0.0) / factor for name, factor in right.terms.items()}
    ratio = next(iter(ratios.values()))
    is_one = len(set(np.round(list(ratios.values()), 9))) == 1
    if is_one and ratio not in (0.0, 1.0):
        yield f"scaled by the factor {ratio:.6g}"
        return
    added = [name for name in wrong.terms if name not in right.terms and name != "1"]
    missing = [name for name, ratio in ratios.items() if ratio == 0.0]
    if len(added) == len(missing) == 1:
        yield f"{added[0]} is in the place of {roles[missing[0]]}"
    else:
        for name in missing:
            yield f"{roles[name]} is missing"
        if added:
            yield f"the sum has more terms, as of a skip connection, {', '.join(added)}"
    for name, ratio in ratios.items():
        if ratio == -1.0:
            yield f"{roles[name]} has the wrong sign"
        elif ratio not in (0.0, 1.0):
            yield f"{roles[name]} is scaled by the factor {ratio:.6g}"


def _roles(wiring: Wiring, terms: Mapping[str, float]) -> dict[str, str]:
    """Of two terms made from one the shortcut is that of fewer layers; the other is the branch."""
    if len(terms) == 2:
        origins = {name: set[str]() for name in terms} | _origins(wiring)
        near, far = sorted(terms, key=lambda name: len(origins[name]))
        is_shorter = len(origins[near]) < len(origins[far])
        if is_shorter and origins[far] & {near, *origins[near]}:
            return {near: f"the shortcut ({near})", far: f"the branch ({far})"}
    return {name: name for name in terms}


def _origins(wiring: Wiring) -> dict[str, set[str]]:
    """The sources that each source is made of, one layer after another."""
    origins: dict[str, set[str]] = {_called(n): set() for n in wiring.sources if n.kind != OUTPUT}
    known = {_called(name): array for name, array in wiring.sources.items()}
    for tap, given in (wiring.given or wiring.calls).items():
        arrays = arrays_in(given)
        made: set[str] = set()
        for name, before in origins.items():
            if any(np.array_equal(known[name], array) for array in arrays):
                made |= {name, *before}
        for source in wiring.sources:
            if source.kind == OUTPUT and source.tap == tap:
                origins[str(source)] = made
    return origins


def _of_calls(wiring: Wiring) -> Iterator[str]:
    """Layers that are not called, and those that are called more often."""
    missing = [name for name in wiring.calls if name not in wiring.order]
    if missing and wiring.order:
        are = "are" if len(missing) > 1 else "is"
        yield f"{', '.join(map(str, missing))} {are} not called"
    usual = Counter(name.first for name in wiring.calls)
    made = Counter(name.first for name in (*wiring.order, *wiring.beyond))
    for name, count in made.items():
        if usual[name] and count > usual[name]:
            yield f"{name} is called {_times(count)} instead of {_times(usual[name])}"


def _name(sources: Sources, array: Any) -> str:
    return next((name for name, source in sources.items() if np.array_equal(source, array)), "")


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
