"""Masks and indices: which tokens see which, what counts as padding, and numbers of places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.explain.formulas import Array, Formula


def masks(reference: Array, candidate: Array) -> Iterator[Formula]:
    """Indices, and masks by the distance of tokens, inverted or constant."""
    yield from _bands(reference, candidate)
    if candidate.dtype.kind == "b":
        if reference.dtype.kind == "b":
            yield Formula("the mask inverted", ~reference)
        yield Formula("a mask that is set nowhere", np.zeros_like(candidate))
        yield Formula("a mask that is set everywhere", np.ones_like(candidate))
        if reference.shape == candidate.shape and reference.shape[-2:-1] == reference.shape[-1:]:
            last = np.broadcast_to(reference[..., -1:, :], reference.shape)
            yield Formula("a mask that is not causal: each token sees what the last one sees", last)
    if candidate.dtype.kind in "iu" and candidate.size:
        first = candidate.flat[0]
        yield Formula(f"{first} for all", np.full_like(candidate, first))
        if reference.dtype.kind not in "iu":
            return
        for step in (-1, 1):
            yield Formula(f"the reference's {step:+d}: off by one", reference + step)


# Which tokens see which
# -----------------------------------------------------------------------------


def _bands(reference: Array, candidate: Array) -> Iterator[Formula]:
    """Masks that depend on the distance of a key from its query."""
    mine, theirs = _distances(reference), _distances(candidate)
    if mine is None or theirs is None or reference.shape != candidate.shape:
        return
    length = candidate.shape[-1]
    whole = frozenset(range(1 - length, length))
    words = f"a mask with which tokens see {_numbers(theirs, whole)}"
    values = np.unique(candidate)
    if _is_additive(candidate) and len(values) == 2:
        words += f" (others {values[0]:g})"
    words += f" instead of {_numbers(mine, whole)}"
    hint = _hint(mine, theirs, whole)
    if hint:
        words += f": {hint}"
    pattern = np.broadcast_to(_pattern(theirs, length), candidate.shape)
    yield Formula(words, _again(candidate, pattern))


def _distances(mask: Array) -> frozenset[int] | None:
    """The distances at which a mask lets tokens be seen; None for what is no such mask."""
    if mask.ndim < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 2:
        return None
    if mask.dtype.kind == "b":
        every_token_sees_itself = np.diagonal(mask, axis1=-2, axis2=-1).all() and not mask.all()
        seen = mask if every_token_sees_itself else ~mask
    elif _is_additive(mask):
        seen = mask == 0.0
    else:
        return None
    length = mask.shape[-1]
    every = range(1 - length, length)
    kept = frozenset(d for d in every if np.diagonal(seen, d, -2, -1).all())
    return kept if (seen == _pattern(kept, length)).all() else None


def _is_additive(mask: Array) -> bool:
    """Whether an array is zero where tokens are seen, and one number elsewhere."""
    values = np.unique(mask)
    return mask.dtype.kind == "f" and len(values) <= 2 and values[-1] == 0.0


def _pattern(kept: frozenset[int], length: int) -> Array:
    places = np.arange(length)
    return np.isin(places - places[:, None], sorted(kept))


def _again(candidate: Array, seen: Array) -> Array:
    """A mask made from which tokens are seen."""
    if candidate.dtype.kind == "b":
        return seen if np.array_equal(seen, candidate) else ~seen
    return np.where(seen, 0.0, candidate.min())


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
        "a causal mask": whole.intersection(range(-len(whole), 1)),
        "an anticausal mask": whole.intersection(range(len(whole))),
        "a token is not seen by itself": mine - {0},
    }
    for words, seen in known.items():
        if theirs == seen != mine:
            return words
    return "the mask is off by one" if len(theirs ^ mine) in (1, 2) else ""
