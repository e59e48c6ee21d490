"""Masks and indices: which tokens see which, what counts as padding, and numbers of places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from deliralike.conformance.explain.wiring_made import Formula

_MOST_VALUES = 64
_SIGNS = {"==": np.equal, "!=": np.not_equal, ">": np.greater, "<": np.less}


def masks(
    sources: Mapping[str, np.ndarray], reference: np.ndarray, candidate: np.ndarray
) -> Iterator[Formula]:
    """Yield indices, and masks by the distance of tokens, by values, inverted or constant."""
    yield from _bands(reference, candidate)
    if candidate.dtype.kind == "b":
        yield from _compared(sources, reference, candidate)
    if candidate.dtype.kind in "iu" and candidate.size:
        yield from _indices(reference, candidate)


def _bands(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Formula]:
    """Attention masks that depend on the distance of a key from its query."""
    theirs, mine = _band(candidate), _band(reference)
    if theirs is None or mine is None or theirs.array.shape != mine.array.shape:
        return
    if theirs.seen == mine.seen:
        hint = ""
    elif theirs.seen == theirs.all_distances:
        hint = ": nothing is masked"
    elif theirs.seen == frozenset(-distance for distance in mine.seen):
        hint = ": the mask is transposed"
    elif theirs.seen == theirs.all_distances - mine.seen:
        hint = ": the mask is inverted"
    elif theirs.seen == frozenset(d for d in theirs.all_distances if d <= 0):
        hint = ": a causal mask"
    elif theirs.seen == frozenset(d for d in theirs.all_distances if d >= 0):
        hint = ": an anticausal mask"
    elif theirs.seen == mine.seen - {0}:
        hint = ": a token is not seen by itself"
    else:
        hint = _one_less(mine, theirs)
    yield Formula(f"a mask with which tokens see {theirs} instead of {mine}{hint}", theirs.array)


class _Band:
    """A mask that lets tokens see those at some distances."""

    def __init__(self, array: np.ndarray, seen: frozenset[int], forbidden: str) -> None:
        self.array, self.seen, self.forbidden = array, seen, forbidden
        rows, columns = array.shape[-2:]
        self.all_distances = frozenset(range(1 - rows, columns))

    def __str__(self) -> str:
        if self.seen == self.all_distances:
            return "all others"
        numbers = sorted(self.seen)
        runs = bool(numbers) and numbers == list(range(numbers[0], numbers[-1] + 1))
        shown = f"{numbers[0]} to {numbers[-1]}" if runs else ", ".join(map(str, numbers)) or "none"
        return f"those at a distance of {shown}{self.forbidden}"


def _band(mask: np.ndarray) -> _Band | None:
    """The distances at which a mask lets tokens be seen; None for one that is no such mask."""
    if (
        mask.ndim < 2
        or min(mask.shape[-2:]) < 2
        or mask.shape[-1] != mask.shape[-2]
        or np.isnan(mask).any()
    ):
        return None
    values = np.unique(mask)
    if (
        mask.dtype.kind not in "bf"
        or len(values) > 2
        or (mask.dtype.kind == "f" and values[-1] != 0.0)
    ):
        return None
    seen = mask if mask.dtype.kind == "b" and len(values) == 2 and _is_open(mask) else mask == 0
    places = np.arange(mask.shape[-1])
    distance = places - places[:, None]
    kept = frozenset(int(d) for d in np.unique(distance) if seen[..., distance == d].all())
    pattern = np.isin(distance, sorted(kept))
    again = np.where(
        np.broadcast_to(pattern, mask.shape), mask[seen][0] if seen.any() else 0, values[0]
    )
    if mask.dtype.kind == "b":
        again = np.broadcast_to(pattern if seen is mask else ~pattern, mask.shape)
    forbidden = "" if mask.dtype.kind == "b" or len(values) < 2 else f" (others {values[0]:g})"
    return _Band(again, kept, forbidden) if np.array_equal(again, mask) else None


def _is_open(mask: np.ndarray) -> bool:
    """Whether a Boolean mask is True where a token is seen: every token sees itself."""
    return bool(np.diagonal(mask, axis1=-2, axis2=-1).all())


def _one_less(mine: _Band, theirs: _Band) -> str:
    lowest, highest = (
        tuple(edge(band.seen, default=0) for band in (mine, theirs)) for edge in (min, max)
    )
    shifts = abs(lowest[0] - lowest[1]), abs(highest[0] - highest[1])
    return ": the mask is off by one" if max(shifts) == 1 else ""


def _compared(
    sources: Mapping[str, np.ndarray], reference: np.ndarray, candidate: np.ndarray
) -> Iterator[Formula]:
    """Masks that are set where a source has a value."""
    right = next(
        (
            words
            for words, array in _by_value(sources, reference)
            if np.array_equal(array, reference)
        ),
        "",
    )
    instead = f" instead of {right}" if right else ""
    if reference.dtype.kind == "b":
        yield Formula("the mask inverted", ~reference)
    if not candidate.any():
        yield Formula(f"a mask that is set nowhere{instead}", np.zeros_like(candidate))
    if candidate.all():
        yield Formula(f"a mask that is set everywhere{instead}", np.ones_like(candidate))
    for words, array in _by_value(sources, candidate):
        yield Formula(f"a mask that is set where {words}{instead}", array)


def _by_value(
    sources: Mapping[str, np.ndarray], mask: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    for name, array in sources.items():
        if array.shape == mask.shape and array.dtype.kind in "iuf":
            for sign, compare in _SIGNS.items():
                for value in np.unique(array)[:_MOST_VALUES]:
                    yield f"{name} {sign} {value:g}", compare(array, value)


def _indices(reference: np.ndarray, candidate: np.ndarray) -> Iterator[Formula]:
    if candidate.min() == candidate.max():
        yield Formula(f"{candidate.flat[0]} for all", np.full_like(candidate, candidate.flat[0]))
    if reference.shape == candidate.shape and reference.dtype.kind in "iu":
        for step in (-2, -1, 1, 2):
            off = ": off by one" if abs(step) == 1 else ""
            yield Formula(f"the reference's {step:+d}{off}", reference + step)
        largest = int(reference.max())
        for least, most in ((0, largest - 1), (1, largest)):
            yield Formula(
                f"the reference's between {least} and {most}", np.clip(reference, least, most)
            )
        yield Formula(f"{largest} minus the reference's", largest - reference)
