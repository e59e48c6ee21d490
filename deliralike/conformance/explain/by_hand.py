"""Attention written out between layers: its scores and outputs as formulas of projections.

Which projections are queries, keys and values, whether positions turn them, the scale and the mask
are read off what the reference computes. Conventions are then executed as for any other block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.explain import attention
from deliralike.conformance.explain.activations import HOST
from deliralike.conformance.explain.bench import Bench
from deliralike.conformance.explain.enumeration import divisors
from deliralike.conformance.explain.families import Family
from deliralike.conformance.explain.search import Search
from deliralike.conformance.explain.wiring import Wiring
from deliralike.conformance.findings import Accused, Explanation, Observed, is_array, is_floating
from deliralike.conformance.kinds import Shape, Tensors

_PATIENCE = 4.0  # seconds of computing, after which no more are tried
_CLOSE = 1e-9  # of what a formula gives, relative to the largest number
_UNTURNED = attention.TURNED[-1]
_THIRD = ", third "
_MANY = 20  # arrays that may be projections

Arrays = Mapping[Any, np.ndarray]  # by what they are


def explain(wiring: Wiring, backend: Backend) -> Explanation | None:
    """The convention of attention with which the reference gives what the candidate computes.

    Args:
        wiring: Its array is scores ``(batch, heads, queries, keys)`` or ``(batch, queries, keys)``
            before their softmax, or what heads give side by side, ``(batch, queries, width)``.
        backend: What conventions are executed on.
    """
    end = time.process_time() + _PATIENCE
    mine, theirs = wiring.reference, wiring.candidate
    if not is_array(mine) or np.shape(mine) != np.shape(theirs):
        return None
    given = next(_readings(wiring.sources, mine, end), None)
    if given is None:
        return None
    right, wrong = (_observed(one, given["scores"]) for one in (mine, theirs))
    block = Accused("", "attention by hand", {}, {}, (), given, None, False, right, wrong)
    bench = Bench(block, backend)
    family = Family(attention.by_hand, attention.written_out(given))
    search = Search(bench, family, end)
    return search.first() if search.reproduces() else None


def _observed(array: np.ndarray, are_scores: bool) -> Observed:
    """Scores with zeros where nothing is seen, and what is seen; or outputs as they are."""
    if not are_scores:
        return Observed(array)
    seen = np.isfinite(array)
    return Observed((np.where(seen, array, 0.0), seen.astype(np.float64)))


# What the reference computes
# -----------------------------------------------------------------------------


def _readings(sources: Arrays, array: np.ndarray, end: float) -> Iterator[dict[str, Any]]:
    """What an array is made of by attention, by the names of `attention.by_hand`."""
    for read in (*_as_scores(sources, array), *_as_outputs(sources, array)):
        if time.process_time() > end:
            return
        given: dict[str, Any] | None = read
        if read.get("scale", 1.0) is None:
            given = _with_scale(read, array)
        if given is not None and _gives(given, array):
            yield given


def _as_scores(sources: Arrays, array: np.ndarray) -> Iterator[dict[str, Any]]:
    """Queries and keys that scores may be of; the scale is still to be found."""
    if array.ndim not in (3, 4):
        return
    samples, *heads_of, queries, keys = array.shape
    heads = heads_of[0] if heads_of else 1
    parts = _parts(sources, samples, (queries, keys))
    mask = _mask(np.isfinite(array).reshape(samples, heads, queries, keys))
    for (q, k), turning in product(permutations(parts, 2), attention.TURNED):
        width, odd = divmod(parts[q].shape[-1], heads)
        fit = parts[q].shape[1] == queries and parts[k].shape[1] == keys
        if not odd and fit and _groups(parts[k], width, heads):
            given = _given(parts, {"q": q, "k": k}, heads, width, turning, array.shape)
            yield {**given, "mask": mask, "scale": None, "scores": True}


def _as_outputs(sources: Arrays, array: np.ndarray) -> Iterator[dict[str, Any]]:
    """Values and weights, or all three projections, that outputs may be of."""
    if array.ndim != 3:
        return
    samples, queries, whole = array.shape
    parts = _parts(sources, samples, (queries,))
    shares = [one for one in sources.values() if one.ndim == 4 and len(one) == samples]
    for weights, v in product(shares, parts):
        heads = weights.shape[1]
        width, odd = divmod(whole, max(heads, 1))
        fits = weights.shape[2:] == (queries, parts[v].shape[1])
        if fits and not odd and _groups(parts[v], width, heads):
            given = _given(parts, {"v": v}, heads, width, _UNTURNED, array.shape)
            yield {**given, "weights": weights}
    alike = [name for name, one in parts.items() if one.shape == array.shape]
    for q, k, v in permutations(alike, 3):
        named = {"q": q, "k": k, "v": v}
        for heads, high in product(divisors(whole), (None, 0)):
            width = whole // heads
            given = _given(parts, named, heads, width, _UNTURNED, array.shape)
            yield {**given, "mask": (None, high), "scale": width**-0.5}


def _given(
    parts: Arrays,
    named: dict[str, str],
    heads: int,
    width: int,
    turning: str,
    shape: Shape,
) -> dict[str, Any]:
    """What the formula reads: the parts by their roles, and those that might be in their places."""
    own = {role: parts[name] for role, name in named.items()}
    shapes = {one.shape for one in own.values()}
    given = {
        **own,
        "heads": heads,
        "width": width,
        "shape": shape,
        "scores": False,
        "turning": turning,
        "base": 1e4,
        **attention.turning(turning),
        "named": named,
        "others": {name: one for name, one in parts.items() if one.shape in shapes},
    }
    if all(one[-1] == heads * width for one in shapes):
        given |= _packed(parts, named)
    return given


def _packed(parts: Arrays, named: Mapping[str, str]) -> dict[str, Any]:
    """The array of which all projections are thirds, and which third each is; empty without one."""
    part, owners = {}, set()
    for role, name in named.items():
        owner, _, third = str(name).rpartition(_THIRD)
        owners.add(owner)
        part[role] = int(third[0]) - 1 if owner else 0
    for name, whole in parts.items():
        if {str(name)} == owners:
            return {"whole": whole, "part": part}
    return {}


def _parts(sources: Arrays, samples: int, tokens: Shape) -> Tensors:
    """What may be queries, keys or values: ``(batch, tokens, width)``, also thirds of an array."""
    found: Tensors = {}
    for name, array in sources.items():
        if not is_floating(array):
            continue
        if array.ndim == 2 and len(array) == samples * tokens[-1]:
            array = array.reshape(samples, tokens[-1], -1)
        if array.ndim != 3 or len(array) != samples or array.shape[1] not in tokens:
            continue
        found[name] = array
        if array.shape[-1] % 3 == 0:
            for at, third in enumerate(np.split(array, 3, -1), start=1):
                found[f"{name}{_THIRD}{at} of 3"] = third
    return dict(list(found.items())[:_MANY])


def _groups(x: np.ndarray, width: int, heads: int) -> bool:
    """Whether an array holds heads of a width, of which several of the queries' may share one."""
    count, odd = divmod(x.shape[-1], max(width, 1))
    return not odd and 0 < count <= heads and heads % count == 0


