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

from deliralike.backends.base import Backend
from deliralike.conformance.explain.bench import Bench, Tensors, finite_norm
from deliralike.conformance.explain.families import family_of
from deliralike.conformance.explain.search import Search, Trial
from deliralike.conformance.findings import LIMIT, Accused, Explanation

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
        if family is None or max(distances.values(), default=0.0) <= LIMIT:
            continue
        search = Search(bench, family, end)
        explanation = search.first(Trial((), family.formula, bench.reference, distances))
        if explanation is not None:
            return one, explanation
        if time.monotonic() > end:
            break
    return None
