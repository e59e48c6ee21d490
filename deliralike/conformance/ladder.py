"""The ladder of levels, climbed as far as two networks agree."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance import zero_params
from deliralike.conformance.by_name import block_kinds, owner
from deliralike.conformance.findings import (
    FAILED,
    NOT_NEEDED,
    NOT_REACHED,
    PASSED,
    Finding,
    Level,
    in_dtype,
    is_array,
)
from deliralike.conformance.kinds import Batch
from deliralike.conformance.levels import (
    semantics,
    sizes,
    stepping,
    structure,
)
from deliralike.conformance.locate import level as places
from deliralike.conformance.locate.drops import of_sizes
from deliralike.conformance.masks import REFERENCE, Masks
from deliralike.conformance.matching import Match
from deliralike.conformance.memory import collect, forget_programs
from deliralike.conformance.observe.raised import Raised
from deliralike.conformance.pairs import Sides, bring_together, matched_by_names
from deliralike.conformance.places import Tap
from deliralike.conformance.proof import Proof
from deliralike.conformance.proof_data import LEVELS
from deliralike.conformance.running import Running, effect, why_apart
from deliralike.conformance.subject import Subject, without_input_gradients
from deliralike.errors import (
    CapabilityError,
    DtypeError,
    ProofFailed,
    StateError,
    listed,
)
from deliralike.weights.matching.pairing import Pair

Progress = Callable[[str, float], None]
_SECOND_CALL = "The first call in training agrees; the second one, from the buffers that it has moved, differs."
TITLES = {
    "L0": structure.TITLE,
    "L1": semantics.TITLE,
    "L3": places.TITLE,
    "L4": stepping.TITLE,
    "L7": sizes.TITLE,
}
_SHARES = {
    "L0": 0.0,
    "L1": 0.1,
    "L7": 0.5,
    "L3": 0.5,
    "L4": 0.6,
}  # of the time, before each


@dataclass(frozen=True)
class Settings:
    """What is to be compared, and how; see `deliralike.conformance.compare`."""

    levels: tuple[str, ...] = LEVELS
    weights: str = "judge"
    names: Mapping[str, str] = field(default_factory=dict)
    progress: Progress | None = None


def _has_one_name(pair: Pair) -> bool:
    """Whether a tensor of one side is a whole one of the other, of the same name."""
    return pair.straight and pair.reference[0].source == pair.candidate[0].source


class Ladder:
    """One comparison in the making."""

    def __init__(
        self,
        sides: tuple[Subject, Subject],
        batch: Batch,
        settings: Settings,
        masks: Masks,
    ) -> None:
        """Compare two sides, which stay as they are."""
        self.given = sides
        self.masks = masks
        self.settings = settings
        # Numbers that float32 holds are exact in both types.
        if {side.network.dtype_name for side in sides} == {"float32"}:
            batch = nest.map(lambda leaf: in_dtype(leaf, np.float32), batch)
        self.batch = nest.map(lambda leaf: in_dtype(leaf, np.float64), batch)
        self.levels: dict[str, Level] = {}  # by name, as they come
        self.match: Match | None = None
        self.notes: tuple[str, ...] = ()  # of what level L1 leaves out
        self.reshaped: list[Finding] = []  # tensors of one name and two shapes

    def proof(self) -> Proof:
        """Climb the ladder as far as it goes."""
        start = time.perf_counter()
        sides = self._structure()
        if sides is not None:
            self._semantics(sides)
            self._decide(sides)
        reference, candidate = self.given
        return Proof(
            str(reference),
            str(candidate),
            tuple(self.levels[name] for name in LEVELS if name in self.levels),
            {
                "reference": reference.network.backend.precision(),
                "candidate": candidate.network.backend.precision(),
            },
            {
                one.network.backend.name: one.network.backend.version()
                for one in self.given
            },
            self._batch_in_words(),
            self._match_in_words(),
            seconds=time.perf_counter() - start,
            date=datetime.now(UTC).date().isoformat(),
        )

    def _batch_in_words(self) -> dict[str, str]:
        named = nest.leaves_with_paths(self.batch, "batch")
        arrays = {path: leaf for path, leaf in named if is_array(leaf)}
        return {path: f"{leaf.dtype} {leaf.shape}" for path, leaf in arrays.items()}

    def _match_in_words(self) -> str:
        """The pairs of tensors that are no plain pair of one name, and what is left over."""
        if self.match is None:
            return ""
        telling = []
        for pair in self.match.names:
            is_plain = pair.transform.plain and pair.certain
            if not (is_plain and _has_one_name(pair)):
                telling.append(pair)
        shown, others = (
            replace(self.match, names=tuple(telling)),
            len(self.match.names) - len(telling),
        )
        if not telling and shown.complete:
            return ""
        more = f"\n{others} more have equal names and layouts." if others else ""
        return f"{shown}{more}"

    def _begin(self, name: str, part: str = "", share: float = 0.0) -> None:
        """Announce a level, or a part of it that begins after this share of all."""
        if self.settings.progress is not None:
            self.settings.progress(
                f"{name} {TITLES[name]}{part}", max(share, _SHARES[name])
            )

    def _add(self, level: Level) -> None:
        self.levels[level.name] = level

    def _leave_out(self, why: str, *names: str, status: str = NOT_REACHED) -> None:
        notes = (f"Not looked at: {why}.",)
        for name in (name for name in names if name in self.settings.levels):
            self._add(Level(name, TITLES[name], status, notes=notes))

    # Names and weights
    # -------------------------------------------------------------------------

    def _structure(self) -> Sides | None:
        """Level L0; both sides made comparable, or None where they cannot be."""
        self._begin("L0")
        settings, sides, why = self.settings, None, ""
        try:
            sides = bring_together(self.given, self.batch, settings.names)
            self.match, self.batch = sides.match, sides.batch
        except (DtypeError, CapabilityError, StateError) as error:
            why = str(error)
            self.match = matched_by_names(self.given, settings.names)
        if "L0" in settings.levels:
            reference, candidate = self.given
            found = structure.level(reference, candidate, self.match, settings.weights)
            if sides is not None:
                found = self._with_effect(found, sides)
            self._add(found)
        if why:
            self._leave_out(
                f"there is no copy in float64 with equal weights: {why}", *LEVELS[1:]
            )
        return sides

    def _with_effect(self, level: Level, sides: Sides) -> Level:
        """Say what weights that differ do to the outputs: the candidate runs with its own."""
        if (
            not level.findings
            or self.settings.weights != "judge"
            or self.settings.levels == ("L0",)
        ):
            return level
        own = self.given[1].in_dtype("float64").network
        candidate = sides.candidate.replace(network=own)
        running = Running.of(sides, self.batch, Masks())
        sentence = effect(running.mode("eval", candidate))
        findings = [replace(one, effect=sentence) for one in level.findings]
        return replace(level, findings=tuple(findings))

    def _decide(self, sides: Sides) -> None:
        """Call nothing a difference that may come from a match that is not certain."""
        match, semantic = sides.match, self.levels.get("L1")
        if match is None or semantic is None or self.running.raises:
            return
        left_over = match.parameters_left_over()
        modes = self.running.modes.values()
        effective = set().union(*(mode.unmatched for mode in modes))
        if semantic.status == PASSED:
            if effective.isdisjoint(left_over):
                self._forgive(left_over)
            return
        # Weights that are judged are the candidate's own, and so is what it computes with them.
        is_judged = bool(left_over) and self.settings.weights == "judge"
        is_lacking = not effective.isdisjoint(match.lacking)
        is_certain = (
            is_judged
            or is_lacking
            or sides.settled
            or self.reshaped
            or all(map(_has_one_name, match.names))
        )
        if semantic.status == FAILED and not is_certain:
            found = self.levels["L3"].findings if "L3" in self.levels else ()
            explained = [one for one in found if one.explained]
            owners = set(map(owner, left_over))
            if owners:  # what is missing must be what makes the difference
                explained = [one for one in explained if owners == {one.place}]
            if not explained:
                self._leave_undecided(match)

    def _forgive(self, names: Sequence[str]) -> None:
        """Parameters without a counterpart and without an effect are no difference."""
        level = self.levels.get("L0")
        if level is None:
            return
        remaining = tuple(
            finding for finding in level.findings if finding.place not in names
        )
        if len(remaining) < len(level.findings):
            note = f"Without a counterpart and without an effect: {', '.join(names)}."
            status, notes = FAILED if remaining else PASSED, (*level.notes, note)
            self._add(replace(level, status=status, findings=remaining, notes=notes))

    def _leave_undecided(self, match: Match) -> None:
        """A difference that a wrong match would show as well decides nothing, nor does its cause."""
        why = match.doubtful if match.holds_all else match.left_over
        for name, level in self.levels.items():
            if level.status == FAILED:
                findings = tuple(
                    replace(one, explanation=None) for one in level.findings
                )
                note = "Not decided: see the note of level L1."
                if name == "L1":
                    note = why
                notes = (note, *level.notes)
                undecided = replace(
                    level, status=NOT_REACHED, findings=findings, notes=notes
                )
                self.levels[name] = undecided

    # Values
    # -------------------------------------------------------------------------

    def _semantics(self, sides: Sides) -> None:
        """Level L1, and what follows from it, as far as the reference can be run.

        Raises:
            ProofFailed: The reference raises an error, as it was given too.
        """
        filled = zero_params.fill_zeros(sides)
        if filled:
            self.notes = (
                "Parameters that held nothing but zeros were given other numbers on both sides, "
                f"here and in the levels that follow: {listed(filled)}.",
            )
        try:
            self._values(sides)
        except ProofFailed as failure:
            reference, candidate = map(
                without_input_gradients, (sides.reference, sides.candidate)
            )
            if error := self._error_of(reference):
                if not self._is_undecidable(error):
                    raise failure from None
                return
            self.notes += (
                "The gradients of the inputs are not compared: they make it raise.",
            )
            self._values(replace(sides, reference=reference, candidate=candidate))

    def _error_of(self, side: Subject) -> Raised | None:
        looks = [
            semantics.look(side, self.batch, mode) for mode in semantics.MODES.values()
        ]
        return looks[0].error or looks[1].error

    def _is_undecidable(self, error: Raised) -> bool:
        """Leave a reference undecided that runs as it was given, and not as a copy in float64.

        Return whether there is such a reason.
        """
        given = self.given[0]
        why = why_apart(given)
        if not why and not self._error_of(
            given.replace(network=copy.deepcopy(given.network))
        ):
            why = (
                f"The reference runs in {given.network.dtype_name}, and not in float64, in which "
                f"networks are compared: {error}. Where it names a type, it is to take that of a "
                "parameter or of its input."
            )
        if why:
            self._leave_undecided_at_values(why)
        return bool(why)

    def _leave_undecided_at_values(self, *notes: str) -> None:
        self._add(Level("L1", semantics.TITLE, NOT_REACHED, notes=notes))
        self._leave_out("level L1 was not reached", "L3", "L4", "L7")

    def _values(self, sides: Sides) -> None:
        """Compare what both sides compute, and go on where it is the same."""
        self.running = Running.of(sides, self.batch, self.masks)
        modes = self.running.modes
        goes_on = False
        for at, name in enumerate(semantics.MODES):
            self._begin("L1", f" ({name})", 0.1 + 0.2 * at)
            modes[name] = self.running.mode(name)
            if name == "train" and modes[name].agrees:
                goes_on = self.running.move_buffers()
            collect(self.running.reference.network)
        if goes_on and modes["eval"].agrees:
            modes["train"] = self.running.mode("train")
            if not modes["train"].agrees:
                self.notes += (_SECOND_CALL,)
        found = semantics.level(modes)
        notes = self._of_dropout()
        failed = found.status == FAILED
        if failed:
            why = self.running.why_undecided()
        else:
            why = self.running.why_nothing_shown()
        apart = ""
        if failed is not bool(why):
            apart = why_apart(*self._sides)
        if not apart and why and self.running.only_training_is_random():
            del modes["train"]
            found, notes, why = semantics.level(modes), (*notes, why), ""
        if apart or why:
            self._leave_undecided_at_values(apart or why, *notes)
            return
        masks = () if failed else tuple(of_sizes(self.running))
        if masks:
            found = replace(found, status=FAILED, findings=masks)
        figures = {**found.figures, "by_layer": self._by_layer()}
        self._add(
            replace(found, figures=figures, notes=(*found.notes, *notes, *self.notes))
        )
        self._after(found, sides)

    def _after(self, values: Level, sides: Sides) -> None:
        """Places where values differ; where they agree all that is judged then."""
        if values.status != PASSED:
            level = self.levels.get("L0")
            reference, candidate = (side.network for side in self.given)
            self.reshaped = structure.reshaped(reference, candidate, self.match)
            if self.reshaped and level is not None:
                self._add(structure.with_shapes(level, self.reshaped))
                self._leave_out("shapes differ", "L3", status=NOT_NEEDED)
            elif "L3" in self.settings.levels:
                self._begin("L3")
                forget_programs(*(side.network for side in self._sides))
                self._add(places.level(self.running))
            self._leave_out("level L1 failed", "L4", "L7", status=NOT_NEEDED)
            return
        self._leave_out("nothing differs", "L3", status=NOT_NEEDED)
        self._further(sides)

    def _of_dropout(self) -> tuple[str, ...]:
        """What is said of dropout and noise."""
        if self.running.raises:
            return ()
        kinds = [drop.kind for drop in self.masks.called(REFERENCE, True)]
        masks, noise = kinds.count("keep"), len(kinds) - kinds.count("keep")
        remarks = []
        if masks:
            remarks.append(
                "Dropout scaled by 1 / (1 - p) in the place of masks: "
                f"{_calls(masks)} of it in training."
            )
        if noise:
            remarks.append(
                f"Noise was the same number everywhere: {_calls(noise)} of it."
            )
        return tuple(remarks)

    def _by_layer(self) -> list[dict[str, Any]]:
        """The relative difference of each block's output, for reports."""
        kinds = block_kinds(self.running.reference.network)
        modes, rows = self.running.modes, []
        for name in next(iter(modes.values())).layers:
            row = {
                "path": "output" if name == Tap() else str(name),
                "block": name.path,
                "kind": kinds[name.path],
            }
            rows.append(
                row | {mode: found.layers.get(name) for mode, found in modes.items()}
            )
        return rows

    # Networks that are the same
    # -------------------------------------------------------------------------

    def _further(self, sides: Sides) -> None:
        """What is judged once the networks are the same."""
        if "L7" in self.settings.levels:
            self._begin("L7")
            self._sizes(sides)
        if "L4" in self.settings.levels:
            self._begin("L4")
            never = self.running.modes["train"].never
            self._add(stepping.level(*self._sides, self._names(), never=never))

    def _sizes(self, sides: Sides) -> None:
        """Level L7; where another size differs, the place is looked for with that."""
        evaluation = None if sides.match is None else self.running.modes["eval"]
        level, apart = sizes.level(*self._sides, self.batch, evaluation)
        self._add(level)
        if apart is None or "L3" not in self.settings.levels:
            return
        running = Running.of(sides, apart, self.masks)
        size = next(one.place for one in level.findings if one.what == "output")

        def look() -> Level:
            running.modes["eval"] = running.mode("eval")
            return places.level(running)

        self._begin("L3")
        found = running.attempt("The search for the place", look, None)
        if found is not None:
            remark = f"Only with {size}: those of this batch give the same."
            findings = [
                replace(one, remarks=(remark, *one.remarks)) for one in found.findings
            ]
            self._add(replace(found, findings=tuple(findings)))

    @property
    def _sides(self) -> tuple[Subject, Subject]:
        return self.running.reference, self.running.candidate

    def _names(self) -> Mapping[str, str] | None:
        """The candidate's name of each parameter by the reference's, where one is one."""
        match = self.match
        if match is None:
            return None
        slots = self.running.reference.network.neutral_slots()
        names = [name for name, slot in slots.items() if slot.is_parameter]
        found = {
            name: match.candidate_names(name)
            for name in names
            if name not in match.summed
        }
        return {
            name: partners[0] for name, partners in found.items() if len(partners) == 1
        }


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"
