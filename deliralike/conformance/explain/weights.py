"""Why weights differ: another layout, another order, another scale, or another start."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.explain.fitting import EXACT
from deliralike.conformance.explain.relations import Relation, nearest
from deliralike.conformance.findings import LIMIT, Explanation

ALIKE = 0.2  # means and spreads of two draws of the same distribution differ by less, in a tensor of some size
LEAST = 32  # elements from which on a spread says something


def explain_weights(
    reference: Mapping[str, np.ndarray], candidate: Mapping[str, np.ndarray]
) -> list[tuple[str, Explanation]]:
    """What was done to each tensor that differs.

    Args:
        reference, candidate: Weights by the same names; tensors that one of them lacks are left out.

    Returns:
        Names and explanations, in the reference's order; a cause that cannot be told is not known.

    Example:
        >>> weight = np.arange(6.0).reshape(2, 3)
        >>> [(name, why.cause) for name, why in explain_weights({"fc.weight": weight}, {"fc.weight": -weight})]
        [('fc.weight', 'negated')]
    """
    found = []
    wrong = {n: np.asarray(r) for n, r in reference.items() if n in candidate and _apart(r, candidate[n]) > LIMIT}
    for name, value in wrong.items():
        found.append((name, _explained(name, value, np.asarray(candidate[name]), wrong)))
    return found


def _apart(reference: np.ndarray, candidate: np.ndarray) -> float:
    return relative_difference(reference, candidate)


def _explained(name: str, r: np.ndarray, c: np.ndarray, wrong: Mapping[str, np.ndarray]) -> Explanation:
    apart = min(_apart(r, c), 1e300)
    best = _likeliest(name, r, c, wrong)
    if best is not None and best.distance <= min(1e-8, 1e-3 * apart):
        return Explanation(best.cause, best.distance, apart)
    start = _another_start(r, c)
    if start is not None:
        return Explanation(start, 0.0, apart)
    return Explanation("nothing that is known" if best is None else best.cause, apart)


def _likeliest(name: str, r: np.ndarray, c: np.ndarray, wrong: Mapping[str, np.ndarray]) -> Relation | None:
    candidates = [*_layouts(r, c), *_other_tensor(name, c, wrong), *_gates(name, r, c)]
    exact = next((one for one in candidates if one.distance <= EXACT), None)
    general = None if exact is not None else nearest(r, c)
    return exact or min(
        (one for one in [general, *candidates] if one is not None), key=lambda one: one.distance, default=None
    )


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
            "IOHW instead of OIHW": (1, 0, 2, 3),
            "kernel transposed (height and width exchanged)": (0, 1, 3, 2),
        }
        for word, order in named.items():
            moved = r.transpose(order)
            if moved.shape == c.shape:
                found.append(Relation(word, relative_difference(c, moved)))
            if moved.size == c.size:
                found.append(Relation(f"{word}, reshaped", relative_difference(c, moved.reshape(c.shape))))
        if r.shape == c.shape:
            flipped = np.flip(r, (2, 3)).transpose(1, 0, 2, 3)
            if flipped.shape == c.shape:
                cause = "kernel flipped, input and output channels exchanged"
                found.append(Relation(cause, relative_difference(c, flipped)))
    return found


def _other_tensor(name: str, c: np.ndarray, wrong: Mapping[str, np.ndarray]) -> list[Relation]:
    """The values of another tensor."""
    same = [(other, value) for other, value in wrong.items() if other != name and value.shape == c.shape]
    return [Relation(f"holds {other} (exchanged)", relative_difference(c, value)) for other, value in same]


def _gates(name: str, r: np.ndarray, c: np.ndarray) -> list[Relation]:
    """Blocks of rows in another order: the gates of an LSTM or a GRU, or queries, keys and values."""
    found = []
    for blocks, letters in ((4, "ifgo"), (3, "qkv" if "proj" in name or "qkv" in name else "rzn")):
        if r.ndim < 1 or r.shape != c.shape or len(r) % blocks or len(r) == blocks:
            continue
        parts = np.split(r, blocks)
        for order in list(permutations(range(blocks)))[1:]:
            moved = np.concatenate([parts[i] for i in order])
            word = ", ".join(letters[i] for i in order)
            found.append(
                Relation(f"blocks in the order {word} instead of {', '.join(letters)}", relative_difference(c, moved))
            )
        mixed = np.stack(parts, 1).reshape(r.shape)
        found.append(Relation(f"the {blocks} blocks interleaved", relative_difference(c, mixed)))
    return found


def _another_start(r: np.ndarray, c: np.ndarray) -> str | None:
    """Whether values look drawn, and from what; such a cause is a judgement about spreads, not an exact match."""
    if r.shape != c.shape or c.size < LEAST or not np.isfinite(c).all() or c.std() == 0.0 or r.std() == 0.0:
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
