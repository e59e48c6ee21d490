"""Why the samples of a stream come in another order: known ways of ordering, tried one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from deliralike.conformance.explain import arrays
from deliralike.conformance.findings import Explanation
from deliralike.conformance.streams import Stream
from deliralike.nn import start

_PROJECTIONS = 4
_ROUNDING = 1e-13  # of the projections themselves
_WORKERS = range(2, 9)
_SHIFTS = 64
Way = tuple[str, np.ndarray]  # in words, and the reference's sample at each place of the candidate


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
    known = ways(reference, first)
    made = ((words, wanted[index]) for words, index in known if len(index) == len(came))
    found = arrays.met(made, came, limit)
    if found is not None:
        return found
    if len(first) != len(second) or not np.array_equal(np.sort(first), np.sort(second)):
        return None
    since = int(np.flatnonzero(first != second)[0])
    words = f"the same samples shuffled: the order differs from sample {since} on"
    orders = [np.argsort(each, kind="stable") for each in (first, second)]
    return arrays.met([(words, wanted[orders[0]])], came[orders[1]], limit)


def repetitions(
    reference: Stream, candidate: Stream, fields: tuple[str, ...], limit: float
) -> Explanation | None:
    """Return which samples come too often, and how many never.

    None where the candidate has samples that the reference lacks.
    """
    limit = max(limit, _ROUNDING)
    samples = _scaled(reference, candidate, fields)
    first, second = _identities(*samples, limit)
    if not len(second) or not np.isin(second, first).all():
        return None
    kinds, places = np.unique(first, return_index=True)
    twins = places[np.searchsorted(kinds, second)]
    count = max(first.max(), second.max()) + 1
    wanted, came = (np.bincount(each, minlength=count) for each in (first, second))
    often, seldom = int((came > wanted).sum()), int((came < wanted).sum())
    words = (
        f"duplicated samples: of {len(kinds)} different ones {often} come too often and {seldom} "
        "too seldom or never (drawn with replacement, or padded?)"
    )
    return arrays.met([(words, samples[0][twins])], samples[1], limit)


def ways(stream: Stream, identity: np.ndarray) -> Iterator[Way]:
    """Known ways of ordering, simple ones first.

    Args:
        identity: A number for each sample of the stream, the same for equal ones.
    """
    place, epoch = np.arange(len(stream)), _epoch(identity, stream)
    batches = np.split(place, stream.starts[1:-1])
    yield "the same order", place
    yield "the samples reversed", place[::-1]
    if epoch < len(place):
        words = "the second epoch not reshuffled: every epoch in the order of the first"
        yield words, place % epoch
    yield from _ends(batches, epoch)
    for words, by in (("early", -1), ("late", 1)):
        yield f"1 sample {words}, around the end", np.roll(place, by)
    for by in range(1, min(len(place), _SHIFTS)):
        samples = "1 sample" if by == 1 else f"{by} samples"
        yield f"the first {samples} left out", place[by:]
        yield f"the last {samples} left out", place[:-by]
    yield "the samples of each batch reversed", np.concatenate([batch[::-1] for batch in batches])
    firsts = [batches[0][: len(batch)] for batch in batches]
    yield "every batch is the first one", np.concatenate(firsts)
    for workers in _WORKERS:
        strided = np.concatenate([place[worker::workers] for worker in range(workers)])
        yield f"every {workers}th sample first, as {workers} workers or shards take them", strided


def _ends(batches: list[np.ndarray], epoch: int) -> Iterator[Way]:
    """What becomes of the last batch of each epoch."""
    size = max(map(len, batches))
    changes: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
        "dropped": lambda batch, lack: batch[:0],
        "padded with its last sample": lambda batch, lack: np.pad(batch, (0, lack), "edge"),
        "padded with its own samples": lambda batch, lack: np.resize(batch, size),
    }
    for words, change in changes.items():
        changed = []
        for batch in batches:
            is_last = (batch[-1] + 1) % epoch == 0
            changed.append(change(batch, size - len(batch)) if is_last else batch)
        yield f"the last batch {words}", np.concatenate(changed)


def _epoch(identity: np.ndarray, stream: Stream) -> int:
    """Return the number of samples in an epoch.

    It ends before all samples come again, or after the first batch that is smaller than others.

    Samples that are augmented never come again. Where nothing tells, it is the length of the
    stream.
    """
    count, again = len(identity), 1
    while again < count and identity[again] not in identity[:again]:
        again += 1
    known = identity[:again]
    if again < count and np.isin(identity, known).all():
        return again
    for end, size in zip(stream.starts[1:], stream.sizes, strict=True):
        if size < max(stream.sizes):
            return int(end) if count % end == 0 else count
    return count


# Samples as a few numbers
# -----------------------------------------------------------------------------


def _scaled(
    reference: Stream, candidate: Stream, fields: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """The fingerprints of both, of one size in every field."""
    wanted, came = fingerprints(reference, fields), fingerprints(candidate, fields)
    scale = np.abs(wanted).max(axis=0, initial=0.0)
    scale = np.where(scale > 0.0, scale, 1.0)
    return wanted / scale, came / scale


def fingerprints(stream: Stream, fields: tuple[str, ...]) -> np.ndarray:
    """A few projections of each sample on random directions, the same for every stream.

    Samples with equal fingerprints are equal, up to rounding where their values were rounded.

    Shapes:
        ``(samples, projections * fields)``.
    """
    columns = []
    for field in fields:
        column = np.array([_projected(sample) for sample in stream.samples(field)])
        columns.append(column.reshape(len(stream), _PROJECTIONS))
    return np.concatenate(columns, axis=1)


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
