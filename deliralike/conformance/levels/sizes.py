"""Level L7 (sizes): what one batch cannot show, in evaluation and forward only.

The network is given one sample, of another size where it takes one: a padding that depends on the
parity of the size, or a ``squeeze()``, shows there alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.agreement import largest_difference
from deliralike.conformance.findings import (
    LIMIT,
    NOT_REACHED,
    RAISES,
    Finding,
    Level,
    is_array,
)
from deliralike.conformance.kinds import Batch, Shape
from deliralike.conformance.levels.semantics import Mode
from deliralike.conformance.loss_tracing import first_call, handed
from deliralike.conformance.matching.aligning import align
from deliralike.conformance.observe.raised import in_words
from deliralike.conformance.subject import Subject
from deliralike.conformance.ulp import SLIGHT, allowed, shake_parameters
from deliralike.optim.loss import count_samples

NAME, TITLE = "L7", "other sizes of input"
_PICTURE = (
    3  # axes from which on an array of floating numbers has a size: samples, channels …
)
_TOKENS = 2  # and an array of whole numbers


def level(
    reference: Subject, candidate: Subject, batch: Batch, evaluation: Mode | None = None
) -> tuple[Level, Batch | None]:
    """Evaluate one sample of another size on both sides.

    A size that the reference refuses is not tried; one that the candidate alone refuses is noted,
    unless it refuses a single sample, which no framework does.

    Args:
        reference, candidate: In float64, with equal weights.
        batch: NumPy arguments of the loss after the network.
        evaluation: Both sides on this batch, where they may give their outputs in two layouts.

    Returns:
        The level, and the batch of another size at which outputs differ, if they do. Its figure
        ``fixed`` says whether there is a size of which no other could be tried.
    """
    both = _Both(reference, candidate, evaluation)
    given, one = _given(reference, batch), _first_sample(batch)
    sizes, wanted = _taken(reference, one, given)
    found, worst = both.judge(_resized(one, sizes), wanted)
    findings, notes, apart = [found] if found else [], [], None
    if found and sizes:  # which of both it is: the size, or that there is one sample
        by_size, far = both.judge(_resized(batch, sizes))
        by_sample, worst = both.judge(one)
        if by_size is None:
            findings = [by_sample or found]
        elif by_size.is_error:
            notes.append(f"The candidate {by_size.what}, with {by_size.place}.")
            findings, sizes = [by_sample] if by_sample else [], {}
        else:
            findings = [by_size, by_sample] if by_sample else [by_size]
            worst, apart = max(far or 0.0, worst or 0.0), _resized(batch, sizes)
    if worst is None and not findings:
        refused = "The reference takes neither another size nor a single sample."
        return Level(NAME, TITLE, NOT_REACHED, notes=(refused,)), None
    is_fixed = not sizes and next(_other_sizes(given), None) is not None
    if not findings:
        tried = _in_words(_given(reference, _resized(one, sizes)))
        notes.append(f"Inputs of {tried} give the same, too.")
    if is_fixed:
        notes.append(f"Proved for the size {_in_words(given)}: no other one is taken.")
    return Level.judged(NAME, TITLE, worst, findings, notes, fixed=is_fixed), apart


class _Both:
    """Two networks that are given the same batches."""

    def __init__(
        self, reference: Subject, candidate: Subject, evaluation: Mode | None
    ) -> None:
        self.reference, self.candidate = reference, candidate
        self.one_layout, self.equal_ranks = evaluation is None, True
        if evaluation is not None:
            expected, actual = evaluation.reference.output, evaluation.candidate.output
            self.equal_ranks = _ranks(expected) == _ranks(actual)

    def judge(
        self, batch: Batch, wanted: Any = None
    ) -> tuple[Finding | None, float | None]:
        """Whether outputs differ, and how far they are; nothing where the reference refuses."""
        place = f"inputs of {_in_words(_given(self.reference, batch))}"
        try:
            wanted = _outputs(self.reference, batch) if wanted is None else wanted
        except Exception:  # noqa: BLE001  # whatever it is, it does not take the batch
            return None, None
        try:
            came = _outputs(self.candidate, batch)
        except Exception as error:  # noqa: BLE001  # the finding
            return Finding(
                NAME, place, RAISES + in_words(error), np.inf, mode="eval"
            ), None
        has_ranks = not self.equal_ranks or _ranks(wanted) == _ranks(came)
        if not self.one_layout:
            came = align(wanted, came).back(came, wanted)
        far = largest_difference(wanted, came) if has_ranks else np.inf
        limit = LIMIT
        if LIMIT < far <= SLIGHT:
            limit = max(LIMIT, allowed(self._rounding(batch, wanted)))
        if far <= limit:
            return None, far
        return Finding(NAME, place, "output", far, mode="eval", limit=limit), far

    def _rounding(self, batch: Batch, wanted: Any) -> float:
        """How far an error in the last bit of its parameters moves the reference."""
        other = self.reference.replace(network=deepcopy(self.reference.network))
        shake_parameters(other.network)
        return largest_difference(wanted, _outputs(other, batch))


def _taken(
    subject: Subject, one: Batch, given: list[Shape]
) -> tuple[dict[int, int], Any]:
    """The first sizes that a network takes, by those that they replace, and its outputs."""
    for sizes in _other_sizes(given):
        other = _resized(one, sizes)
        if _given(subject, other) == _given(subject, one):
            continue  # the loss cuts its inputs by itself
        try:
            return sizes, _outputs(subject, other)
        except Exception:  # noqa: BLE001  # whatever it is, it does not take the size
            continue
    return {}, None


def _other_sizes(given: list[Shape]) -> Iterator[dict[int, int]]:
    """Sizes of inputs by those that they replace: one less or more, channels first or last."""
    for step in (-1, 1):
        for axes in (slice(2, None), slice(1, -1)):
            sizes: set[int] = set()
            for shape in given:
                sizes |= set(shape[1:] if len(shape) == _TOKENS else shape[axes])
            if sizes and min(sizes) + step > 0:
                yield {size: size + step for size in sorted(sizes)}


def _given(subject: Subject, batch: Batch) -> list[Shape]:
    """The shapes that a loss gives to its network of what has a size: pictures, tokens."""
    backend = subject.network.backend
    call = handed(
        subject.loss, subject.network, backend.prepare(batch, subject.network)
    )
    found = []
    for leaf in filter(is_array, nest.leaves(backend.to_numpy(call))):
        axes = _TOKENS if leaf.dtype.kind in "iu" else _PICTURE
        if leaf.ndim >= axes:
            found.append(leaf.shape)
    return found


def _in_words(shapes: list[Shape]) -> str:
    return " and ".join(map(str, dict.fromkeys(shapes))) or "one sample"


def _first_sample(batch: Batch) -> Batch:
    """The first sample alone."""
    samples = count_samples(batch)

    def is_of_samples(leaf: Any) -> bool:
        return is_array(leaf) and leaf.ndim > 0 and len(leaf) == samples

    return nest.map_where(is_of_samples, lambda array: array[:1], batch)


def _resized(batch: Batch, sizes: Mapping[int, int]) -> Batch:
    """A batch with the last numbers of some axes cut off, or the first ones once more at the end."""

    def resized(leaf: Any) -> Any:
        if not is_array(leaf):
            return leaf
        for axis, size in enumerate(leaf.shape[1:], start=1):
            if size in sizes:
                leaf = np.take(leaf, np.arange(sizes[size]) % size, axis)
        return leaf

    return nest.map(resized, batch)


def _outputs(subject: Subject, batch: Batch) -> Any:
    with np.errstate(all="ignore"):
        return first_call(subject, batch)


def _ranks(values: Any) -> list[int]:
    """How many axes each array has, in any order of the arrays."""
    return sorted(np.ndim(leaf) for leaf in nest.leaves(values))
