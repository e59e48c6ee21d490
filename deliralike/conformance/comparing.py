"""The comparison of two networks, level by level: from their names to replicas."""

from __future__ import annotations

import itertools
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from deliralike import backends, nest
from deliralike.conformance import explain
from deliralike.conformance.explain import by_hand, losses, steps, substitution, types, wiring
from deliralike.conformance.findings import (
    FAILED,
    LIMIT,
    NOT_REACHED,
    PASSED,
    Explanation,
    Finding,
    Level,
)
from deliralike.conformance.levels import (
    checkpoints,
    curve,
    pipelines,
    probes,
    replicas,
    rounding,
    semantics,
    stepping,
    structure,
)
from deliralike.conformance.localise import Place, localise
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop, Masks
from deliralike.conformance.matching import Match
from deliralike.conformance.proof import Proof
from deliralike.conformance.seen import called
from deliralike.conformance.sides import Sides, bring_together, matched_by_names
from deliralike.conformance.subject import Subject, with_changed_function
from deliralike.errors import (
    BatchError,
    CapabilityError,
    DtypeError,
    ProofFailed,
    SettingError,
    StateError,
)
from deliralike.network.base import AbstractNetwork, Network
from deliralike.optim.loss import LossFunction
from deliralike.optim.rules import Rule, rule
from deliralike.parallel import ProcessGroup, SingleProcess
from deliralike.training import classification_loss

LEVELS = ("L0", "L1", "L2", "L3", "L4", "L5", "L6", "L7")
BESIDE = (
    "data",
    "checkpoints",
)  # what stands beside the ladder, and is compared where it is asked for
TITLES = {
    "L0": structure.TITLE,
    "L1": semantics.TITLE,
    "L2": rounding.TITLE,
    "L3": "place",
    "L4": stepping.TITLE,
    "L5": curve.TITLE,
    "L6": replicas.TITLE,
    "L7": probes.TITLE,
    "checkpoints": checkpoints.TITLE,
    "data": pipelines.TITLE,
}
QUICK = ("L0", "L1", "L3")
MOST_PLACES = 12  # that are explained; where one convention is wrong throughout, these say so
# Passes through a network, or what takes as long.
_PASSES = {"data": 1, "L0": 1, "L1": 4, "L2": 4, "L3": 20, "L4": 4, "L7": 14, "checkpoints": 8}
_THOROUGH_PASSES = {"L2": 14, "L7": 150}
_PASSES_OF_A_STEP, _PASSES_OF_REPLICAS = 2, 20
_NOISY_CURVES = 5  # beside two in float64, where level L5 draws that in float32

_OP_BY_OP = ("L1", "L5", "L7")  # levels of which each program would run a few times

_NEAR = 0.03  # of a place's difference: what is farther from the candidate is no hint

Progress = Callable[[str, float], None]
OPTIMIZERS = {"sgd": rule("sgd", lr=0.05, momentum=0.9), "adamw": rule("adamw", lr=1e-3)}


