"""Why two data pipelines differ: in the order of samples, in their values, or in their pairing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain import sample_order, sample_values
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
    wanted, came = alike(reference.samples(name), candidate.samples(name), first)
    of_values = sample_values.explain(wanted, came, limit)
    found = [_order_of_field(reference, candidate, name, limit), of_values]
    if of_values is not None and of_values.known and "label" in of_values.cause:
        found.reverse()  # few labels have few orders: what names them otherwise is simpler
    if plain is not None and name in plain.fields:
        turned = augmentation(
            _stacked(plain, name), _stacked(reference, name), _stacked(candidate, name), limit
        )
        found.insert(0, turned)
    return min(
        (each for each in found if each is not None), key=lambda each: each.match, default=None
    )


def _order_of_field(
    reference: Stream, candidate: Stream, name: str, limit: float
) -> Explanation | None:
    """How one field is ordered otherwise than the others."""
    others = " and ".join(other for other in reference.fields if other != name)
    shapes = [
        {sample.shape for sample in stream.samples(name)} for stream in (reference, candidate)
    ]
    found = (
        sample_order.explain(reference, candidate, (name,), limit)
        if others and shapes[0] == shapes[1]
        else None
    )
    return (
        None
        if found is None
        else Explanation(
            f"{name} shuffled against {others}: {found.cause}", found.match, found.next_best
        )
    )


def alike(
    reference: Iterable[np.ndarray], candidate: Iterable[np.ndarray], first: int
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of one shape, as stacked arrays, from the first that differs on."""
    pairs = list(zip(reference, candidate, strict=False))[first:]
    shapes = pairs[0][0].shape, pairs[0][1].shape
    kept = [(one, two) for one, two in pairs if (one.shape, two.shape) == shapes][:_ENOUGH]
    return np.stack([one for one, _ in kept]), np.stack([two for _, two in kept])


def augmentation(
    plain: np.ndarray | None,
    reference: np.ndarray | None,
    candidate: np.ndarray | None,
    limit: float,
) -> Explanation | None:
    """Explain how the candidate's random turns follow from the reference's.

    The turns are read off the samples before augmentation.

    Returns:
        None where the turns cannot be read off: other shapes, or something else than mirroring and
            exchanging axes; and
        where all of the reference's samples were turned in one way, which nobody has drawn.
    """
    if (
        plain is None
        or reference is None
        or candidate is None
        or not plain.shape == reference.shape == candidate.shape
    ):
        return None
    if any(
        turned.shape == candidate.shape and relative_difference(turned, candidate) <= limit
        for _, turned in sample_values.turns(reference)
    ):
        return None
    turns = [
        (words, turned)
        for words, turned in sample_values.turns(plain)
        if turned.shape == plain.shape
    ]
    ways = [("unchanged", plain), *turns]
    wanted, came = _read_off(ways, reference, limit), _read_off(ways, candidate, limit)
    if came is None or wanted is None:
        return None
    twice = np.stack([_again(way, each) for way, each in zip(wanted, reference, strict=True)])
    return Explanation(
        _drawn(wanted, came, bool(relative_difference(twice, candidate) <= limit), ways), 0.0
    )


def _drawn(
    wanted: np.ndarray, came: np.ndarray, twice: bool, ways: list[tuple[str, np.ndarray]]
) -> str:
    """How the ways in which samples were turned differ, in words."""
    if not came.any():
        return "augmentation not applied at all" + (
            ", or twice: that turns samples back" if twice else ""
        )
    if twice:
        return "augmentation applied twice"
    if len(set(came.tolist())) == 1:
        return f"augmentation drawn once for all samples: all {ways[came[0]][0]}"
    for by in (step * sign for step in range(1, min(len(came), _TURNS)) for sign in (1, -1)):
        within = slice(max(by, 0), len(came) + min(by, 0))
        if np.array_equal(np.roll(wanted, by)[within], came[within]):
            return f"augmentation drawn in another order: {abs(by)} sample(s) {'late' if by > 0 else 'early'}"
    if np.array_equal(wanted[::-1], came):
        return "augmentation drawn in another order: from the last sample to the first"
    if np.array_equal(np.sort(wanted), np.sort(came)):
        return "augmentation drawn in another order"
    return "augmentation drawn otherwise: from another seed, or with another probability"


def _again(way: int, sample: np.ndarray) -> np.ndarray:
    if not way:
        return sample
    turned = [
        each for _, each in sample_values.turns(sample[None]) if each.shape[1:] == sample.shape
    ]
    return turned[way - 1][0]


def _read_off(
    ways: list[tuple[str, np.ndarray]], samples: np.ndarray, limit: float
) -> np.ndarray | None:
    """The number of the way in which each sample was turned."""
    distances = np.array(
        [[relative_difference(a, b) for a, b in zip(way, samples, strict=True)] for _, way in ways]
    )
    return distances.argmin(0) if (distances.min(0) <= limit).all() else None


def _stacked(stream: Stream, name: str) -> np.ndarray | None:
    samples = stream.samples(name)
    return np.stack(samples) if len({sample.shape for sample in samples}) == 1 else None
