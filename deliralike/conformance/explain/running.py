"""Running statistics of the whole batch under other updates: other counts, or other distances."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deliralike.conformance.explain.shares import Shares, Variant, same_shapes
from deliralike.conformance.one_step import Step

_SPATIAL = np.arange(1, 1 << 14)  # values for each sample and channel that are tried
_EQUAL = 1e-9  # of two factors


def of_running_statistics(shares: Shares, came: Step) -> Iterator[Variant]:
    """What the replicas may have done to running statistics, found by a fit for each layer."""
    before = shares.reference.network.neutral_state()
    after, found = shares.wanted["buffer"], came["buffer"]
    alike = [name for name, value in after.items() if same_shapes({name: value}, found)]
    floating, counters = (
        [name for name in alike if (after[name].dtype.kind == "f") == is_float]
        for is_float in (True, False)
    )
    yield "running statistics that did not move", {"buffer": {name: before[name] for name in after}}
    if floating:
        yield _as_far(shares, before, after, found, floating)
    if counters:
        times = int(np.max([np.max(found[name] - before[name]) for name in counters]))
        counted = {name: before[name] + times * (after[name] - before[name]) for name in counters}
        yield f"batches counted {times} times", {"buffer": after | counted}
    momenta = {name: momentum for name, momentum in _momenta(shares).items() if name in floating}
    if variances := {
        name: momentum for name, momentum in momenta.items() if name.endswith("running_var")
    }:
        yield _by_other_counts(shares, before, after, found, variances)


def _as_far(shares: Shares, before: dict, after: dict, found: dict, names: list[str]) -> Variant:
    """All statistics moved some times as far as they should."""
    way = np.concatenate([np.ravel(after[name] - before[name]) for name in names])
    went = np.concatenate([np.ravel(found[name] - before[name]) for name in names])
    times = float(way @ went / (way @ way or 1.0))
    moved = {name: before[name] + times * (after[name] - before[name]) for name in names}
    words = f"running statistics that moved {times:.6g} times as far"
    for name, momentum in _momenta(shares).items():
        if name in names and abs(times - (1 - (1 - momentum) ** shares.count) / momentum) < _EQUAL:
            words = (
                f"running statistics that every one of the {shares.count} replicas moved once more"
            )
    return words, {"buffer": after | moved}


def _by_other_counts(
    shares: Shares, before: dict, after: dict, found: dict, momenta: dict[str, float]
) -> Variant:
    """Variances whose part of this batch is multiplied by something."""
    moved, words = {}, ""
    for name, momentum in momenta.items():
        own = (after[name] - (1 - momentum) * before[name]) / momentum
        came = (found[name] - (1 - momentum) * before[name]) / momentum
        factor = float(own @ came / (own @ own or 1.0))
        moved[name] = (1 - momentum) * before[name] + momentum * factor * own
        words = words if abs(factor - 1) < _EQUAL else _counted(shares, factor)
    return words or "running variances of this batch", {"buffer": after | moved}


def _counted(shares: Shares, factor: float) -> str:
    """What a factor of the unbiased variance means."""
    whole = shares.samples * _SPATIAL
    if _hits(factor, (whole - 1) / whole):
        return "running variance biased: divided by all values of the whole batch, not by one less"
    if _hits(factor, whole / np.maximum(whole - 1, 1)):
        return "running variance made unbiased twice"
    for r, size in enumerate(shares.sizes):
        own = size * _SPATIAL
        if _hits(factor, own / np.maximum(own - 1, 1) * (whole - 1) / whole):
            return f"running variance made unbiased by a share's count of values (of replica {r}), not the whole batch's"
    return f"running variance of this batch times {factor:.6g}"


def _hits(factor: float, factors: np.ndarray) -> bool:
    """Whether it is one of them; beyond some values they cannot be told from 1."""
    return bool((np.abs(factors - factor) < _EQUAL * np.abs(factors - 1)).any())


def _momenta(shares: Shares) -> dict[str, float]:
    """The weight of a batch's statistics, by buffer."""
    blocks: dict[str, Any] = dict(shares.reference.network.named_blocks())
    found = {
        name: getattr(blocks.get(name.rpartition(".")[0]), "momentum", None)
        for name in shares.wanted["buffer"]
    }
    return {name: float(momentum) for name, momentum in found.items() if momentum}