def compare(
    reference: Any,
    candidate: Any,
    batch: tuple[Any, ...],
    *,
    loss: LossFunction = classification_loss,
    optimizers: Mapping[str, Rule] | None = None,
    names: Mapping[str, str] | None = None,
    weights: str = "judge",
    replicas: Sequence[int] = (),
    processes: ProcessGroup | None = None,
    levels: Sequence[str] = LEVELS,
    streams: tuple[Iterable[Any], Iterable[Any]] | None = None,
    steps: int = 3,
    seed: int = 0,
    thorough: bool = False,
    progress: Progress = lambda words, done: None,
) -> Proof:
    """Prove that two networks compute the same, or name the first place where they differ, and why.

    Both are copied and compared in float64. Neither changes, and the process keeps nothing of it:
    generators and the frameworks' switches are as before.

    Args:
        reference, candidate: Networks written once or native, of any backend; each a `Subject`,
            which brings a loss, optimizers and replicas of its own.
        batch: What the loss takes after the network: inputs, then the target; NumPy arrays, as the
            reference wants them. Some ten samples of the usual size are plenty.
        loss: ``loss(network, *batch)``, written with `nn`, for sides that have none of their own.
        optimizers: Update rules by name, for sides that have none of their own; SGD with momentum
            and AdamW when None.
        names: Corrections of the map of names, those of the candidate by those of the reference,
            for networks whose names differ.
        weights: With ``"judge"`` both are to hold the same weights; with ``"load"`` the candidate
            takes over those of the reference.
        replicas: Over how many replicas the candidate is compared as well.
        processes: In which the candidate is compared as well, one replica in each; every process
            makes the same call.
        levels: Which levels; see `LEVELS`. With ``"checkpoints"`` among them, weights and training
            states go through files, both ways.
        streams: What gives batches to each side, such as data loaders: their order and contents are
            compared.
        steps: Of the free curves of level L5.
        seed: Of random masks, forced gradients and noise.
        thorough: Whether levels L2, L5 and L7 repeat, draw and probe all that they can, which takes
            hundreds of passes.
        progress: Called when a level is begun, with its title and how much of the work is done, from
            0 to 1: ``("L2 quality in float32, about 20 seconds to go", 0.2)``. The estimate follows
            from the passes of level L1.

    Returns:
        The proof. ``print(proof)`` is the report, ``proof.check()`` raises unless it holds.

    Raises:
        SettingError: There is no such level, or way of treating weights, or no step or replica at
            all.
        BatchError: The batch holds no sample.
        UnknownName: The networks cannot be matched, or a correction does not fit.
        ProofFailed: The reference itself raises an error on this batch.

    Example:
        >>> from deliralike import zoo
        >>> nets = [zoo.build("mlp", backend=name, in_features=3, out_features=2) for name in ("torch", "chainer")]
        >>> batch = (np.ones((5, 3)), np.array([0, 1, 1, 0, 1]))
        >>> compare(*nets, batch, levels=("L0", "L1")).proved
        True
    """
    if unknown := [name for name in levels if name not in (*LEVELS, "checkpoints")]:
        raise SettingError(
            f"compare: there is no level {unknown[0]!r}; there are {', '.join(LEVELS)}, checkpoints"
        )
    if weights not in ("judge", "load"):
        raise SettingError(f"compare: weights={weights!r}: wanted 'judge' or 'load'")
    if steps < 1 or any(count < 1 for count in replicas):
        raise SettingError(
            f"compare: steps={steps}, replicas={tuple(replicas)}: wanted one at least"
        )
    given = OPTIMIZERS if optimizers is None else optimizers
    sides = [_subject(one, loss, given) for one in (reference, candidate)]
    settings = Settings(
        tuple(levels),
        weights,
        dict(names or {}),
        tuple(replicas),
        processes or SingleProcess(),
        streams,
        steps,
        seed,
        thorough,
        progress,
    )
    with ExitStack() as stack:
        stack.enter_context(_process_as_before())
        for backend in {side.network.backend for side in sides}:
            stack.enter_context(backend.undisturbed())
            stack.enter_context(backend.compiling_quickly())
        sides = [_with_shapes(side, batch) for side in sides]
        batch = _on_host(batch, sides)
        masks = Masks(seed)
        if any(not isinstance(side.network, Network) for side in sides):
            stack.enter_context(masks.forced(sides[0].network.backend, sides[1].network.backend))
        return _Comparison((sides[0], sides[1]), batch, settings, masks).proof()


@dataclass(frozen=True)
class Settings:
    """What is to be compared, and how; see `compare`."""

    levels: tuple[str, ...] = LEVELS
    weights: str = "judge"
    names: Mapping[str, str] = field(default_factory=dict)
    replicas: tuple[int, ...] = ()
    processes: ProcessGroup = field(default_factory=SingleProcess)
    streams: tuple[Iterable[Any], Iterable[Any]] | None = None
    steps: int = 3
    seed: int = 0
    thorough: bool = False
    progress: Progress = lambda words, done: None

    @property
    def replicates(self) -> bool:
        """Whether there are replicas to compare over."""
        return bool(self.replicas) or self.processes.count > 1

    def passes(self, level: str) -> int:
        """About how many passes through a network a level takes."""
        if level == "L5":
            curves = _PASSES_OF_A_STEP + (_NOISY_CURVES if self.thorough else 0)
            return curves * self.steps
        if level == "L6":
            return _PASSES_OF_REPLICAS * (len(self.replicas) + (self.processes.count > 1))
        thorough = _THOROUGH_PASSES if self.thorough else {}
        return thorough.get(level, _PASSES[level])


