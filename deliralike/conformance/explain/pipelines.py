"""Why two data pipelines differ: in the order of samples, in their values, or in their pairing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from deliralike.conformance.explain import arrays, sample_order, sample_values
from deliralike.conformance.explain.arrays import Array, Way, turns
from deliralike.conformance.findings import Explanation
from deliralike.conformance.streams import Stream

_ENOUGH = 64  # samples, from the first that differs on
_TURNS = 8


def order(reference: Stream, candidate: Stream, limit: float) -> Explanation | None:
    """The way in which whole samples are ordered otherwise; None where that does not explain it."""
    return sample_order.explain(reference, candidate, reference.fields, limit)


def repetitions(reference: Stream, candidate: Stream, limit: float) -> Explanation | None:
    """Explain whole samples that come more or less often.

    None where the candidate has other samples.
    """
    return sample_order.repetitions(reference, candidate, reference.fields, limit)


def field(
    reference: Stream,
    candidate: Stream,
    name: str,
    first: int,
    limit: float,
    plain: Stream | None = None,
) -> Explanation | None:
    """Why one field differs while others are equal, or have an explanation of their own.

    Args:
        first: The number of the first sample that differs.
        plain: The reference's samples before augmentation.
    """
    if plain is not None and name in plain.fields:
        before, one, two = (_stacked(stream, name) for stream in (plain, reference, candidate))
        if (found := augmentation(before, one, two, limit)) is not None:
            return found
    wanted, came = alike(reference.samples(name), candidate.samples(name), first)
    of_values = sample_values.explain(wanted, came, limit)
    of_order = _order_of_field(reference, candidate, name, limit)
    if of_values is not None and of_values.known and "label" in of_values.cause:
        return of_values  # few labels have few orders: what names them otherwise is simpler
    return of_order or of_values


def _order_of_field(
    reference: Stream, candidate: Stream, name: str, limit: float
) -> Explanation | None:
    """How one field is ordered otherwise than the others."""
    others = " and ".join(other for other in reference.fields if other != name)
    shapes = [
        {sample.shape for sample in stream.samples(name)} for stream in (reference, candidate)
    ]
    if not others or shapes[0] != shapes[1]:
        return None
    found = sample_order.explain(reference, candidate, (name,), limit)
    if found is None:
        return None
    words = f"{name} shuffled against {others}: {found.cause}"
    return replace(found, cause=words)


def alike(
    reference: Iterable[Array], candidate: Iterable[Array], first: int
) -> tuple[Array, Array]:
    """Samples of one shape, as stacked arrays, from the first that differs on."""
    pairs = list(zip(reference, candidate, strict=False))[first:]
    shapes = pairs[0][0].shape, pairs[0][1].shape
    kept = [(one, two) for one, two in pairs if (one.shape, two.shape) == shapes][:_ENOUGH]
    return np.stack([one for one, _ in kept]), np.stack([two for _, two in kept])


def augmentation(
    plain: Array | None, reference: Array | None, candidate: Array | None, limit: float
) -> Explanation | None:
    """Explain how the candidate's random turns follow from the reference's.

    The turns are read off the samples before augmentation.

    Returns:
        None where the turns cannot be read off: other shapes, or something else than mirroring and
        exchanging axes; and where all of the reference's samples were turned in one way, which
        nobody has drawn.
    """
    if plain is None or reference is None or candidate is None:
        return None
    if not plain.shape == reference.shape == candidate.shape:
        return None
    again = _turns(reference)
    if arrays.met(again[1:], candidate, limit) is not None:
        return None
    ways = _turns(plain)
    wanted, came = _read_off(ways, reference, limit), _read_off(ways, candidate, limit)
    if wanted is None or came is None:
        return None
    table = [("augmentation applied twice", _taken(again, wanted))]
    if not came.any():
        twice = arrays.met(table, candidate, limit)
        more = "" if twice is None else ", or twice: that turns samples back"
        table = [(f"augmentation not applied at all{more}", plain)]
    for words, rows in _drawn(wanted, came, ways):
        table.append((words, _taken(ways, rows)))
    return arrays.met(table, candidate, limit)


def _turns(x: Array) -> list[Way]:
    """Samples as they are, and in every other way that keeps their shape."""
    turned = [(words, made) for words, made in turns(x) if made.shape == x.shape]
    return [("unchanged", x), *turned]


def _read_off(ways: list[Way], samples: Array, limit: float) -> Array | None:
    """The number of the way in which each sample was turned."""
    distances = np.array([arrays.of_samples(way, samples) for _, way in ways])
    return distances.argmin(0) if (distances.min(0) <= limit).all() else None


def _taken(ways: list[Way], rows: Array) -> Array:
    """Each sample turned in its way."""
    return np.stack([ways[way][1][sample] for sample, way in enumerate(rows)])


def _drawn(wanted: Array, came: Array, ways: list[Way]) -> Iterator[tuple[str, Array]]:
    """In what order turns may have been drawn; the candidate's own where nothing tells them."""
    once = np.full_like(came, came[0])
    yield f"augmentation drawn once for all samples: all {ways[came[0]][0]}", once
    for by in range(1, min(len(came), _TURNS)):
        late, early = np.roll(wanted, by), np.roll(wanted, -by)
        late[:by], early[-by:] = came[:by], came[-by:]
        yield f"augmentation drawn in another order: {by} sample(s) late", late
        yield f"augmentation drawn in another order: {by} sample(s) early", early
    backwards = "augmentation drawn in another order: from the last sample to the first"
    yield backwards, wanted[::-1]
    if np.array_equal(np.sort(wanted), np.sort(came)):
        yield "augmentation drawn in another order", came
    yield "augmentation drawn otherwise: from another seed, or with another probability", came


def _stacked(stream: Stream, name: str) -> Array | None:
    samples = stream.samples(name)
    return np.stack(samples) if len({sample.shape for sample in samples}) == 1 else None
