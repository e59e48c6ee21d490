"""Dropout of the frameworks' own: rates that differ, and calls that one side alone makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from deliralike.conformance.by_name import block_kinds
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop
from deliralike.conformance.running import Running

_SIDES = (REFERENCE, CANDIDATE)


def of_drops(running: Running) -> list[Finding]:
    """What differs in dropout; the training mode at hand is that without the difference.

    A rate explains a difference where nothing differs in a run with equal rates, and a call where
    nothing differs in one without it, or without any.
    """
    masks = running.masks
    if "train" not in running.modes:
        return []
    worst, lone = running.modes["train"].worst, masks.lone
    mine, its = (len(masks.drops.get(side, ())) for side in (REFERENCE, CANDIDATE))
    differing = masks.differing_rates() if mine == its else []
    if mine == its and not differing:
        return []
    paths = [drop.path for drop in running.drops(REFERENCE)]
    said = [(paths[at], _of_rate(*drops)) for at, *drops in differing]
    if not differing:
        words = f"dropout called {_times(its)} instead of {_times(mine)}{_rates_added(running)}"
        said = [(paths[at], words) for at in lone.get(REFERENCE, ())[:1]] or [("", words)]
    masks.off, masks.rate_of_reference = not (lone or differing), bool(differing)
    masks.skips = True
    running.modes["train"] = running.mode("train")
    found = [_finding(running, path, words, worst) for path, words in said]
    if masks.off:  # where one side drops what the other does not, all differs
        del running.modes["train"]
    return found


def _finding(running: Running, path: str, words: str, worst: float) -> Finding:
    """A difference in dropout, which explains what differs where nothing does without it."""
    equal = running.modes["train"]
    why = Explanation(words, equal.worst) if equal.agrees else None
    said = () if why else (f"There is {words}.",)
    kind = block_kinds(running.reference.network)[path]
    finding = Finding("L3", path, "output", worst, kind, "train", LIMIT, why, said)
    return replace(finding, effect=running.effect())


def _rates_added(running: Running) -> str:
    """The rates of calls that the candidate makes more often, as the end of a sentence."""
    drops = running.masks.drops
    rates = [Counter(f"{drop.rate:g}" for drop in drops.get(side, ())) for side in _SIDES]
    more = ", ".join(rates[1] - rates[0])
    return f", with p={more}" if more else ""


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _of_rate(mine: Drop, its: Drop) -> str:
    """A rate that differs."""
    words = f"dropout p={its.rate:g} instead of {mine.rate:g}"
    if np.isclose(mine.rate + its.rate, 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    return words
