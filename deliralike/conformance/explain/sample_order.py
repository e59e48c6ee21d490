"""Why the samples of a stream come in another order: known ways of ordering, tried one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import Explanation
from deliralike.conformance.streams import Stream
from deliralike.nn import start

_PROJECTIONS = 4
_ROUNDING = 1e-13  # of the projections themselves
_WORKERS = range(2, 9)
_SHIFTS = 64
Way = tuple[str, np.ndarray]  # in words, and the reference's sample at each place of the candidate


def fingerprints(stream: Stream, fields: tuple[str, ...]) -> np.ndarray:
    """A few projections of each sample on random directions, the same for every stream.

    Samples with equal fingerprints are equal, up to rounding where their values were rounded.

    Shapes:
        ``(samples, projections * fields)``.
    """
    columns = [[_projected(sample) for sample in stream.samples(field)] for field in fields]
    return np.concatenate(
        [np.array(column).reshape(len(stream), _PROJECTIONS) for column in columns], axis=1
    )


def explain(
    reference: Stream, candidate: Stream, fields: tuple[str, ...], limit: float
) -> Explanation | None:
    """Return the reordering that turns the reference's samples into the candidate's.

    Samples are compared by some of their fields.

    Args:
        limit: Up to here two samples count as equal.

    Returns:
        None where there is none: the candidate has other samples than the reference, or has them
            more or less often.
    """
    limit = max(limit, _ROUNDING)
    wanted, came = _scaled(reference, candidate, fields)
    first, second = _identities(wanted, came, limit)
    tried = [
        (_distance(wanted, came, index, limit), cause) for cause, index in ways(reference, first)
    ]
    tried.sort(
        key=lambda pair: pair[0]
    )  # stable: of two that fit, the simpler one, which comes first
    if tried[0][0] == 0.0:
        following = next((distance for distance, _ in tried if distance > 0.0), None)
        return Explanation(tried[0][1], 0.0, following)
    if len(first) == len(second) and np.array_equal(np.sort(first), np.sort(second)):
        since = int(np.flatnonzero(first != second)[0])
        return Explanation(
            f"the same samples shuffled: the order differs from sample {since} on", 0.0, tried[0][0]
        )
    return None


def repetitions(
    reference: Stream, candidate: Stream, fields: tuple[str, ...], limit: float
) -> Explanation | None:
    """Return which samples come too often, and how many never.

    None where the candidate has samples that the reference lacks.
    """
    first, second = _identities(*_scaled(reference, candidate, fields), max(limit, _ROUNDING))
    if not len(second) or not np.isin(second, first).all():
        return None
    wanted, came = (
        np.bincount(each, minlength=max(first.max(), second.max()) + 1) for each in (first, second)
    )
    doubled, lacking = int((came > wanted).sum()), int((came < wanted).sum())
    kinds = len(np.unique(first))
    counts = f"{doubled} come too often and {lacking} too seldom or never"
    return Explanation(
        f"duplicated samples: of {kinds} different ones {counts} (drawn with replacement, or "
        "padded?)",
        0.0,
    )


def ways(stream: Stream, identity: np.ndarray) -> Iterator[Way]:
    """Known ways of ordering, simple ones first.

    Args:
        identity: A number for each sample of the stream, the same for equal ones.
    """
    count, starts = len(stream), stream.starts
    place, epoch = np.arange(count), _epoch(identity, stream)
    batches = [place[one:two] for one, two in zip(starts, starts[1:], strict=False)]
    yield "the same order", place
    yield "the samples reversed", place[::-1]
    yield from _epochs(place, epoch)
    yield from _ends(stream, batches, epoch)
    yield from _shifts(place, batches)
    yield "the samples of each batch reversed", np.concatenate([batch[::-1] for batch in batches])
    yield "the batches reversed", np.concatenate(batches[::-1])
    pairs = [batches[i ^ 1] if (i ^ 1) < len(batches) else batches[i] for i in range(len(batches))]
    yield "batches exchanged in pairs", np.concatenate(pairs)
    yield "every sample twice", np.repeat(place, 2)
    yield "every sample twice, in as many batches", np.repeat(place, 2)[:count]
    yield (
        "every batch is the first one",
        np.concatenate([batches[0][: len(batch)] for batch in batches]),
    )
    for workers in _WORKERS:
        strided = np.concatenate([place[worker::workers] for worker in range(workers)])
        yield f"every {workers}th sample first, as {workers} workers or shards take them", strided
        yield f"interleaved from {workers} contiguous parts", np.argsort(strided)
    for i, batch in enumerate(batches[:_SHIFTS]):
        yield f"batch {i} repeated", np.insert(place, starts[i + 1], batch)
        yield f"batch {i} left out", np.delete(place, batch)


def _epochs(place: np.ndarray, epoch: int) -> Iterator[Way]:
    """What becomes of the order from epoch to epoch."""
    if epoch < len(place):
        yield (
            "the second epoch not reshuffled: every epoch in the order of the first",
            place % epoch,
        )
        yield (
            "each epoch in the order of the next",
            np.where(place + epoch < len(place), place + epoch, -1),
        )
        yield (
            "each epoch in the order of the one before",
            np.where(place < epoch, -1, place - epoch),
        )
        yield "the samples of each epoch reversed", place - 2 * (place % epoch) + epoch - 1


def _ends(stream: Stream, batches: list[np.ndarray], epoch: int) -> Iterator[Way]:
    """What becomes of the last batch of each epoch."""
    ends = {i for i, end in enumerate(stream.starts[1:]) if end % epoch == 0}
    size = max(stream.sizes)
    begins = [(batch[0] // epoch) * epoch for batch in batches]
    yield (
        "the last batch dropped",
        np.concatenate(
            [batch for i, batch in enumerate(batches) if i not in ends] or [np.zeros(0, int)]
        ),
    )
    yield (
        "the last batch repeated",
        _with_ends(batches, ends, lambda i, batch: np.concatenate([batch, batch])),
    )
    yield (
        "the last batch padded with the first samples of the epoch",
        _with_ends(
            batches,
            ends,
            lambda i, batch: np.append(batch, begins[i] + np.arange(size - len(batch))),
        ),
    )
    yield (
        "the last batch padded with its last sample",
        _with_ends(batches, ends, lambda i, batch: np.pad(batch, (0, size - len(batch)), "edge")),
    )
    yield (
        "the last batch padded with its own samples",
        _with_ends(batches, ends, lambda i, batch: np.resize(batch, size)),
    )
    lack = {i: size - len(batches[i]) for i in ends}
    yield (
        "the last batch padded with the samples before it",
        _with_ends(
            batches,
            ends,
            lambda i, batch: np.append(batch[0] - lack[i] + np.arange(lack[i]), batch),
        ),
    )


def _with_ends(
    batches: list[np.ndarray], ends: set[int], change: Callable[[int, np.ndarray], np.ndarray]
) -> np.ndarray:
    return np.concatenate(
        [change(i, batch) if i in ends else batch for i, batch in enumerate(batches)]
    )


def _shifts(place: np.ndarray, batches: list[np.ndarray]) -> Iterator[Way]:
    """Samples that come some places early or late."""
    for by in (step * sign for step in range(1, min(len(place), _SHIFTS)) for sign in (1, -1)):
        plural = "" if abs(by) == 1 else "s"
        moved = place + by
        when = "early" if by > 0 else "late"
        yield f"{abs(by)} sample{plural} {when}, around the end", np.roll(place, -by)
        yield (
            f"{abs(by)} sample{plural} {when}",
            np.where((moved >= 0) & (moved < len(place)), moved, -1),
        )
        if by > 0:
            yield f"the first {by} sample{plural} left out", place[by:]
            yield f"the last {by} sample{plural} left out", place[:-by]
        if abs(by) < max(map(len, batches)):
            rolled = np.concatenate([np.roll(batch, -by) for batch in batches])
            yield f"{abs(by)} sample{plural} {when} within each batch", rolled


def _distance(wanted: np.ndarray, came: np.ndarray, index: np.ndarray, limit: float) -> float:
    """How far the candidate is from the reference in that order; samples at -1 may be anything."""
    if len(index) != len(came) or (index < 0).mean() > 0.5 or not len(index):
        return np.inf
    kept = index >= 0
    distance = relative_difference(wanted[index[kept]], came[kept])
    return 0.0 if distance <= limit else distance


def _epoch(identity: np.ndarray, stream: Stream) -> int:
    """Return the number of samples in an epoch.

    It ends before all samples come again, or after the first batch that is smaller than others.

    Samples that are augmented never come again. Where nothing tells, it is the length of the
    stream.
    """
    count = len(identity)
    known: set[int] = set()
    for epoch, each in enumerate(identity.tolist()):
        if each in known:
            if all(
                set(identity[at : at + epoch].tolist()) <= known for at in range(0, count, epoch)
            ):
                return epoch
            break
        known.add(each)
    short = [
        end
        for end, size in zip(stream.starts[1:], stream.sizes, strict=True)
        if size < max(stream.sizes)
    ]
    return int(short[0]) if short and count % short[0] == 0 else count


def _scaled(
    reference: Stream, candidate: Stream, fields: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The fingerprints of both, of one size in every field."""
    wanted, came = fingerprints(reference, fields), fingerprints(candidate, fields)
    scale = np.abs(wanted).max(axis=0, initial=0.0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return wanted / scale, came / scale


def _identities(
    wanted: np.ndarray, came: np.ndarray, limit: float
) -> tuple[np.ndarray, np.ndarray]:
    """A number for each sample of both streams, the same for those whose fingerprints are equal."""
    both = np.concatenate([wanted, came])
    numbers = np.zeros(len(both), int)
    for column in both.T:
        order = np.lexsort((column, numbers))
        new = (np.diff(numbers[order]) != 0) | (np.diff(column[order]) > limit)
        numbers[order] = np.concatenate([[0], np.cumsum(new)])
    return numbers[: len(wanted)], numbers[len(wanted) :]


def _projected(sample: np.ndarray) -> np.ndarray:
    flat = np.asarray(sample, np.float64).ravel()
    return _directions(flat.size) @ flat / max(1, flat.size) ** 0.5


@lru_cache(maxsize=4)  # pictures are large: of many sizes only the latest
def _directions(size: int) -> np.ndarray:
    """Random directions for samples of that size, one for each projection."""
    generator = np.random.Generator(np.random.Philox(key=start.key(size, "fingerprints")))
    return generator.standard_normal((_PROJECTIONS, size))