def _mask(seen: np.ndarray) -> Any:
    """What is seen: two numbers of steps where it is a band, else an array."""
    plane = seen[0, 0]
    if not plane.any() or not (seen == plane).all():
        return seen
    away = np.subtract(*np.nonzero(plane)[::-1])
    queries, keys = plane.shape
    low, high = int(away.min()), int(away.max())
    steps = (low if low > 1 - queries else None, high if high < keys - 1 else None)
    return steps if (attention.band(queries, keys, steps) == plane).all() else plane


def _with_scale(given: dict[str, Any], array: np.ndarray) -> dict[str, Any] | None:
    """The one factor that makes scores of the products; None where there is none."""
    some = {**given, "q": given["q"][:1], "k": given["k"][:1], "scale": 1.0}
    some["shape"] = (1, *given["shape"][1:])
    if np.ndim(given["mask"]) == 4:
        some["mask"] = given["mask"][:1]
    raw, _ = attention.by_hand(HOST, some)
    wanted = np.where(np.isfinite(array[:1]), array[:1], 0.0)
    scale = float((raw * wanted).sum() / ((raw * raw).sum() or 1.0))
    if not scale or np.abs(raw * scale - wanted).max() > _CLOSE * np.abs(wanted).max():
        return None
    return {**given, "scale": float(f"{scale:.12g}")}


def _gives(given: dict[str, Any], array: np.ndarray) -> bool:
    """Whether a formula gives an array."""
    made = attention.by_hand(HOST, given)
    wanted = _observed(array, given["scores"]).outputs
    if given["scores"]:
        made, wanted = made[0], wanted[0]
    return bool(np.abs(made - wanted).max() <= _CLOSE * np.abs(wanted).max())
