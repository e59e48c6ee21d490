"""Which block, tap and array of a candidate is which of the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from deliralike import nest
from deliralike.conformance.findings import Observed
from deliralike.conformance.kinds import Function, Named
from deliralike.conformance.matching.aligning import Alignment, plain
from deliralike.conformance.observe.forcing import force
from deliralike.conformance.observe.units import (
    Call,
    CallCotangents,
    Calls,
    Cotangents,
    Forced,
    Recording,
    Unit,
)
from deliralike.conformance.places import (
    Tap,
)
from deliralike.network.base import AbstractNetwork


@dataclass(frozen=True)
class SharedCall:
    """A call that both sides make, and how the arrays of the one lie in those of the other.

    Attributes:
        name: The candidate's tap.
        reference, candidate: The reference's call and the candidate's, which ran freely.
        inputs, output: Of the arguments ``(args, kwargs)`` and of the result.
    """

    name: Tap
    reference: Call
    candidate: Call
    inputs: Alignment
    output: Alignment

    @property
    def given(self) -> Call:
        """The candidate's call with the reference's arrays."""
        args, kwargs = self.inputs.there(self.reference.given, self.candidate.given)
        output = self.output.there(self.reference.output, self.candidate.output)
        return replace(self.candidate, args=args, kwargs=kwargs, output=output)

    def weights(self, cotangents: CallCotangents) -> CallCotangents:
        """Cotangents of the reference's arrays as those of the candidate's."""
        into = nest.leaves(self.candidate.given)
        output = nest.leaves(self.candidate.output)
        return CallCotangents(
            self.inputs.numbers_there(cotangents.inputs, len(into)),
            self.output.numbers_there(cotangents.output, len(output)),
        )


SharedCalls = Mapping[Tap, SharedCall]


def of_reference(taps: SharedCalls) -> dict[Tap, Call]:
    """The reference's calls among those that both sides make."""
    return {name: tap.reference for name, tap in taps.items()}


@dataclass(frozen=True)
class Counterpart:
    """What the candidate's unit does at the reference's inputs.

    Attributes:
        taps: The calls that both sides make, by the reference's names.
        free: What the whole unit gave, in the reference's names and layouts; None where it was not
            run.
        calls: All calls that it made by itself, with blocks in the reference's names.
    """

    taps: SharedCalls
    free: Observed | None = None
    calls: Calls = field(default_factory=dict)


class Correspondence:
    """Two networks with equal names and layouts, as those written once have.

    Paths are within a unit.

    Attributes:
        counts_functions: Whether a function that one side alone calls is a difference: other code
            may write out what a function does.
    """

    counts_functions: ClassVar[bool] = True

    def tap(self, path: str) -> str | None:
        """Return the path of a block's tap; None where the block is looked into instead."""
        return path or None

    def tap_of(self, path: str) -> str | None:
        """The same for a block of the candidate."""
        return path or None

    def within(self, path: str, tap: SharedCall) -> Correspondence:
        """What corresponds to what within a block of the reference, which was called so."""
        return self

    def block(self, candidate: AbstractNetwork, path: str) -> Any:
        """The candidate's block for one of the reference; None where there is none."""
        return dict(candidate.named_blocks()).get(path)

    def loss(self, loss: Function) -> Function:
        """A loss that gives its network inputs, and takes outputs, in the candidate's layout."""
        return loss

    def counterpart(self, calls: Calls, other: Unit, cotangent: Any) -> Counterpart:
        """The calls of the reference's unit that the candidate's unit makes too.

        Raises:
            Exception: What the candidate raises.
        """
        return Counterpart(
            {name: self.alone(name, call) for name, call in calls.items()}
        )

    def more(
        self,
        calls: Calls,
        taps: SharedCalls,
        beyond: Calls,
        wrong: Callable[[Tap], bool],
    ) -> dict[Tap, SharedCall]:
        """More functions that both sides call, seen where what precedes them was forced.

        Args:
            calls: The reference's.
            taps: Those that were forced.
            beyond: What else the candidate called meanwhile.
            wrong: Whether what follows a call of the reference is given something else.
        """
        return {}

    def alone(self, name: Tap, call: Call) -> SharedCall:
        """A call of the reference's, taken for one that the candidate makes in the same way."""
        return SharedCall(name, call, call, plain(call.given), plain(call.output))

    def forced(
        self,
        unit: Unit,
        taps: SharedCalls,
        weights: Cotangents,
        cotangent: Any,
    ) -> Forced:
        """`taps.force` on the candidate, in the names and layouts of the reference."""
        return force(unit, of_reference(taps), weights, cotangent)

    def to_reference(self, recording: Recording, reference: Recording) -> Recording:
        """What the candidate did, in the names and layouts of the reference."""
        return recording

    def is_input(self, path: str) -> bool:
        """Whether an argument of the loss goes into the network; all others are targets."""
        return True

    def unmatched(self, reference: Named, candidate: Named) -> dict[str, Any]:
        """Gradients of the parameters that one side alone has."""
        return {}


SAME = Correspondence()