def _subject(given: Any, loss: LossFunction, optimizers: Mapping[str, Rule]) -> Subject:
    subject = given if isinstance(given, Subject) else Subject(backends.of(given).wrap(given), loss)
    if subject.optimizers:
        return subject
    return subject.but(optimizers={name: _following(wanted) for name, wanted in optimizers.items()})


@contextmanager
def _process_as_before() -> Iterator[None]:
    """Leave the generators of Python and NumPy, and the filters of warnings, as they were."""
    of_python, of_numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        with warnings.catch_warnings():  # packages that are imported here add to them
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _on_host(batch: tuple[Any, ...], sides: Sequence[Subject]) -> tuple[Any, ...]:
    """The batch in NumPy arrays, which are to hold something."""
    for side in sides:
        batch = side.network.backend.to_numpy(batch)
    for path, leaf in nest.leaves_with_paths(batch, "batch"):
        if isinstance(leaf, np.ndarray) and not leaf.size:
            raise BatchError(
                f"compare: {path} has the shape {leaf.shape} and holds nothing: some samples are "
                "wanted"
            )
    return batch


def _following(wanted: Rule) -> Callable[[AbstractNetwork], Any]:
    return lambda network: network.backend.optimizer(wanted, network)


class _Comparison:
    """One comparison in the making."""

    def __init__(
        self,
        sides: tuple[Subject, Subject],
        batch: tuple[Any, ...],
        settings: Settings,
        masks: Masks,
    ) -> None:
        self.given = sides
        self.masks = masks
        self.settings = settings
        # Numbers that float32 holds are exact in both types.
        self.is_short = {side.network.dtype_name for side in sides} == {"float32"}
        self.batch = nest.map(_rounded_to_float32 if self.is_short else _in_float64, batch)
        self.levels: list[Level] = []
        self.seconds_a_pass = 0.0  # which level L1 measures
        self.notes: list[str] = []

    def proof(self) -> Proof:
        """Climb the ladder as far as it goes."""
        start = time.perf_counter()
        if self.settings.streams is not None:
            self._begin("data")
            self.levels.append(pipelines.level(*self.settings.streams))
        self._structure()
        if self.sides is not None:
            self._semantics(self.sides)
            self._decide(self.sides)
        order = {name: position for position, name in enumerate((*LEVELS, *BESIDE))}
        reference, candidate = self.given
        return Proof(
            str(reference),
            str(candidate),
            tuple(sorted(self.levels, key=lambda level: order[level.name])),
            {
                "reference": reference.network.backend.precision(),
                "candidate": candidate.network.backend.precision(),
            },
            {one.network.backend.name: one.network.backend.version() for one in self.given},
            {
                path: f"{leaf.dtype} {leaf.shape}"
                for path, leaf in nest.leaves_with_paths(self.batch, "batch")
                if isinstance(leaf, np.ndarray)
            },
            "" if self.match is None else str(self.match),
            tuple(self.notes),
            time.perf_counter() - start,
        )

    # Levels
    # -------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        """Announce a level, from level L1 on with the time that is left."""
        ladder = [level for level in (*LEVELS, *BESIDE) if level in self.settings.levels]
        wanted = [level for level in ladder if level != "L3"]  # which right networks do not need
        if name not in wanted:
            wanted = [name, *wanted]
        done = sum(self.settings.passes(level) for level in wanted[: wanted.index(name)])
        left = sum(self.settings.passes(level) for level in wanted[wanted.index(name) :])
        words = f"{name} {TITLES[name]}"
        if self.seconds_a_pass:
            words += f", {in_words(left * self.seconds_a_pass)} to go"
        self.settings.progress(words, done / (done + left))

    def _structure(self) -> None:
        self._begin("L0")
        self.sides: Sides | None = None
        why = ""
        try:
            self.sides = bring_together(
                self.given, self.batch, self.settings.names, self.settings.weights
            )
        except (DtypeError, CapabilityError, StateError) as error:
            why = str(error)
        self.match = (
            self.sides.match if self.sides else matched_by_names(self.given, self.settings.names)
        )
        if "L0" in self.settings.levels:
            reference, candidate = self.given
            if self.sides is not None and self.sides.folded:
                reference = self.sides.reference
            self.levels.append(
                structure.level(reference, candidate, self.match, self.settings.weights)
            )
        if why:
            self._leave_out(f"there is no copy in float64 with equal weights: {why}", *LEVELS[1:])

    def _decide(self, sides: Sides) -> None:
        """Call nothing a difference that may come from a match that is not certain."""
        match, semantic = sides.match, self._level("L1")
        if match is None or semantic is None:
            return
        if semantic.status == PASSED:
            effective = {name for mode in self.modes.values() for name in mode.unmatched}
            if not effective.intersection(match.parameters_left_over()):
                self._forgive(match.parameters_left_over())
            return
        if semantic.status == FAILED and not sides.settled:
            places = self._level("L3")
            explained = [one for one in places.findings if _explains(one)] if places else []
            owners = {name.rpartition(".")[0] for name in match.parameters_left_over()}
            if owners:  # what is missing must be what makes the difference
                explained = [one for one in explained if owners == {one.place}]
            if not explained:
                self._leave_undecided(match)

    def _leave_training_of_folded(self, sides: Sides) -> None:
        """Compare evaluation alone where running statistics are held in another form."""
        held = () if sides.match is None else sides.match.together
        statistics = tuple(name for name in held if "running_" in name)
        modes = self.modes
        if statistics and not modes["train"].agrees and modes["eval"].agrees:
            self.folded = statistics
            del modes["train"]

    def _level(self, name: str) -> Level | None:
        return next((level for level in self.levels if level.name == name), None)

    def _forgive(self, names: Sequence[str]) -> None:
        """Parameters without a counterpart and without an effect are no difference."""
        for index, level in enumerate(self.levels):
            kept = tuple(finding for finding in level.findings if finding.place not in names)
            if level.name == "L0" and len(kept) < len(level.findings):
                note = f"Without a counterpart and without an effect: {', '.join(names)}."
                status = FAILED if kept else PASSED
                self.levels[index] = replace(
                    level, status=status, findings=kept, notes=(*level.notes, note)
                )

    def _leave_undecided(self, match: Match) -> None:
        """A difference that a wrong match would show as well decides nothing."""
        why = match.left_over if not match.complete else match.doubtful
        for index, level in enumerate(self.levels):
            if level.status == FAILED:
                self.levels[index] = replace(level, status=NOT_REACHED, notes=(why, *level.notes))

    def _semantics(self, sides: Sides) -> None:
        self._begin("L1")
        self.correspondence, self.folded = sides.correspondence, sides.folded
        self.reference = _masked(sides.reference, self.masks, REFERENCE)
        self.candidate = _masked(sides.candidate, self.masks, CANDIDATE)
        start = time.perf_counter()
        with self._running("L1"):
            self.modes: dict[str, semantics.Mode] = dict(self._modes())
        self.seconds_a_pass = (time.perf_counter() - start) / _PASSES["L1"]
        self._leave_training_of_folded(sides)
        found = semantics.level(self.modes)
        notes = tuple(self._of_dropout())
        with self._running("L1"):  # as before: another program rounds in another way
            why = self._why_undecided() if found.status == FAILED else self._why_nothing_shown()
        if why and self._only_training_is_random():
            del self.modes["train"]
            found, notes, why = semantics.level(self.modes), (*notes, why), ""
        if why:
            self.levels.append(Level("L1", semantics.TITLE, NOT_REACHED, notes=(*notes, why)))
            self._leave_out("level L1 was not reached", "L2", "L3", "L4", "L5", "L6", "L7")
            return
        figures = {**found.figures, "by_layer": list(self._by_layer())}
        self.levels.append(replace(found, figures=figures, notes=(*found.notes, *notes)))
        if found.status == PASSED:
            self._leave_out("nothing differs", "L3")
            if self.folded:
                why = f"{', '.join(self.folded)} folded into the layers before: only evaluation is compared"
                self._leave_out(why, "L2", "L4", "L5", "L6", "L7")
                return
            self._further()
            return
        if "L3" in self.settings.levels:
            self.levels.append(self._places())
        self._leave_out("level L1 failed", "L2", "L4", "L5", "L6", "L7")

    def _modes(self) -> Iterator[tuple[str, semantics.Mode]]:
        for name, training in semantics.MODES.items():
            if not (training and self.folded):
                yield name, self._mode(name, training)

    def _mode(self, name: str, training: bool) -> semantics.Mode:
        mine, theirs = (
            semantics.look(one, self.batch, training, self.settings.seed, self._elements())
            for one in (self.reference, self.candidate)
        )
        if mine.error:
            raise ProofFailed(
                f"the reference raises in {name} mode, so nothing can be compared: {mine.error}"
            )
        return semantics.compared(mine, theirs, self.correspondence)

    def _elements(self) -> int | None:
        """Return how many elements of each layer's output are compared; None for all of them.

        All are needed where another layout would select other elements.
        """
        return semantics.ELEMENTS if self.match is None else None

    def _why_undecided(self) -> str:
        """Return why a difference has no meaning; an empty text where it has one.

        The reasons are numbers that are not finite, and a network that draws random numbers.
        """
        for mode in self.modes.values():
            if where := semantics.not_finite(mode.reference.recording):
                return f"The reference is not finite at {where}."
        name, mode = next((name, mode) for name, mode in self.modes.items() if not mode.agrees)
        if name == "train" and self.masks.is_misfit:
            return "The masks of dropout do not fit: its arrays have other shapes in the candidate."
        for side, seen in (("reference", mode.reference), ("candidate", mode.candidate)):
            if not seen.error and (place := self._unsteady(side, name, seen)):
                return (
                    f"The {side} is not deterministic: two equal runs in {name} mode differ, first "
                    f"at {place}. Layers of nn draw the same masks on every backend: take those, "
                    "or switch the layer off (p=0)."
                )
        return ""

    def _why_nothing_shown(self) -> str:
        """Why an agreement says too little: no gradients, or numbers that are not of float64."""
        for name, mode in self.modes.items():
            for side, seen in (("reference", mode.reference), ("candidate", mode.candidate)):
                if where := semantics.short(seen.recording):
                    return f"The {side} is in float64, but does not compute in it in {name} mode: {where}."
        if any(mode.is_blind for name, mode in self.modes.items() if name == "train"):
            return (
                "No parameter gets a gradient other than zero, so that nothing is known of the "
                "backward pass: the loss is to depend on the network for this batch."
            )
        return ""

    def _only_training_is_random(self) -> bool:
        """Whether a difference in evaluation has a meaning, though one in training has none.

        Where evaluation agrees, nothing is decided without training.
        """
        evaluation = self.modes.get("eval")
        if evaluation is None or evaluation.agrees:
            return False
        sides = ("reference", evaluation.reference), ("candidate", evaluation.candidate)
        return not any(
            semantics.not_finite(seen.recording) or self._unsteady(side, "eval", seen)
            for side, seen in sides
            if not seen.error
        )

    def _of_dropout(self) -> Iterator[str]:
        """What is said of the frameworks' own dropout."""
        mine, its = self.masks.counts
        if mine != its or self.masks.is_misfit:
            yield (
                f"Dropout could not have the same masks: in training it is called {mine} times in "
                f"the reference and {its} times in the candidate, or with other shapes."
            )
        elif mine:
            yield f"Dropout had the same masks on both sides: {mine} calls of it in training."

    def _unsteady(self, side: str, mode: str, seen: semantics.Look) -> str:
        """The first block that differs between two equal runs of a side."""
        subject = self.reference if side == "reference" else self.candidate
        training, seed = semantics.MODES[mode], self.settings.seed
        with self._running("L1"):
            changed = semantics.unsteady(
                subject, self.batch, training, seen, seed, self._elements()
            )
        if not changed:
            return ""
        block = dict(subject.network.named_blocks()).get(changed[0].partition("#")[0])
        return (
            f"{changed[0] or 'the network'} ({type(block).__name__})"
            if block is not None
            else changed[0]
        )

    def _by_layer(self) -> Iterator[dict[str, Any]]:
        """The relative difference of each block's output, for pictures."""
        blocks = dict(self.reference.network.named_blocks())
        for name in next(iter(self.modes.values())).layers:
            path = name.partition("#")[0]
            yield {
                "path": name or "output",
                "kind": type(blocks[path]).__name__,
                **{mode: found.layers.get(name) for mode, found in self.modes.items()},
            }

    def _of_drops(self) -> list[Finding]:
        """What differs in the frameworks' own dropout, which is equal in what follows.

        A rate explains a difference where nothing differs in a run with equal rates.
        """
        if "train" not in self.modes:
            return []
        mine, its = self.masks.counts
        if mine != its:
            del self.modes["train"]  # where one side drops what the other does not, all differs
            remark = f"It is called {mine} times in the reference and {its} times in the candidate."
            return [Finding("L3", "", "dropout", np.inf, mode="train", remarks=(remark,))]
        differing = self.masks.differing_rates()
        if not differing:
            return []
        paths = self._paths_of_drops()
        worst, self.masks.rate_of_reference = self.modes["train"].worst, True
        with self._running("L1"):
            self.modes["train"] = self._mode("train", training=True)
        return [self._of_rate(mine, its, paths[at], worst) for at, mine, its in differing]

    def _of_rate(self, mine: Drop, its: Drop, path: str, worst: float) -> Finding:
        """A rate that differs; the training mode at hand is that with equal rates."""
        words = f"dropout p={its.rate:g} instead of {mine.rate:g}"
        if np.isclose(mine.rate + its.rate, 1.0):
            words += ", the fraction that is kept in the place of that which is dropped"
        equal = self.modes["train"]
        why = Explanation(words, equal.worst) if equal.agrees else None
        remarks = tuple(self._effect()) if why else (f"There is {words}.",)
        kind = type(dict(self.reference.network.named_blocks())[path]).__name__
        return Finding("L3", path, "output", worst, kind, "train", LIMIT, why, remarks)

    def _paths_of_drops(self) -> list[str]:
        """The reference's block that makes each call of dropout."""
        known = self.masks.drops.pop(REFERENCE)

        def loss(network: AbstractNetwork, *batch: Any) -> Any:
            with self.masks.located(network):
                return self.reference.loss(network, *batch)

        semantics.look(self.reference.but(loss=loss), self.batch, True, self.settings.seed)
        located = self.masks.drops.pop(REFERENCE, known)
        self.masks.drops[REFERENCE] = known
        return [drop.path for drop in located]

    def _places(self) -> Level:
        """Return level L3 (places): in training, and in evaluation where training explains nothing."""
        self._begin("L3")
        drops = self._of_drops()
        findings: dict[tuple[str, str, str], Finding] = {}
        for name in (name for name, mode in self.modes.items() if not mode.agrees):
            places = localise(
                self.reference,
                self.candidate,
                self.batch,
                semantics.MODES[name],
                self.correspondence,
                self.settings.seed,
            )
            for finding in (self._finding(place, name) for place in places[:MOST_PLACES]):
                key = (finding.place, finding.kind, finding.what)
                if key not in findings or _explains(finding) > _explains(findings[key]):
                    findings[key] = finding
            if findings and all(map(_explains, findings.values())):
                break
        # what is computed forwards comes first: gradients follow it
        forwards_first = sorted(findings.values(), key=lambda one: one.what.startswith("gradient"))
        found = (*forwards_first, *drops)
        status = FAILED if found else NOT_REACHED
        notes = () if found else ("No layer differs when judged alone at the reference's inputs.",)
        worst = max((finding.difference for finding in found), default=None)
        return Level("L3", TITLES["L3"], status, worst, found, notes)

    def _finding(self, place: Place, mode: str) -> Finding:
        place, explanation = self._explained(place)
        remarks = (*place.remarks, *self._exact_before(place, mode), *self._effect())
        return Finding(
            "L3",
            place.path,
            place.what,
            place.difference,
            place.kind,
            mode,
            LIMIT,
            explanation,
            remarks,
        )

    def _explained(self, place: Place) -> tuple[Place, Explanation | None]:
        """The first known explanation, or else the nearest of all; and the place that it is of.

        What a call does in another way comes before what is done between calls.
        """
        found: list[Explanation] = []
        for attempt in self._attempts(place):
            explanation = attempt()
            found += [] if explanation is None else [explanation]
            if found and found[-1].known:
                return place, found[-1]
        substitute = substitution.explain(place.substitutes, backends.of(self.reference.network))
        if substitute is not None:
            one, explanation = substitute
            return replace(place, path=one.accused.path, kind=one.accused.kind), explanation
        for attempt in self._between(place):
            explanation = attempt()
            found += [] if explanation is None else [explanation]
            if found and found[-1].known:
                return place, found[-1]
        nearest = min(found, key=lambda one: one.match, default=None)
        # what is hardly nearer than the reference itself is no hint
        is_far = (
            nearest is not None
            and np.isfinite(nearest.match)
            and nearest.match > _NEAR * place.difference
        )
        return place, None if is_far else nearest

    def _attempts(self, place: Place) -> Iterator[Callable[[], Explanation | None]]:
        """What may explain it by a call."""
        backend = backends.of(self.reference.network)
        if place.loss is not None:
            yield partial(losses.explain, place.loss)
        for accused in place.accused:
            yield partial(types.explain, accused.reference.values(), accused.candidate.values())
            yield partial(explain.explain, accused, backend)
        if place.wiring is not None:
            yield partial(by_hand.explain, place.wiring, backend)
            yield partial(steps.explain, place.wiring)

    def _between(self, place: Place) -> Iterator[Callable[[], Explanation | None]]:
        """What may explain it by what is done between calls."""
        if place.wiring is not None:
            yield partial(wiring.explain, place.wiring)
            yield partial(types.explain, {"": place.wiring.reference}, {"": place.wiring.candidate})

    def _exact_before(self, place: Place, mode: str) -> Iterator[str]:
        before = list(
            itertools.takewhile(
                lambda name: name.partition("#")[0] != place.path, self.modes[mode].layers
            )
        )
        if before and all(self.modes[mode].layers[name] <= LIMIT for name in before):
            yield "Everything before it is exact."

    def _effect(self) -> Iterator[str]:
        if "eval" in self.modes and not self.modes["eval"].candidate.error:
            effect = self.modes["eval"].differences["output"].difference
            about = f"Effect on evaluation outputs about {effect:.0e}."
            yield about if effect > LIMIT else "No effect on evaluation outputs."

    def _further(self) -> None:
        """What is judged once the networks are the same."""
        settings, sides = self.settings, (self.reference, self.candidate)
        names = None if self.match is None else self._names(self.match)
        makers: dict[str, Callable[[], Level]] = {
            "L2": self._rounding,
            "L4": lambda: stepping.level(*sides, names, unused=False, never=self._unused()),
            "L5": lambda: self._curve(names),
            "L6": lambda: replicas.level(
                sides[self.match is not None],
                sides[1],
                self.batch,
                settings.replicas,
                settings.processes,
            ),
            "L7": lambda: probes.level(*sides, self.batch, self.match, settings.thorough),
            "checkpoints": lambda: self._checkpoints(names),
        }
        if self.match is not None and (self.match.together or self.match.summed):
            del makers["L5"]
            self._leave_out("weights in another form do not change alike", "L5")
        if self.match is not None and self.match.together:
            del makers["L7"]
            self._leave_out("weights in another form cannot be changed alike", "L7")
        for name, make in makers.items():
            if name in settings.levels and (name != "L6" or settings.replicates):
                self._begin(name)
                with self._running(name):
                    self.levels.append(make())

    def _rounding(self) -> Level:
        looks = {name: mode.reference for name, mode in self.modes.items()}
        return rounding.level(
            self.reference,
            self.candidate,
            self.batch,
            self.correspondence,
            self.settings.seed,
            exact=looks if self.is_short else None,
            always_with_noise=self.settings.thorough,
        )

    def _curve(self, names: Mapping[str, str] | None) -> Level:
        settings = self.settings
        return curve.level(
            self.reference,
            self.candidate,
            [self.batch],
            settings.steps,
            names,
            settings.seed,
            in_float32=settings.thorough,
            match=self.match,
            gradients=self.modes["train"].reference.recording.parameters,
        )

    @contextmanager
    def _running(self, level: str) -> Iterator[None]:
        """Run networks op by op, where whole programs take longer to compile than to run."""
        with ExitStack() as stack:
            if level in _OP_BY_OP and not self.settings.thorough:
                for backend in {side.network.backend for side in self.given}:
                    stack.enter_context(backend.op_by_op())
            yield

    def _unused(self) -> list[str]:
        """The reference's parameters that get no gradient in training."""
        gradients = self.modes["train"].reference.recording.parameters
        return [name for name, gradient in gradients.items() if gradient is None]

    def _checkpoints(self, names: Mapping[str, str] | None) -> Level:
        with tempfile.TemporaryDirectory() as folder:
            return checkpoints.level(self.reference, self.candidate, self.batch, folder, names)

    def _names(self, match: Match) -> dict[str, str]:
        """The candidate's name of each parameter by the reference's, where one is one."""
        slots = self.reference.network.neutral_slots()
        found = {name: match.candidate_names(name) for name in slots if slots[name].is_parameter}
        straight = [name for name in found if name not in match.summed]
        return {name: found[name][0] for name in straight if len(found[name]) == 1}

    def _leave_out(self, why: str, *names: str) -> None:
        wanted = [
            name
            for name in names
            if name in self.settings.levels and (name != "L6" or self.settings.replicates)
        ]
        self.levels += [
            Level(name, TITLES[name], NOT_REACHED, notes=(f"Not looked at: {why}.",))
            for name in wanted
        ]


