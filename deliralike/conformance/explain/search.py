"""The cause of a block's difference: its nearest known convention, or a relation between arrays.

Outputs, buffers and gradients are looked at in this order, since each may have a cause of its own:
a batch norm with another epsilon *and* another momentum differs in its outputs by the one and in
its buffers by the other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deliralike import nest
from deliralike.backends.base import Backend
from deliralike.conformance.explain import relations
from deliralike.conformance.explain.bench import Bench, Tensors
from deliralike.conformance.explain.calls import binder
from deliralike.conformance.explain.catalogue import variants
from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.losses import explain_loss
from deliralike.conformance.explain.variant import Call, Variant
from deliralike.conformance.findings import LIMIT, MATCH, Accused, Explanation

PATIENCE = 4.0  # seconds
LOSSES = (
    "cross_entropy",
    "focal_loss",
    "bce_with_logits",
    "binary_focal_loss",
    "mse_loss",
    "l1_loss",
    "dice_loss",
    "tversky_loss",
)


@dataclass(frozen=True)
class _Trial:
    """What a convention gave, and how far that is from the candidate's, tensor by tensor."""

    cause: str
    tensors: Tensors
    distances: Mapping[str, float]

    def within(self, names: Iterable[str]) -> float:
        """The largest distance of some tensors; infinite where one was not computed."""
        return max((self.distances.get(name, np.inf) for name in names), default=0.0)

    @property
    def distance(self) -> float:
        """The largest of all that were computed."""
        return max(self.distances.values(), default=0.0)


@dataclass(frozen=True)
class _Part:
    """The cause of a part of the difference."""

    cause: str
    match: float
    next_best: float | None = None


def explain(
    accused: Accused, backend: Backend, patience: float = PATIENCE, seed: int = 0
) -> Explanation | None:
    """The most likely cause of what a block's candidate gave.

    Known conventions of its kind are executed on the reference's inputs, settings among them
    searched for in one dimension; the nearest one in outputs, buffers and gradients is the cause.
    What no convention explains is compared array by array.

    Args:
        accused: The block and what both sides gave.
        backend: What conventions are executed on, in float64.
        patience: After so many seconds no more are tried; the likely ones come first.
        seed: Of the portable random stream in which both were run.

    Returns:
        None where candidate and reference agree, or nothing can be said.
    """
    if accused.kind in LOSSES:
        return _of_loss(accused)
    bench = Bench(accused, backend, seed)
    trials = [_Trial("", bench.reference, bench.distances(bench.reference))]
    if trials[0].distance <= LIMIT:
        return _absent(accused)
    end = time.monotonic() + patience
    for variant in variants(bench):
        if (trial := _tried(bench, variant)) is not None:
            trials.append(trial)
            if _complete(bench, trials) or time.monotonic() > end:
                break
    parts = _parts(bench, trials)
    return _unknown(trials) if parts is None else _together(parts)


def _absent(accused: Accused) -> Explanation | None:
    """Gradients that are not there at all, which counts even where they would be zero."""
    pairs = [
        (n, value, accused.candidate.parameters.get(n))
        for n, value in accused.reference.parameters.items()
    ]
    lacking = [name for name, mine, its in pairs if mine is not None and its is None]
    return Explanation(f"no gradient of {', '.join(lacking)} (missing)", 0.0) if lacking else None


def _of_loss(accused: Accused) -> Explanation | None:
    """The cause of a loss of `nn`, which has a value and the gradient of its first argument."""
    bound = binder(accused.kind)(Call(None, {}, accused.args, accused.kwargs, {}, accused.training))
    prediction, target, *_ = bound.values()
    given = [value for value in nest.leaves(accused.cotangent) if value is not None]
    scale = float(np.ravel(given[0])[0]) if given and np.size(given[0]) == 1 else 0.0
    sides = []
    for side in (accused.reference, accused.candidate):
        if np.size(side.outputs) != 1 or side.outputs is None:
            return None
        gradient = side.inputs.get("args[0]") if scale else None
        sides.append(
            (float(np.ravel(side.outputs)[0]), None if gradient is None else gradient / scale)
        )
    return explain_loss(
        prediction, target, sides[0], sides[1], {**bound, **accused.settings}, accused.kind
    )


def _tried(bench: Bench, variant: Variant) -> _Trial | None:
    """A variant's outputs and buffers; its gradients too where its outputs are the candidate's."""
    found = bench.fitted(variant) if variant.starts else variant
    tensors = None if found is None else bench.forward(found.formula)
    if found is None or tensors is None:
        return None
    distances = bench.distances(tensors, bench.forward_names)
    trial = _Trial(str(found.cause), tensors, distances)
    if trial.within(bench.outputs) > MATCH or bench.reshaped or not bench.gradients:
        return trial
    tensors = bench.everything(found.formula)
    return trial if tensors is None else _Trial(trial.cause, tensors, bench.distances(tensors))


def _complete(bench: Bench, trials: Sequence[_Trial]) -> bool:
    """Whether nothing is left to explain."""
    judged, (itself, *others) = _judged(bench), trials
    if any(trial.within((*judged, *bench.buffers)) <= EXACT for trial in others):
        return True
    if min(itself.within(bench.buffers), itself.within(judged)) <= EXACT:
        return False  # whatever explains the one must leave the other alone
    return any(trial.within(judged) <= EXACT for trial in others) and any(
        trial.within(bench.buffers) <= EXACT for trial in others
    )


