"""A call of the reference's that the candidate has no call for: known conventions in its place.

A port may write out by hand what the reference has a layer or function for: attention as products
and a softmax, an LSTM as a loop over a cell. No call of the candidate's can be judged by itself
then. What can is all that follows: the reference runs once more with each convention in the place
of its call, until it hands on what the candidate hands on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.causes import Cause
from deliralike.conformance.explain.bench import Bench, Tensors, finite_norm
from deliralike.conformance.explain.families import family_of
from deliralike.conformance.explain.search import LOSSES, Search, Trial
from deliralike.conformance.findings import LIMIT, MATCH, Accused, Explanation

PATIENCE = 8.0  # seconds for all calls of one place


@dataclass(frozen=True)
class Substitute:
    """A call of the reference's that conventions may stand in for.

    Attributes:
        accused: The call; what the candidate gave in its place is not known.
        follow: From what the call gives to what its unit hands on, by name.
        reference, wanted: What the reference's unit and the candidate's hand on.
    """

    accused: Accused
    follow: Callable[[Any], Tensors]
    reference: Mapping[str, np.ndarray]
    wanted: Mapping[str, np.ndarray]


class _Downstream(Bench):
    """A bench on which a formula is judged by what follows from it."""

    def __init__(self, one: Substitute, backend: Backend, seed: int = 0) -> None:
        super().__init__(one.accused, backend, seed)
        names = [name for name in one.wanted if name in one.reference]
        self.follow = one.follow
        self.reference = {name: np.asarray(one.reference[name]) for name in names}
        self.wanted = {name: np.asarray(one.wanted[name]) for name in names}
        self.outputs, self.buffers, self.gradients = tuple(names), (), ()
        self.reshaped = False
        pairs = {name: (self.wanted[name], self.reference[name]) for name in names}
        self._sizes = {name: max(map(finite_norm, pair)) for name, pair in pairs.items()}

    def _host(self, outputs: Any, after: Mapping[str, Any]) -> Tensors:
        return self.follow(self.backend.to_numpy(outputs))


def _matters(one: Substitute, names: Sequence[str]) -> bool:
    """Whether some tensors depend on what a call gives, so that it may be the cause.

    Anything may be made to give one number, unless it is a loss, of which much is known.
    """
    leaves = nest.leaves(one.accused.reference.outputs)
    if one.accused.kind not in LOSSES and all(np.size(leaf) == 1 for leaf in leaves):
        return False
    follows = one.follow(nest.map(_halved, one.accused.reference.outputs))
    pairs = ((one.reference[name], follows.get(name)) for name in names)
    return any(relative_difference(mine, moved) > 0.0 for mine, moved in pairs)


def _halved(leaf: Any) -> Any:
    floating = isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
    return 0.5 * leaf if floating else leaf


def _nothing(leaf: Any) -> Any:
    return np.zeros_like(leaf) if isinstance(leaf, np.ndarray) else leaf


def _left_out(
    one: Substitute, bench: _Downstream, apart: Mapping[str, float]
) -> Explanation | None:
    """That a call is not made: a sum goes on without what it gives, or its input goes on."""
    usual = one.accused.reference.outputs
    given = nest.leaves(one.accused.args)[:1]
    kind = one.accused.kind
    instead: dict[str, Any] = {f"{kind} is left out": nest.map(_nothing, usual)}
    if given and np.shape(given[0]) == np.shape(usual):
        instead[f"{kind} is left out, and its input goes on"] = given[0]
    for words, output in instead.items():
        distances = bench.distances(one.follow(output))
        match = max(distances.values())
        if match <= min(MATCH, 1e-3 * max(apart.values())):
            return Explanation.of([Cause(words)], match, max(apart.values()))
    return None


def explain(
    substitutes: Sequence[Substitute], backend: Backend, patience: float = PATIENCE
) -> tuple[Substitute, Explanation] | None:
    """The call and the convention in its place that hand on what the candidate hands on.

    Args:
        substitutes: In the order of the reference's calls.
        backend: The reference's.
        patience: After so many seconds no more are tried.
    """
    end = time.monotonic() + patience
    for one in substitutes:
        bench = _Downstream(one, backend)
        family = family_of(one.accused.kind, bench.given)
        distances = bench.distances(bench.reference)
        wrong = [name for name, distance in distances.items() if distance > LIMIT]
        if family is None or not _matters(one, wrong):
            continue
        search = Search(bench, family, end)
        explanation = _left_out(one, bench, distances) or search.first(
            Trial((), family.formula, bench.reference, distances)
        )
        if explanation is not None:
            return one, explanation
        if time.monotonic() > end:
            break
    return None
