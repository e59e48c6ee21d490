"""Why weights differ: another layout, another order, another scale, or another start."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.relations import Relation, nearest
from deliralike.conformance.findings import LIMIT, MATCH, Explanation

# means and spreads of two draws of the same distribution differ by less, in a tensor of some size
ALIKE = 0.2
_SMALL = 2**16  # elements; more are not tried in every order
LEAST = 32  # elements from which on a spread says something


def explain_weights(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> list[tuple[str, Explanation]]:
    """What was done to each tensor that differs.

    Args:
        reference, candidate: Weights by the same names; tensors that one of them lacks are left
            out.

    Returns:
        Names and explanations, in the reference's order; a cause that cannot be told is not known.

    Example:
        >>> weight = np.arange(6.0).reshape(2, 3)
        >>> [(name, why.cause) for name, why in explain_weights({"fc.weight": weight}, {"fc.weight": -weight})]
        [('fc.weight', 'negated (the sign)')]
    """
    found = []
    wrong = {
        n: np.asarray(r)
        for n, r in reference.items()
        if n in candidate and _apart(r, candidate[n]) > LIMIT
    }
    for name, value in wrong.items():
        others = {n: np.asarray(r) for n, r in reference.items()}
        found.append((name, _explained(name, value, np.asarray(candidate[name]), wrong, others)))
    return found


def _apart(reference: np.ndarray, candidate: np.ndarray) -> float:
    return relative_difference(reference, candidate)


def _explained(
    name: str,
    r: np.ndarray,
    c: np.ndarray,
    wrong: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
) -> Explanation:
    apart = min(_apart(r, c), 1e300)
    best = _likeliest(name, r, c, wrong, others)
    if best is not None and best.distance <= min(1e-8, 1e-3 * apart):
        return Explanation(best.cause, best.distance, apart)
    for judged in (_noise(r, c), _quantised(r, c), _another_start(r, c)):
        if judged is not None:
            return Explanation(judged, 0.0, apart)
    return Explanation("nothing that is known" if best is None else best.cause, apart)


def _likeliest(
    name: str,
    r: np.ndarray,
    c: np.ndarray,
    wrong: Mapping[str, np.ndarray],
    others: Mapping[str, np.ndarray],
) -> Relation | None:
    candidates = [
        *_layouts(r, c),
        *_other_tensor(name, c, wrong, others),
        *_gates(name, r, c),
        *_rows(r, c),
        *_split(r, c),
    ]
    exact = next((one for one in candidates if one.distance <= EXACT), None)
    general = None if exact is not None else nearest(r, c)
    possible = [one for one in [general, *candidates] if one is not None]
    return exact or min(possible, key=lambda one: one.distance, default=None)


def _layouts(r: np.ndarray, c: np.ndarray) -> list[Relation]:
    """Kernels flipped, and the layouts of other frameworks."""
    found = []
    if r.ndim >= 3 and r.shape == c.shape:
        spatial = tuple(range(2, r.ndim))
        found.append(Relation("kernel flipped", relative_difference(c, np.flip(r, spatial))))
    if r.ndim == 4:
        named = {
            "HWIO instead of OIHW": (2, 3, 1, 0),
            "OHWI instead of OIHW": (0, 2, 3, 1),
            "IOHW instead of OIHW (input and output channels exchanged)": (1, 0, 2, 3),
            "kernel transposed (height and width exchanged)": (0, 1, 3, 2),
        }
        for word, order in named.items():
            moved = r.transpose(order)
            if moved.shape == c.shape:
                found.append(Relation(word, relative_difference(c, moved)))
            if moved.size == c.size:
                found.append(
                    Relation(f"{word}, reshaped", relative_difference(c, moved.reshape(c.shape)))
                )
        if r.shape == c.shape:
            flipped = np.flip(r, (2, 3)).transpose(1, 0, 2, 3)
            if flipped.shape == c.shape:
                cause = "kernel flipped, input and output channels exchanged"
                found.append(Relation(cause, relative_difference(c, flipped)))
    return found


def _other_tensor(
    name: str, c: np.ndarray, wrong: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]
) -> list[Relation]:
    """The values of another tensor, whose own ones may be elsewhere or where they belong."""
    same = [
        (other, value)
        for other, value in others.items()
        if other != name and value.shape == c.shape and np.ptp(c)
    ]
    return [
        Relation(
            f"holds {n} ({'exchanged' if n in wrong else 'a copy of the other'})",
            relative_difference(c, v),
        )
        for n, v in same
    ]


def _gates(name: str, r: np.ndarray, c: np.ndarray) -> list[Relation]:
    """Find blocks of rows in another order: gates of an LSTM or GRU, or queries, keys, values."""
    found = []
    for blocks, letters in ((4, "ifgo"), (3, "qkv" if "proj" in name or "qkv" in name else "rzn")):
        if r.ndim < 1 or r.shape != c.shape or len(r) % blocks or len(r) == blocks:
            continue
        parts = np.split(r, blocks)
        for order in list(permutations(range(blocks)))[1:]:
            moved = np.concatenate([parts[i] for i in order])
            word = ", ".join(letters[i] for i in order)
            found.append(
                Relation(
                    f"blocks in the order {word} instead of {', '.join(letters)}",
                    relative_difference(c, moved),
                )
            )
        for block, letter in enumerate(letters):
            added = np.split(c - r, blocks)[block]
            shift = float(added.mean())
            if shift and c.ndim == 1:
                raised = np.concatenate(
                    [part + shift * (i == block) for i, part in enumerate(parts)]
                )
                word = "forget gate's bias" if letter == "f" else f"block {letter}"
                found.append(Relation(f"{word} plus {shift:.6g}", relative_difference(c, raised)))
        mixed = np.stack(parts, 1).reshape(r.shape)
        found.append(Relation(f"the {blocks} blocks interleaved", relative_difference(c, mixed)))
    return found


def _rows(r: np.ndarray, c: np.ndarray) -> list[Relation]:
    """Each output's weights divided by their length, or with a factor of their own."""
    if r.ndim < 2 or r.shape != c.shape:
        return []
    rows, theirs = (x.reshape(len(x), -1) for x in (r, c))
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    if not sizes.all() or rows.shape[1] < 2:
        return []
    factors = (rows * theirs).sum(1, keepdims=True) / sizes**2
    shown = ", ".join(f"{factor:.4g}" for factor in factors.ravel()[:6]) + (
        ", …" if len(factors) > 6 else ""
    )
    return [
        Relation(
            "each row divided by its norm (the scale of a weight norm is lost)",
            relative_difference(theirs, rows / sizes),
        ),
        Relation(
            "centred: the mean of each row subtracted",
            relative_difference(theirs, rows - rows.mean(1, keepdims=True)),
        ),
        Relation(
            "standardised: each row with mean 0 and deviation 1",
            relative_difference(
                theirs, (rows - rows.mean(1, keepdims=True)) / (rows.std(1, keepdims=True) + 1e-300)
            ),
        ),
        *(
            []
            if np.ptp(factors) <= MATCH * np.abs(factors).max()
            else [  # one factor for all rows is said more simply
                Relation(
                    f"each row scaled by a factor of its own: [{shown}]",
                    relative_difference(theirs, factors * rows),
                )
            ]
        ),
    ]


