"""Level L2 (float32): how exact both sides are in float32, in words; information, and no verdict.

The measure is the reference in float64. Two right networks may differ much in float32, where sums
cancel or are computed in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import differences, relative_difference
from deliralike.conformance.by_name import only
from deliralike.conformance.findings import MEASURED, Level, in_dtype, is_floating, short
from deliralike.conformance.kinds import Batch, Named
from deliralike.conformance.levels.semantics import Look, look
from deliralike.conformance.observe.corresponding import SAME, Correspondence
from deliralike.conformance.subject import Subject

TITLE = "precision in float32"
_ALIKE = 2.0  # times the error: that is said as "as exact"


def level(
    reference: Subject,
    candidate: Subject,
    batch: Batch,
    correspondence: Correspondence = SAME,
    exact: Look | None = None,
) -> Level:
    """Say how exact a candidate is in float32, beside the reference in float32.

    Args:
        reference, candidate: In float64; copies in float32 are made.
        batch: NumPy arrays: inputs and target.
        correspondence: Names and layouts of the candidate.
        exact: What the reference does on this batch in training, where it was already seen, and
            batch and weights are numbers that float32 holds.
    """
    batch = nest.map(lambda leaf: in_dtype(in_dtype(leaf, np.float32), np.float64), batch)
    sides = reference.in_dtype("float32"), candidate.in_dtype("float32")
    if exact is None:
        exact = look(sides[0].in_dtype("float64"), batch, True, elements=1)
    with np.errstate(all="ignore"):  # an overflow is said below
        mine, theirs = (look(side, batch, True, elements=1) for side in sides)
    for name, one in (("reference", mine), ("candidate", theirs)):
        if one.error:
            return Level("L2", TITLE, MEASURED, notes=(f"The {name} raises {one.error}.",))
    theirs = Look(correspondence.to_reference(theirs.recording, exact.recording))
    words, errors = [], {}
    for what, tensors_of in (("outputs", _outputs), ("gradients", _gradients)):
        wanted = tensors_of(exact)
        pair = [_errors(wanted, tensors_of(one)) for one in (mine, theirs)]
        errors[what] = dict(zip(("reference", "candidate"), pair, strict=True))
        words += _in_words(what, *pair)
    return Level("L2", TITLE, MEASURED, notes=(" ".join(words),), figures={"float32": errors})


def _outputs(seen: Look) -> Named:
    found = nest.leaves_with_paths(seen.output, "output")
    return {name: leaf for name, leaf in found if is_floating(leaf)}


def _gradients(seen: Look) -> Named:
    return {name: one for name, one in seen.recording.parameters.items() if one is not None}


def _errors(exact: Named, seen: Named) -> dict[str, float]:
    """The relative error of each tensor that is more than rounding in float64."""
    found = {}
    for name in only(differences(exact, exact), seen):
        found[name] = relative_difference(exact[name], seen[name])
    return found


def _in_words(what: str, mine: Mapping[str, float], theirs: Mapping[str, float]) -> list[str]:
    """A sentence on the tensors of one kind: how exact they are, or how much less so.

    The median is compared: where a ReLU's input is nearly zero, its sign is a matter of the last
    bit, and the gradients before it may be wrong by thousands of roundings on one side alone.
    """
    names = list(only(mine, theirs))
    if not names:
        return []
    lost = [name for name in names if np.isfinite(mine[name]) and not np.isfinite(theirs[name])]
    if lost:
        which = what if lost[0] == "output" else f"{what} of {lost[0]}"
        return [f"Float32 {which} are not finite, other than the reference's."]
    usual, other = (median(errors[name] for name in names) for errors in (mine, theirs))
    times = other / max(usual, _SMALLEST)
    sizes = short(f"({other:.0e}, {usual:.0e})")
    if times <= _ALIKE:
        return [f"Float32 {what} are as exact as the reference's {sizes}."]
    worst = max(names, key=theirs.__getitem__)
    most = f", least of all those of {worst}" if len(names) > 1 else ""
    return [f"Float32 {what} are {times:.0f} times less exact than the reference's {sizes}{most}."]


_SMALLEST = float(np.finfo(np.float32).eps) / 4  # no result in float32 can be asked for more
