"""The level "data": two pipelines, compared batch by batch before any network takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product, zip_longest
from typing import Any

import numpy as np

from deliralike.conformance import streams
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain import pipelines as explain
from deliralike.conformance.explain import sample_order
from deliralike.conformance.findings import FAILED, LIMIT, Explanation, Finding, Level
from deliralike.conformance.streams import Stream
from deliralike.errors import BatchError

_SAME = "the same order"
NAME, TITLE = "data", "batches: order, sizes, types and values"
_ROUNDINGS = 32  # roundings in a row that may lie between two right pipelines


def level(
    reference: Iterable[Any],
    candidate: Iterable[Any],
    batches: int | None = None,
) -> Level:
    """Compare two streams of batches: loaders of deliralike, torch or grain, iterators, generators.

    Equal numbers in floating types pass up to their own rounding; whole numbers must be equal.

    Args:
        reference, candidate: What gives batches; see `deliralike.conformance.streams.read`. Two
            epochs one after another show whether the second is reshuffled.
        batches: How many batches to compare; None for all that there are.

    Raises:
        BatchError: The reference has no batches, or a batch is none.

    Example:
        >>> one = [(np.ones((2, 3)), np.array([0, 1])), (np.zeros((2, 3)), np.array([1, 0]))]
        >>> level(one, one).status
        'passed'
        >>> print(level(one, [(x, y[::-1]) for x, y in one]).findings[0].place)
        batch 0, sample 0
    """
    one = streams.read(reference, batches)
    if not one.batches:
        raise BatchError(
            "the reference has no batches: a generator that was read before gives nothing again"
        )
    two = streams.read(candidate, batches).named_as(one)
    if set(one.fields) != set(two.fields):
        return Level(NAME, TITLE, FAILED, np.inf, (_fields(one, two),))
    order = _of_samples(sample_order.explain, one, two)
    findings = [*_sizes(one, two, order), *_types(one, two), *_contents(one, two, order)]
    worst = max((finding.difference for finding in findings), default=_worst(one, two))
    notes = []
    if worst and not findings:
        notes.append(f"values differ by {worst:.0e} at most, as rounding explains")
    figures = {"batches": len(one.batches), "samples": len(one), "fields": list(one.fields)}
    return Level.judged(NAME, TITLE, worst, findings, notes, **figures)


def _of_samples(
    explain: Callable[[Stream, Stream, tuple[str, ...], float], Explanation | None],
    one: Stream,
    two: Stream,
) -> Explanation | None:
    """How whole samples come otherwise; None where samples of both cannot be the same."""
    if any(one.shapes(field) != two.shapes(field) for field in one.fields):
        return None
    return explain(one, two, one.fields, _limit(one, two, *one.fields))


def _fields(one: Stream, two: Stream) -> Finding:
    came = "no batches at all"
    if two.batches:
        came = f"fields {', '.join(two.fields)} instead of {', '.join(one.fields)}"
    return Finding(NAME, "batch 0", "structure", np.inf, explanation=Explanation.seen(came))


def _sizes(one: Stream, two: Stream, order: Explanation | None) -> list[Finding]:
    """The first batch of another size, and the number of batches."""
    if one.sizes == two.sizes:
        return []
    pairs = list(zip_longest(one.sizes, two.sizes))
    first = next(i for i, (wanted, came) in enumerate(pairs) if wanted != came)
    wanted, came = pairs[first]
    what, said = "size", f"batch {first} with {came} samples instead of {wanted}"
    if wanted is None or came is None:
        what = "number of batches"
        said = f"{len(two.sizes)} batches instead of {len(one.sizes)}"
    why = order or _of_samples(sample_order.repetitions, one, two) or Explanation.seen(said)
    if why.cause == _SAME:
        why = replace(why, cause="another batch size, the same samples")
    remark = f"{said}: {len(two)} samples altogether instead of {len(one)}."
    return [Finding(NAME, f"batch {first}", what, np.inf, explanation=why, remarks=(remark,))]


def _types(one: Stream, two: Stream) -> list[Finding]:
    """Fields of another type, by the first batch that has it."""
    findings = []
    for field in one.fields:
        for number, (mine, its) in enumerate(zip(one.batches, two.batches, strict=False)):
            wanted, came = mine[field].dtype, its[field].dtype
            if wanted != came and not _narrowed(two, wanted, came):
                why = Explanation.seen(f"dtype {came} instead of {wanted}")
                place = f"batch {number}, {field}"
                findings.append(Finding(NAME, place, "dtype", np.inf, explanation=why))
                break
    return findings


def _narrowed(stream: Stream, wanted: np.dtype, came: np.dtype) -> bool:
    """Return whether a backend of the stream converts whole numbers of the wanted type to this one."""
    if wanted.kind not in "iu":
        return False
    return any(
        backend.numpy(backend.array(np.zeros(1, wanted))).dtype == came
        for backend in stream.backends
    )


def _contents(one: Stream, two: Stream, order: Explanation | None) -> list[Finding]:
    """The first sample that differs: once where whole samples move, else in each field."""
    places = {field: _first(one, two, field) for field in one.fields}
    firsts = {field: at for field, at in places.items() if at is not None}
    if not firsts:
        return []  # some may be lacking or too many at the end, as the sizes say
    whole = order
    if order is None or order.cause == _SAME:
        by_field = [_in_field(one, two, field, first) for field, first in firsts.items()]
        if all(each.explanation and each.explanation.known for each in by_field):
            return by_field
        whole = _of_samples(sample_order.repetitions, one, two)
        if whole is None:
            return by_field
    first = min(firsts.values())
    difference = max(_difference(one, two, field, first) for field in one.fields)
    return [Finding(NAME, one.place(first), "order of samples", difference, explanation=whole)]


def _in_field(one: Stream, two: Stream, field: str, first: int) -> Finding:
    limit = _limit(one, two, field)
    shapes = [stream.samples(field)[first].shape for stream in (one, two)]
    what = "values" if shapes[0] == shapes[1] else "shape"
    difference = _difference(one, two, field, first)
    why = explain.field(one, two, field, first, limit)
    place = one.place(first, field)
    return Finding(NAME, place, what, difference, limit=limit, explanation=why)


def _first(one: Stream, two: Stream, field: str) -> int | None:
    """The number of the first sample that differs in a field."""
    limit = _limit(one, two, field)
    pairs = enumerate(zip(one.samples(field), two.samples(field), strict=False))
    return next((i for i, (a, b) in pairs if not _equal(a, b, limit)), None)


def _equal(one: np.ndarray, two: np.ndarray, limit: float) -> bool:
    if one.shape != two.shape:
        return False
    if np.array_equal(one, two, equal_nan=one.dtype.kind in "fc"):
        return True
    return relative_difference(one, two) <= limit


def _difference(one: Stream, two: Stream, field: str, sample: int) -> float:
    return relative_difference(one.samples(field)[sample], two.samples(field)[sample])


def _worst(one: Stream, two: Stream) -> float:
    worst = 0.0
    for field in one.fields:
        for a, b in zip(one.samples(field), two.samples(field), strict=False):
            if not np.array_equal(a, b):
                worst = max(worst, relative_difference(a, b))
    return worst


def _limit(one: Stream, two: Stream, *fields: str) -> float:
    """What rounding may leave between two right pipelines: nothing between whole numbers."""
    firsts = [stream.batches[0] for stream in (one, two) if stream.batches]
    limit = 0.0
    for first, field in product(firsts, fields):
        dtype = first[field].dtype
        if dtype.kind == "f":
            limit = max(limit, LIMIT, _ROUNDINGS * float(np.finfo(dtype).eps))
    return limit
