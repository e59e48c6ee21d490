"""Dropout of the frameworks' own: rates that differ, and calls that one side alone makes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.levels import semantics
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop
from deliralike.conformance.running import Running
from deliralike.network.base import AbstractNetwork


def of_drops(running: Running) -> list[Finding]:
    """What differs in dropout; the training mode at hand is that without the difference.

    A rate explains a difference where nothing differs in a run with equal rates, and a call where
    nothing differs in one without any.
    """
    masks = running.masks
    if "train" not in running.modes:
        return []
    worst, by_calls = running.modes["train"].worst, masks.drop_otherwise
    differing = [] if by_calls else masks.differing_rates()
    if not (by_calls or differing):
        return []
    paths = _paths(running)
    masks.off, masks.rate_of_reference = by_calls, not by_calls
    running.modes["train"] = running.mode("train")
    if by_calls:
        said = [(_lacking(running, paths), _of_calls(running))]
    else:
        said = [(paths[at], _of_rate(mine, its)) for at, mine, its in differing]
    return [_finding(running, path, words, worst) for path, words in said]


def _finding(running: Running, path: str, words: str, worst: float) -> Finding:
    """A difference in dropout, which explains what differs where nothing does without it."""
    equal = running.modes["train"]
    why = Explanation(words, equal.worst) if equal.agrees else None
    said = () if why else (f"There is {words}.",)
    kind = block_kinds(running.reference.network)[path]
    finding = Finding("L3", path, "output", worst, kind, "train", LIMIT, why, said)
    return replace(finding, effect=running.effect())


def _of_calls(running: Running) -> str:
    """How often either side drops; where that is the same, from what."""
    mine, its = running.masks.counts
    if mine != its:
        return f"dropout called {_times(its)} instead of {_times(mine)}"
    drops = running.masks.drops
    for one, other in zip(drops[REFERENCE], drops[CANDIDATE], strict=True):
        if math.prod(one.shape) != math.prod(other.shape):
            return f"dropout with masks of {other.shape} instead of {one.shape}"
    return "dropout of other numbers"


def _lacking(running: Running, paths: Sequence[str]) -> str:
    """The reference's block that makes the first call of dropout without a counterpart."""
    mine, its = (
        [(*sorted(drop.shape), drop.rate) for drop in running.masks.drops.get(side, ())]
        for side in (REFERENCE, CANDIDATE)
    )
    matcher = SequenceMatcher(None, mine, its, autojunk=False)
    alone = [
        start for kind, start, end, *_ in matcher.get_opcodes() if kind != "equal" and end > start
    ]
    return paths[alone[0]] if alone else ""


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _of_rate(mine: Drop, its: Drop) -> str:
    """A rate that differs."""
    words = f"dropout p={its.rate:g} instead of {mine.rate:g}"
    if np.isclose(mine.rate + its.rate, 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    return words


def _paths(running: Running) -> list[str]:
    """The reference's block that makes each call of dropout."""
    masks, reference = running.masks, running.reference
    known = masks.drops.pop(REFERENCE)

    def loss(network: AbstractNetwork, *batch: Any) -> Any:
        with masks.located(network):
            return reference.loss(network, *batch)

    semantics.look(reference.but(loss=loss), running.batch, True)
    located = masks.drops.pop(REFERENCE, known)
    masks.drops[REFERENCE] = known
    return [drop.path for drop in located]
