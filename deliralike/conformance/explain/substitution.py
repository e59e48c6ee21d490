"""A call of the reference's that the candidate has no call for: known conventions in its place.

A port may write out by hand what the reference has a layer or function for: attention as products
and a softmax, an LSTM as a loop over a cell. No call of the candidate's can be judged by itself
then. What can is all that follows: the reference runs once more with each convention in the place
of its call, until it hands on what the candidate hands on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.causes import Cause
from deliralike.conformance.explain import arguments, norms
from deliralike.conformance.explain.bench import Bench
from deliralike.conformance.explain.convention import Arguments, Convention, instead
from deliralike.conformance.explain.families import Family, family_of
from deliralike.conformance.explain.search import LOSSES, Search
from deliralike.conformance.findings import (
    LIMIT,
    MATCH,
    OWN,
    Accused,
    Explanation,
    arrays_in,
    is_array,
    is_floating,
)
from deliralike.conformance.kinds import Arrays, Named, Tensors

_PATIENCE = 8.0  # seconds of computing for all calls of one place


@dataclass(frozen=True)
class Substitute:
    """A call of the reference's that conventions may stand in for.

    Attributes:
        accused: The call; what the candidate gave in its place is not known.
        follow: From what the call gives to what its unit hands on, by name.
        reference, wanted: What the reference's unit and the candidate's hand on.
        which: Which call of several it is, in words: ``"call 2 of 2"``; empty for the only one.
    """

    accused: Accused
    follow: Callable[[Any], Tensors]
    reference: Arrays
    wanted: Arrays
    which: str = ""

    @property
    def is_call(self) -> bool:
        """Whether it is a call that the candidate lacks, and no part of one."""
        return self.accused.kind != norms.ROOT


class _Downstream(Bench):
    """A bench on which a formula is judged by what follows from it."""

    def __init__(self, one: Substitute, backend: Backend) -> None:
        super().__init__(one.accused, backend)
        self.follow = one.follow
        self.reference = _arrays(only(one.reference, one.wanted))
        self.wanted = _arrays(only(one.wanted, one.reference))
        self.outputs, self.buffers, self.gradients = tuple(self.wanted), (), ()

    def _host(self, outputs: Any, after: Named) -> Tensors:
        return _arrays(self.follow(self.backend.to_numpy(outputs)))


def _arrays(handed: Named) -> Tensors:
    """What a unit hands on; a plain number among it is an array, too."""
    return {name: np.asarray(value) for name, value in handed.items()}


def _matters(one: Substitute, names: Sequence[str]) -> bool:
    """Whether some tensors depend on what a call gives, so that it may be the cause.

    Anything may be made to give one number, unless it is a loss, of which much is known.
    """
    leaves = nest.leaves(one.accused.reference.outputs)
    if one.accused.kind not in LOSSES and all(np.size(leaf) == 1 for leaf in leaves):
        return False
    follows = one.follow(nest.map(_halved, one.accused.reference.outputs))
    return any(relative_difference(one.reference[n], follows.get(n)) > 0.0 for n in names)


def _halved(leaf: Any) -> Any:
    return 0.5 * leaf if is_floating(leaf) else leaf


def _nothing(leaf: Any) -> Any:
    return np.zeros_like(leaf) if is_floating(leaf) else leaf


def _left_out(one: Substitute, bench: Bench, apart: Mapping[str, float]) -> Explanation | None:
    """That a call is not made: a sum goes on without what it gives, or its input goes on."""
    usual = one.accused.reference.outputs
    given: Any = next(iter(nest.leaves(one.accused.args)), None)
    which = f"{one.which} of " if one.which else ""
    kind = one.accused.kind.removeprefix(OWN)
    said = f"no {which}{kind}: it is left out"
    ways = {said: nest.map(_nothing, usual)}
    is_one = is_array(usual) and is_array(given)
    if is_one and given.shape == usual.shape:
        ways[f"{said}, and its input goes on"] = given
    for words, output in ways.items():
        distances = bench.distances(_arrays(one.follow(output)))
        match = max(distances.values())
        if match <= min(MATCH, 1e-3 * max(apart.values())):
            return Explanation.of([Cause(words)], match, max(apart.values()))
    return None


def explain(
    substitutes: Sequence[Substitute], backend: Backend
) -> tuple[Substitute, Explanation] | None:
    """The call and the convention in its place that hand on what the candidate hands on.

    Args:
        substitutes: In the order of the reference's calls.
        backend: The reference's.
    """
    end = time.process_time() + _PATIENCE
    every = [_suspected(one, backend, end) for one in substitutes]
    suspects = [pair for pair in every if pair is not None]
    for one, bench in suspects:
        explanation = _left_out(one, bench, bench.itself.distances)
        if explanation is not None:
            return one, explanation
    searches = [_known(one, bench, substitutes, end) for one, bench in suspects]
    known = [found for found in searches if found is not None]
    # What is known of some call comes before what any call may do otherwise.
    for attempt in (Search.own, Search.any):
        for one, search in known:
            if time.process_time() > end:
                return None
            explanation = attempt(search)
            if explanation is not None:
                return one, _with_name(explanation, one)
    return None


def _with_name(explanation: Explanation, one: Substitute) -> Explanation:
    """An explanation that says which function it is of; a layer has its place."""
    kind = one.accused.kind
    if kind == norms.ROOT:
        return replace(explanation, cause=f"{explanation.cause}, in the {kind}")
    if not arguments.is_known(kind):
        return explanation
    return replace(explanation, cause=f"{explanation.cause}, in {kind}()")


def _suspected(one: Substitute, backend: Backend, end: float) -> tuple[Substitute, Bench] | None:
    """A call with its bench; None where nothing that differs depends on it."""
    if time.process_time() > end:
        return None
    bench = _Downstream(one, backend)
    wrong = [name for name, apart in bench.itself.distances.items() if apart > LIMIT]
    return (one, bench) if _matters(one, wrong) else None


def _known(
    one: Substitute, bench: Bench, others: Sequence[Substitute], end: float
) -> tuple[Substitute, Search] | None:
    """The search for one call; None where its formula is not known."""
    family = family_of(one.accused.kind, bench.given)
    if family is None or time.process_time() > end:
        return None
    orders = [_order(family, other) for other in others if _precedes(other, one)]
    search = Search(bench, Family(family.formula, [*family.conventions, *orders]), end)
    return (one, search) if search.reproduces() else None


# Two calls in the other order
# -----------------------------------------------------------------------------


def _precedes(one: Substitute, other: Substitute) -> bool:
    """Whether a call of one array gives what another one is given."""
    given, output = [*other.accused.args][:1], one.accused.reference.outputs
    own = arrays_in(one.accused.args)
    if one is other or len(own) != 1 or one.accused.state or not is_array(output):
        return False
    return bool(given) and isinstance(given[0], np.ndarray) and np.array_equal(given[0], output)


def _order(family: Family, before: Substitute) -> Convention:
    """The convention that a call comes before the one whose output it is given."""
    one = before.accused
    first = arguments.bound(one.kind, one.settings, one.state, one.args, one.kwargs)
    other = family_of(one.kind, {**first, "usual": one.reference.outputs, "parameters": ()})

    if other is None or "x" not in first:
        return instead("called", {})
    formula = other.formula

    def exchanged(nn: Any, given: Arguments) -> Any:
        x = nn.constant(first["x"], like=given["x"])
        return formula(nn, {**first, "x": family.formula(nn, {**given, "x": x})})

    return instead("called", {f"before {one.kind}": exchanged}, usual=f"after {one.kind}")
