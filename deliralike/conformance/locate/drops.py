"""Dropout of the frameworks' own: rates that differ, and calls that one side alone makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.levels import semantics
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop
from deliralike.conformance.running import Running
from deliralike.network.base import AbstractNetwork

_SIDES = (REFERENCE, CANDIDATE)


def of_drops(running: Running) -> list[Finding]:
    """What differs in dropout; the training mode at hand is that without the difference.

    A rate explains a difference where nothing differs in a run with equal rates, and a call where
    nothing differs in one without any.
    """
    masks = running.masks
    if "train" not in running.modes:
        return []
    worst = running.modes["train"].worst
    if len(set(masks.counts)) > 1:
        return [_of_calls(running)]
    differing = masks.differing_rates()
    if not differing:
        return []
    paths = _paths(running, REFERENCE)
    masks.rate_of_reference = True
    running.modes["train"] = running.mode("train")
    return [_of_rate(running, mine, its, paths[at], worst) for at, mine, its in differing]


def _of_calls(running: Running) -> Finding:
    """Dropout that is called more often on one side."""
    (mine, its), drops = running.masks.counts, running.masks.drops
    rates = [Counter(f"{drop.rate:g}" for drop in drops.get(side, ())) for side in _SIDES]
    more = ", ".join(rates[1] - rates[0])
    words = f"dropout called {_times(its)} instead of {_times(mine)}"
    words += f", with p={more}" if more else ""
    running.masks.off = True
    without = running.mode("train")
    running.masks.off = False
    del running.modes["train"]  # where one side drops what the other does not, all differs
    why = Explanation(words, without.worst) if without.agrees else None
    said = () if why else (f"There is {words}.",)
    path = _lone(running)
    kind = block_kinds(running.reference.network).get(path, "") if path else ""
    finding = Finding("L3", path, "dropout", np.inf, kind, "train", LIMIT, why, said)
    return replace(finding, effect=running.effect())


def _lone(running: Running) -> str:
    """The first block of which one side alone calls dropout; the network where that is not known."""
    blocks = running.reference.network.named_blocks()
    match = getattr(running.correspondence, "match", None)
    names = {} if match is None else {its: mine for mine, its in match.blocks.items()}
    mine = Counter(_paths(running, REFERENCE))
    its = Counter(names.get(path, path) for path in _paths(running, CANDIDATE))
    lone = [*(mine - its), *(its - mine)]
    return lone[0] if lone and lone[0] in dict(blocks) else ""


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _of_rate(running: Running, mine: Drop, its: Drop, path: str, worst: float) -> Finding:
    """A rate that differs."""
    words = f"dropout p={its.rate:g} instead of {mine.rate:g}"
    if np.isclose(mine.rate + its.rate, 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    equal = running.modes["train"]
    why = Explanation(words, equal.worst) if equal.agrees else None
    said = () if why else (f"There is {words}.",)
    kind = block_kinds(running.reference.network)[path]
    finding = Finding("L3", path, "output", worst, kind, "train", LIMIT, why, said)
    return replace(finding, effect=running.effect())


def _paths(running: Running, side: int) -> list[str]:
    """The block of a side that makes each call of dropout."""
    masks = running.masks
    subject = (running.reference, running.candidate)[side]
    known = masks.drops.pop(side, [])

    def loss(network: AbstractNetwork, *batch: Any) -> Any:
        with masks.located(network):
            return subject.loss(network, *batch)

    semantics.look(subject.but(loss=loss), running.batch, True)
    located = masks.drops.pop(side, known)
    masks.drops[side] = known
    return [drop.path for drop in located]