def in_words(seconds: float) -> str:
    """Return a time about as exactly as an estimate is.

    Example:
        >>> in_words(0.4), in_words(23.0), in_words(100.0)
        ('a few seconds', 'about 20 seconds', 'about 2 minutes')
    """
    if seconds < 5:
        return "a few seconds"
    if seconds < 75:
        return f"about {max(1, round(seconds / 10)) * 10} seconds"
    return f"about {round(seconds / 60)} minutes"


def _masked(side: Subject, masks: Masks, which: int) -> Subject:
    """A side whose loss draws the masks that both sides share."""
    loss = with_changed_function(side.loss, lambda own: masks.loss(own, which))
    return side.but(loss=loss)


def _with_shapes(side: Subject, batch: tuple[Any, ...]) -> Subject:
    """A side whose parameters have their shapes; of a network that finds them when it is called, a copy."""
    try:
        side.network.neutral_state()
    except StateError:
        network = deepcopy(side.network)
        called(side.but(network=network), side.network.backend.to_numpy(batch))
        return side.but(network=network)
    return side


def _explains(finding: Finding) -> bool:
    return finding.explanation is not None and finding.explanation.known


def _in_float64(value: Any) -> Any:
    return (
        value.astype(np.float64)
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
        else value
    )


def _rounded_to_float32(value: Any) -> Any:
    is_floating = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(np.float32).astype(np.float64) if is_floating else value
