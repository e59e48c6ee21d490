"""Masks and indices: which tokens see which, what counts as padding, and numbers of places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.explain.formulas import Array, Formula, Sources, scaled
from deliralike.conformance.findings import MATCH

_MOST_VALUES = 64
_SIGNS = {"==": np.equal, "!=": np.not_equal, ">": np.greater, "<": np.less}


def masks(sources: Sources, reference: Array, candidate: Array) -> Iterator[Formula]:
    """Indices, and masks by the distance of tokens, by values, inverted or constant."""
    yield from _bands(sources, reference, candidate)
    if candidate.dtype.kind == "b":
        yield from _by_values(sources, reference, candidate)
    if candidate.dtype.kind in "iu" and candidate.size:
        yield from _indices(reference, candidate)


# Which tokens see which
# -----------------------------------------------------------------------------


def _bands(sources: Sources, reference: Array, candidate: Array) -> Iterator[Formula]:
    """Masks, or scores with a mask, that depend on the distance of a key from its query."""
    mine, theirs = _distances(reference), _distances(candidate)
    if mine is None or theirs is None or reference.shape != candidate.shape:
        return
    values = np.unique(candidate)
    shown = f" (others {values[0]:g})" if _is_additive(candidate) and len(values) == 2 else ""
    length = candidate.shape[-1]
    whole = frozenset(range(1 - length, length))
    words = f"{_numbers(theirs, whole)}{shown} instead of {_numbers(mine, whole)}"
    hint = _hint(mine, theirs, whole)
    pattern = np.broadcast_to(_pattern(theirs, length), candidate.shape)
    yield Formula(
        f"a mask with which tokens see {words}{f': {hint}' if hint else ''}",
        _again(sources, reference, candidate, pattern),
    )


def _distances(mask: Array) -> frozenset[int] | None:
    """The distances at which a mask lets tokens be seen; None for what is no such mask."""
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return None
    if mask.dtype.kind == "b":
        every_token_sees_itself = np.diagonal(mask, axis1=-2, axis2=-1).all() and not mask.all()
        seen = mask if every_token_sees_itself else ~mask
    elif mask.dtype.kind == "f" and not np.isnan(mask).any():
        seen = mask == 0.0 if _is_additive(mask) else np.isfinite(mask)
    else:
        return None
    length = mask.shape[-1]
    every = range(1 - length, length)
    kept = frozenset(d for d in every if np.diagonal(seen, d, -2, -1).all())
    return (
        kept if np.array_equal(np.broadcast_to(_pattern(kept, length), seen.shape), seen) else None
    )


def _is_additive(mask: Array) -> bool:
    """Whether an array is zero where tokens are seen, and one number elsewhere."""
    values = np.unique(mask)
    return mask.dtype.kind == "f" and len(values) <= 2 and values[-1] == 0.0


def _pattern(kept: frozenset[int], length: int) -> Array:
    places = np.arange(length)
    return np.isin(places - places[:, None], sorted(kept))


def _again(sources: Sources, reference: Array, candidate: Array, seen: Array) -> Array:
    """A mask, or scores with it, made from which tokens are seen.

    Scores that the reference hides are its own before they were hidden, if these are at hand.
    """
    if candidate.dtype.kind == "b":
        return seen if np.array_equal(seen, candidate) else ~seen
    hidden = candidate.min() if _is_additive(candidate) else -np.inf
    scores = np.zeros(candidate.shape)
    if not _is_additive(candidate):
        visible = np.isfinite(reference)
        alike = {n: a[visible] for n, a in sources.items() if a.shape == reference.shape}
        before = [
            one for one in scaled(alike, reference[visible]) if _gives(one, reference, visible)
        ]
        scores = reference
        if before:
            ((name, by),) = before[0].terms.items()
            scores = by * sources[name]
    return np.where(seen, scores, hidden)


def _gives(made: Formula, reference: Array, visible: Array) -> bool:
    return bool(np.allclose(made.array, reference[visible], rtol=MATCH, atol=MATCH))


def _numbers(seen: frozenset[int], whole: frozenset[int]) -> str:
    if seen == whole:
        return "all others"
    numbers = sorted(seen)
    if numbers and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"those at a distance of {numbers[0]} to {numbers[-1]}"
    return f"those at a distance of {', '.join(map(str, numbers)) or 'none'}"


def _hint(mine: frozenset[int], theirs: frozenset[int], whole: frozenset[int]) -> str:
    """What it means that tokens see others."""
    known = {
        "nothing is masked": whole,
        "the mask is transposed": frozenset(-distance for distance in mine),
        "the mask is inverted": whole - mine,
        "a causal mask": frozenset(distance for distance in whole if distance <= 0),
        "an anticausal mask": frozenset(distance for distance in whole if distance >= 0),
        "a token is not seen by itself": mine - {0},
    }
    for words, seen in known.items():
        if theirs == seen != mine:
            return words
    return "the mask is off by one" if len(theirs ^ mine) in (1, 2) else ""


# By values
# -----------------------------------------------------------------------------


def _by_values(sources: Sources, reference: Array, candidate: Array) -> Iterator[Formula]:
    """Masks that are set where a source has a value."""
    known = _where(sources, reference)
    right = next((words for words, mask in known if np.array_equal(mask, reference)), "")
    instead = f" instead of {right}" if right else ""
    if reference.dtype.kind == "b":
        yield Formula("the mask inverted", ~reference)
    yield Formula(f"a mask that is set nowhere{instead}", np.zeros_like(candidate))
    yield Formula(f"a mask that is set everywhere{instead}", np.ones_like(candidate))
    for words, mask in _where(sources, candidate):
        yield Formula(f"a mask that is set where {words}{instead}", mask)


def _where(sources: Sources, like: Array) -> Iterator[tuple[str, Array]]:
    for name, array in sources.items():
        if array.shape == like.shape and array.dtype.kind in "iuf":
            for sign, compare in _SIGNS.items():
                for value in np.unique(array)[:_MOST_VALUES]:
                    yield f"{name} {sign} {value:g}", compare(array, value)


def _indices(reference: Array, candidate: Array) -> Iterator[Formula]:
    first = candidate.flat[0]
    yield Formula(f"{first} for all", np.full_like(candidate, first))
    if reference.shape == candidate.shape and reference.dtype.kind in "iu":
        for step in (-2, -1, 1, 2):
            off = ": off by one" if abs(step) == 1 else ""
            yield Formula(f"the reference's {step:+d}{off}", reference + step)
        most = int(reference.max())
        for low, high in ((0, most - 1), (1, most)):
            clipped = np.clip(reference, low, high)
            yield Formula(f"the reference's between {low} and {high}", clipped)
        yield Formula(f"{most} minus the reference's", most - reference)