def _split(r: np.ndarray, c: np.ndarray) -> list[Relation]:
    """Find axes that are split into two, permuted and joined again.

    A reshape in the place of a transposition does this.
    """
    if r.ndim != 2 or r.size != c.size or r.size > _SMALL or np.array_equal(r.T, c):
        return []
    found = []
    for first, second in ((a, b) for a in _divisors(r.shape[0]) for b in _divisors(r.shape[1])):
        shape = (first, r.shape[0] // first, second, r.shape[1] // second)
        for order in (
            list(permutations(range(4)))[1:] if sum(size > 1 for size in shape) > 2 else ()
        ):
            moved = r.reshape(shape).transpose(order).reshape(c.shape)
            if np.array_equal(moved, c):
                found.append(
                    Relation(
                        f"reshaped to {shape}, axes permuted to {order}, and reshaped back", 0.0
                    )
                )
    return found


def _divisors(size: int) -> list[int]:
    return [number for number in range(1, size + 1) if size % number == 0][:8]


def _another_start(r: np.ndarray, c: np.ndarray) -> str | None:
    """Return the distribution from which values seem to be drawn; None where they do not.

    This is a judgement about spreads, not an exact match.
    """
    if (
        r.shape != c.shape
        or c.size < LEAST
        or not np.isfinite(c).all()
        or c.std() == 0.0
        or r.std() == 0.0
    ):
        return None
    if abs(np.corrcoef(r.ravel(), c.ravel())[0, 1]) > 0.5:
        return None
    ratio = float(c.std() / r.std())
    if (
        abs(ratio - 1.0) <= max(ALIKE, 4.0 / c.size**0.5)
        and abs(c.mean() - r.mean()) <= ALIKE * r.std() + 4.0 * r.std() / c.size**0.5
    ):
        return "another start (the same spread, other values: another seed)"
    return f"another start (spread {c.std():.3g} instead of {r.std():.3g})"


def _noise(r: np.ndarray, c: np.ndarray) -> str | None:
    """Whether each element differs by as little as another arithmetic would make it differ."""
    if r.shape != c.shape or c.size < LEAST:
        return None
    differs = np.abs(c - r) / (np.abs(r) + np.abs(r).mean() + 1e-300)
    if differs.max() > 1e-5 or np.count_nonzero(c != r) < 0.5 * c.size:
        return None
    return f"noise of about {float(np.median(differs)):.0e}, as other arithmetic or rounding gives"


def _quantised(r: np.ndarray, c: np.ndarray) -> str | None:
    """Whether the values are few and evenly spaced."""
    if r.shape != c.shape or c.size < LEAST or relative_difference(r, c) > 0.1:
        return None
    steps = np.diff(np.unique(c))
    step = float(steps[steps > 1e-9 * np.abs(c).max()].min(initial=np.inf))
    levels = np.abs(c).max() / step if np.isfinite(step) else np.inf
    if levels > 2**12 or not np.allclose(c / step, np.round(c / step), atol=1e-4):
        return None
    return f"quantised: rounded to whole steps of {step:.3g}, about {np.ceil(np.log2(2 * levels + 1)):.0f} bits"
