"""A call of the reference's that the candidate has no call for: known conventions in its place.

A port may write out by hand what the reference has a layer or function for: attention as products
and a softmax, an LSTM as a loop over a cell. No call of the candidate's can be judged by itself
then. What can is all that follows: the reference runs once more with each convention in the place
of its call, until it hands on what the candidate hands on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.explain import arguments
from deliralike.conformance.explain.execute_variant import Bench
from deliralike.conformance.explain.families import known_of
from deliralike.conformance.explain.generic_transforms import generic_conventions
from deliralike.conformance.explain.search import first_match, reproduces
from deliralike.conformance.findings import (
    LIMIT,
    MATCH,
    OWN,
    Explanation,
    FailingBlock,
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

    accused: FailingBlock
    follow: Callable[[Any], Tensors]
    reference: Arrays
    wanted: Arrays
    which: str = ""


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


def _matters(one: Substitute, bench: Bench) -> bool:
    """Whether something that differs depends on what a call gives, so that it may be the cause.

    Anything may be made to give one number.
    """
    leaves = nest.leaves(one.accused.reference.outputs)
    if all(np.size(leaf) == 1 for leaf in leaves):
        return False
    wrong = [name for name, apart in bench.itself.distances.items() if apart > LIMIT]
    follows = one.follow(nest.map(partial(_times, 0.5), one.accused.reference.outputs))
    return any(
        relative_difference(one.reference[n], follows.get(n)) > 0.0 for n in wrong
    )


def _times(by: float, leaf: Any) -> Any:
    return by * leaf if is_floating(leaf) else leaf


def _left_out(one: Substitute, bench: Bench) -> Explanation | None:
    """That a call is not made: a sum goes on without what it gives, or its input goes on."""
    usual, apart = one.accused.reference.outputs, bench.itself.distance
    given: Any = next(iter(nest.leaves(one.accused.args)), None)
    which = f"{one.which} of " if one.which else ""
    words = f"no {which}{one.accused.kind.removeprefix(OWN)}: it is left out"
    ways = {words: nest.map(partial(_times, 0.0), usual)}
    if is_array(usual) and is_array(given) and given.shape == usual.shape:
        ways[f"{words}, and its input goes on"] = given
    for words, output in ways.items():
        match = max(bench.distances(_arrays(one.follow(output))).values())
        if match <= min(MATCH, 1e-3 * apart):
            return Explanation(words, match, apart)
    return None


def explain(
    substitutes: Sequence[Substitute], backend: Backend
) -> tuple[Explanation | None, FailingBlock | None]:
    """The convention in the place of a call that hands on what the candidate hands on, and the call.

    Args:
        substitutes: In the order of the reference's calls.
        backend: The reference's.
    """
    end = time.process_time() + _PATIENCE
    benches = [_Downstream(one, backend) for one in substitutes]
    suspects = [
        pair for pair in zip(substitutes, benches, strict=True) if _matters(*pair)
    ]
    for one, bench in suspects:
        explanation = _left_out(one, bench)
        if explanation is not None:
            return explanation, one.accused
    own, further = [], []
    for one, bench in suspects:
        known = known_of(one.accused.kind, bench.given)
        if known is not None and reproduces(bench, known[0]):
            own.append((one, bench, *known))
            conventions = generic_conventions(one.accused, bench.given)
            further.append((one, bench, known[0], conventions))
    # What is known of some call comes before what any call may do otherwise.
    for one, bench, formula, table in own + further:
        if time.process_time() > end:
            break
        explanation = first_match(bench, table, formula, end, [])
        if explanation is None:
            continue
        kind = one.accused.kind
        if arguments.is_known(kind):  # a layer has its place
            explanation = replace(
                explanation, cause=f"{explanation.cause}, in {kind}()"
            )
        return explanation, one.accused
    return None, None
