"""Both sides of a comparison in training and in evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from deliralike.conformance.attempts import Attempts
from deliralike.conformance.by_name import block_kinds, owner
from deliralike.conformance.findings import LIMIT, short
from deliralike.conformance.kinds import Batch
from deliralike.conformance.levels import semantics
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Masks
from deliralike.conformance.observe.corresponding import Correspondence
from deliralike.conformance.pairs import Sides
from deliralike.conformance.places import UNIT
from deliralike.conformance.subject import Subject, with_changed_function
from deliralike.conformance.ulp import SLIGHT
from deliralike.errors import ProofFailed
from deliralike.network.copying import function_with_outside_layer

NO_EFFECT = "No effect on evaluation outputs."


@dataclass
class Running:
    """Both sides, and what they did in each mode.

    Attributes:
        reference, candidate: In float64, with dropout that scales alone.
        batch: NumPy arrays.
        correspondence: Which block of the candidate is which of the reference.
        masks: Of the frameworks' own dropout.
        elements: How many elements of each layer's output are compared; None for all of them.
        modes: Those that can be compared, by name.
        attempt: To find places and causes.
    """

    reference: Subject
    candidate: Subject
    batch: Batch
    correspondence: Correspondence
    masks: Masks
    elements: int | None
    modes: dict[str, semantics.Mode] = field(default_factory=dict)
    attempt: Attempts = field(default_factory=Attempts)

    @classmethod
    def of(cls, sides: Sides, batch: Batch, masks: Masks) -> Running:
        """Both sides of a match, not run yet.

        All elements are needed where another layout would select other ones.
        """
        elements = semantics.ELEMENTS if sides.match is None else None
        reference = _masked(sides.reference, masks, REFERENCE)
        candidate = _masked(sides.candidate, masks, CANDIDATE)
        return cls(reference, candidate, batch, sides.correspondence, masks, elements)

    def mode(self, name: str, candidate: Subject | None = None) -> semantics.Mode:
        """Run both sides once in a mode, the candidate as it is or another one.

        Raises:
            ProofFailed: The reference raises an error.
        """
        training = semantics.MODES[name]
        expected, actual = (
            semantics.look(one, self.batch, training, self.elements)
            for one in (self.reference, candidate or self.candidate)
        )
        if expected.error:
            raise ProofFailed(
                f"the reference raises in {name} mode, so nothing can be compared: {expected.error}"
            )
        mode = semantics.compared(expected, actual, self.correspondence)
        if not (mode.agrees or actual.error or mode.worst > SLIGHT):
            mode = semantics.with_magnified_rounding(
                mode, self.reference, self.batch, training
            )
        return semantics.without_gradients(mode)

    def move_buffers(self) -> bool:
        """Go on from the buffers that the call in training has moved, on both sides.

        Statistics of zeros and ones hide whether an evaluation reads them.

        Returns:
            Whether more has moved than statistics of batch norms, which training does not read.
        """
        is_more = False
        for side, look in zip(
            (self.reference, self.candidate), _sides(self.modes["train"]), strict=True
        ):
            network, kinds = side.network, block_kinds(side.network)
            own, moved = network.neutral_state(), look[1].recording.state
            for name, value in moved.items():
                is_moved = not np.array_equal(own[name], value, equal_nan=True)
                is_more |= is_moved and "BatchNorm" not in kinds.get(owner(name), "")
            network.load_neutral_state({**own, **moved})
        return is_more

    @property
    def raises(self) -> bool:
        """Whether the candidate raises an error in a mode."""
        return any(mode.candidate.error for mode in self.modes.values())

    @property
    def follows_no_mode(self) -> bool:
        """Whether both sides compute in evaluation what they compute in training."""
        both = [self.modes[name] for name in semantics.MODES if name in self.modes]
        sides = [(one.reference.recording, one.candidate.recording) for one in both]
        return len(sides) == 2 and all(map(semantics.is_equal, *sides))

    def effect(self) -> str:
        """Say what the difference does to the outputs in evaluation, if that is known."""
        return effect(self.modes["eval"]) if "eval" in self.modes else ""

    # What has no meaning
    # -------------------------------------------------------------------------

    def why_undecided(self) -> str:
        """Return why a difference has no meaning; an empty text where it has one.

        The reasons are numbers that are not finite, and a network that draws random numbers.
        """
        for mode in self.modes.values():
            if where := semantics.not_finite(mode.reference.recording):
                return f"The reference is not finite at {where}."
        if self.raises:
            return ""
        name, mode = next(
            (name, mode) for name, mode in self.modes.items() if not mode.agrees
        )
        for side, look in _sides(mode):
            if not look.error and (place := self._unsteady(side, name, look)):
                return (
                    f"The {side} is not deterministic: two equal runs in {name} mode differ, first "
                    f"at {place}. {_REMEDIES['drop' in place.lower()]}"
                )
        return ""

    def why_nothing_shown(self) -> str:
        """Why an agreement says too little: no gradients, or numbers that are not of float64."""
        for name, mode in self.modes.items():
            for side, look in _sides(mode):
                if where := semantics.short(look.recording, self.batch):
                    return f"The {side} is in float64, but does not compute in it in {name} mode: {where}."
        if any(mode.is_blind for name, mode in self.modes.items() if name == "train"):
            return (
                "No parameter gets a gradient other than zero, so that nothing is known of the "
                "backward pass: the loss is to depend on the network for this batch."
            )
        return ""

    def only_training_is_random(self) -> bool:
        """Whether a difference in evaluation has a meaning, though one in training has none.

        Where evaluation agrees, nothing is decided without training.
        """
        evaluation = self.modes.get("eval")
        if evaluation is None or evaluation.agrees:
            return False
        looks = [(side, one) for side, one in _sides(evaluation) if not one.error]
        if any(semantics.not_finite(one.recording) for _, one in looks):
            return False
        return not any(self._unsteady(side, "eval", one) for side, one in looks)

    def _unsteady(self, side: str, mode: str, look: semantics.Look) -> str:
        """The first block that differs between two equal runs of a side."""
        subject = self.reference if side == "reference" else self.candidate
        training = semantics.MODES[mode]
        changed = semantics.unsteady(subject, self.batch, training, look, self.elements)
        if changed is None:
            return ""
        if changed == UNIT:
            return "the loss"
        return f"{changed} ({block_kinds(subject.network)[changed.path]})"


def why_apart(*sides: Subject) -> str:
    """Return why a side is no network of its own, if it is none."""
    for side in sides:
        if name := function_with_outside_layer(side.network):
            return (
                f"The function {name!r} of {side} computes with a layer that is no part of that "
                "network, as in a copy.deepcopy, which copies no function: build the network anew, "
                "or make the function a method."
            )
    return ""


_REMEDIES = {
    True: "Layers of nn draw the same masks on every backend: take those, or switch it off (p=0).",
    False: "What is computed before it draws random numbers by itself, or remembers an earlier "
    "call: switch that off.",
}


def effect(evaluation: semantics.Mode) -> str:
    """Say what a difference does to the outputs in evaluation; nothing where a side raises."""
    if evaluation.candidate.error:
        return ""
    size = evaluation.differences["output"].difference
    if size <= LIMIT:
        return NO_EFFECT
    return f"Effect on evaluation outputs about {short(f'{size:.0e}')}."


def _sides(mode: semantics.Mode) -> tuple[tuple[str, semantics.Look], ...]:
    return ("reference", mode.reference), ("candidate", mode.candidate)


def _masked(side: Subject, masks: Masks, which: int) -> Subject:
    """A side whose calls of dropout are noted."""
    loss = with_changed_function(side.loss, lambda own: masks.loss(own, which))
    return side.replace(loss=loss)