def _judged(bench: Bench) -> tuple[str, ...]:
    """Return the tensors that decide which variant explains the outputs.

    Gradients of another shape do not take part.
    """
    return bench.outputs if bench.reshaped else (*bench.outputs, *bench.gradients)


def _parts(bench: Bench, trials: Sequence[_Trial]) -> list[_Part] | None:
    """Return the causes of other outputs, buffers and gradients.

    None when the cause of the outputs is unknown.
    """
    itself = trials[0]
    wrong = [name for name in bench.outputs if itself.distances[name] > LIMIT]
    same = [
        trial for trial in trials if not wrong or _good(trial.within(wrong), itself.within(wrong))
    ]
    if not same:
        return _by_arrays(bench, itself, wrong)
    judged = _judged(bench)
    best = min(
        same,
        key=lambda trial: (
            max(trial.within(judged), EXACT),
            max(trial.within(bench.buffers), EXACT),
        ),
    )
    if not _good(best.within(judged), max(itself.within(judged), LIMIT)):
        best = same[0]
    parts = []
    if best is not itself:
        others = [trial.distance for trial in trials if trial is not best]
        parts.append(_Part(best.cause, best.within(wrong), min(others, default=None)))
    return parts + _buffers(bench, trials, best) + _gradients(bench, best)


def _buffers(bench: Bench, trials: Sequence[_Trial], best: _Trial) -> list[_Part]:
    """The cause of buffers that a variant for the outputs leaves as they are."""
    wrong = [name for name in bench.buffers if best.distances[name] > LIMIT]
    if not wrong:
        return []
    ordered = sorted(
        trials,
        key=lambda trial: (
            max(trial.within(wrong), EXACT),
            max(trial.within(_judged(bench)), EXACT),
        ),
    )
    if ordered[0] is trials[0] and _good(ordered[0].within(wrong), best.within(wrong)):
        return [_Part("buffers as in the reference", ordered[0].within(wrong))]
    if _good(ordered[0].within(wrong), best.within(wrong)):
        following = ordered[1].within(wrong) if len(ordered) > 1 else None
        return [_Part(ordered[0].cause, ordered[0].within(wrong), following)]
    return _related(bench, best, wrong)


def _gradients(bench: Bench, best: _Trial) -> list[_Part]:
    """The cause of gradients that differ though the outputs do not."""
    wrong = [name for name in bench.gradients if best.distances.get(name, 0.0) > LIMIT]
    parts = _related(bench, best, wrong) if wrong else []
    if parts and best.cause and any(part.match > MATCH for part in parts):
        return [_Part(f"(the outputs match, but not {', '.join(wrong)})", best.within(wrong))]
    return parts


def _related(bench: Bench, base: _Trial, names: Sequence[str]) -> list[_Part]:
    """Describe the relations between a trial's arrays and the candidate's.

    Arrays with the same relation share one sentence.
    """
    found = [
        (name, relations.nearest(base.tensors.get(name), bench.wanted.get(name))) for name in names
    ]
    by_cause: dict[str, list[str]] = {}
    for name, relation in found:
        by_cause.setdefault("unlike any known" if relation is None else relation.cause, []).append(
            name
        )
    worst = max(
        (
            base.distances[name] if relation is None else relation.distance
            for name, relation in found
        ),
        default=0.0,
    )
    if worst > MATCH or not _good(worst, base.within(names)):
        worst = max(worst, min(base.within(names), 1.0))
    cause = "; ".join(f"{', '.join(names)} {cause}" for cause, names in by_cause.items())
    return [_Part(cause, worst, base.within(names))]


def _by_arrays(bench: Bench, itself: _Trial, wrong: Sequence[str]) -> list[_Part] | None:
    """What shows between outputs and inputs; None where it is not enough to explain them."""
    given = [
        *nest.leaves_with_paths(tuple(bench.accused.args), "args"),
        *nest.leaves_with_paths(dict(bench.accused.kwargs), "kwargs"),
    ]
    inputs = {
        path: leaf
        for path, leaf in given
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f"
    }
    causes: dict[str, float] = {}
    for name in wrong:
        relation = relations.nearest(bench.reference.get(name), bench.wanted.get(name), inputs)
        if name not in bench.wanted or name not in bench.reference:
            return None  # not called at all, which is said elsewhere
        if relation is None or not _good(relation.distance, itself.distances[name]):
            return None
        causes[f"{name} {relation.cause}"] = relation.distance
    return [
        _Part(
            f"{'; '.join(causes)} (by the outputs alone)",
            max(causes.values()),
            itself.within(wrong),
        )
    ]


def _good(match: float, apart: float) -> bool:
    """Return whether something explains a difference: it must be much nearer than the reference."""
    return match <= min(MATCH, 1e-3 * apart)


def _together(parts: Sequence[_Part]) -> Explanation | None:
    if not parts:
        return None
    following = [part.next_best for part in parts if part.next_best is not None]
    cause = "; ".join(part.cause for part in parts)
    return Explanation(cause, max(part.match for part in parts), min(following, default=None))


def _unknown(trials: Sequence[_Trial]) -> Explanation | None:
    """Return the nearest convention.

    None where even the reference is so near that it would pass for a cause.
    """
    itself, *others = trials
    nearest = min(others, key=lambda trial: trial.distance, default=itself)
    if nearest is itself or nearest.distance <= MATCH or not np.isfinite(nearest.distance):
        return None
    return Explanation(nearest.cause, nearest.distance)
