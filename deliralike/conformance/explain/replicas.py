"""Why a network over replicas differs from one on the whole batch: known faults, tried in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deliralike.conformance.agreement import compare, relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.explain import share_table as table
from deliralike.conformance.explain.between import Between
from deliralike.conformance.explain.share_norms import Norms
from deliralike.conformance.explain.shares import Shares, Variant
from deliralike.conformance.findings import LIMIT, MATCH, Explanation
from deliralike.conformance.kinds import Batch
from deliralike.conformance.one_step import Step, kind_differences
from deliralike.conformance.subject import Replicate, Subject
from deliralike.errors import CapabilityError, DeviceError


@dataclass(frozen=True)
class _Tried:
    """The result of one fault that was tried.

    Tensors are not kept, since a large network has hundreds of sets of them.

    Attributes:
        cause: In words.
        distances: How far the candidate is from it, by kind of tensor.
        changes: The kinds in which it differs from the reference, at all.
    """

    cause: str
    distances: dict[str, float]
    changes: frozenset[str]

    def explains(self, kind: str) -> bool:
        """Whether the candidate does the same."""
        return self.distances.get(kind, np.inf) <= MATCH


class Explanations:
    """What explains each kind of tensor that differs.

    The cheap ways are tried first, and dear ones only while nothing fits. Of several that fit, the
    one is taken that explains most kinds, and of those the first, which is the simplest.
    """

    def __init__(
        self,
        reference: Subject,
        batch: Batch,
        count: int,
        wanted: Step,
        came: Step,
        replicate: Replicate,
    ) -> None:
        """For one number of replicas; nothing is computed yet.

        Args:
            wanted, came: What the reference gives on the whole batch, and the candidate over
                replicas.
            replicate: How a reference is replicated that does not say so itself.
        """
        self.wanted, self.came = wanted, came
        self.null = compare(wanted["gradient"], came["gradient"]).null
        self.shares = Shares(reference, batch, count, wanted)
        self.between = Between(self.shares, replicate)
        self._tried: list[_Tried] = []
        self._tiers = self._all_tiers()
        self._differing = [kind for kind in wanted if self._distance(kind, wanted[kind]) > LIMIT]

    def of(self, kind: str) -> Explanation | None:
        """The nearest way of going wrong; None where none says anything of that kind."""
        while not any(tried.explains(kind) for tried in self._tried):
            tier = next(self._tiers, None)
            if tier is None:
                break
            self._tried.extend(self._as_far_as_possible(tier))
        tried = [each for each in self._tried if kind in each.changes]
        if not tried:
            return None
        known = [each for each in tried if each.explains(kind)]
        best = min(tried, key=lambda each: each.distances[kind])
        if known:
            best = max(known, key=self._explained)
        others = [each.distances[kind] for each in tried if each.cause != best.cause]
        others = [distance for distance in others if distance > MATCH or not known]
        return Explanation(best.cause, best.distances[kind], min(others, default=None))

    def _all_tiers(self) -> Iterator[Iterator[Variant]]:
        """The plain and cheap ones first, each computed when it is asked for."""
        shares, came = self.shares, self.came
        yield table.of_factors(shares, came)
        yield table.of_weights(shares)
        yield Norms(shares).of_statistics(came)
        yield table.of_update_factors(shares, came)
        yield table.of_samples(shares)
        yield self.between.of_accumulation(came)
        yield self.between.of_masks()
        yield self.between.of_updates()

    def _as_far_as_possible(self, tier: Iterator[Variant]) -> Iterator[_Tried]:
        """Yield all faults of a tier.

        Those that need replicas are left out where the reference's backend has none.
        """
        try:
            for cause, everything in tier:
                yield self._compared(cause, only(everything, self.wanted))
        except (CapabilityError, DeviceError):
            return

    def _compared(self, cause: str, everything: Step) -> _Tried:
        distances, changes = {}, set()
        for kind, tensors in everything.items():
            distances[kind] = self._distance(kind, tensors)
            if self._changes(kind, tensors):
                changes.add(kind)
        return _Tried(cause, distances, frozenset(changes))

    def _explained(self, tried: _Tried) -> tuple[int, int]:
        """How many of the kinds that differ it explains, and less how many it contradicts."""
        contradicted = [kind for kind in tried.distances if not tried.explains(kind)]
        return sum(map(tried.explains, self._differing)), -len(contradicted)

    def _changes(self, kind: str, given: dict[str, Any]) -> bool:
        """Whether a way of going wrong shows in that kind at all."""
        return any(
            relative_difference(self.wanted[kind].get(name), value) > LIMIT
            for name, value in given.items()
        )

    def _distance(self, kind: str, given: dict[str, Any]) -> float:
        """How far the candidate is, by the tensor that is farthest."""
        found = kind_differences(kind, {kind: given}, self.came, self.null)
        return max(found.values(), default=np.inf)
