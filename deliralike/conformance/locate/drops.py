"""Dropout of the frameworks' own: rates that differ, and calls that one side alone makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from deliralike.conformance.by_name import block_kinds, owner
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
    made = [len(masks.drops.get(side, ())) for side in _SIDES]
    is_counted = len(masks.called(REFERENCE)) == len(masks.called(CANDIDATE))
    differing = masks.differing_rates() if is_counted else []
    if made[0] == made[1] and not differing:
        return []
    paths = [drop.path for drop in running.drops(REFERENCE)]
    called = [
        path for at, path in enumerate(paths) if at not in lone.get(REFERENCE, ())
    ]
    said = [(called[at], _of_rate(*rates)) for at, *rates in differing]
    times = f"called {_times(made[1])} instead of {_times(made[0])}"
    for at in lone.get(REFERENCE, ()):
        said.append(
            (
                paths[at],
                f"dropout p=0 instead of {_rate(running, REFERENCE, at)}, {times}",
            )
        )
    for at, path in _lone_of_candidate(running):
        said.append(
            (path, f"dropout p={_rate(running, CANDIDATE, at)} instead of 0, {times}")
        )
    said = said or [("", f"dropout {times}")]
    masks.off, masks.rate_of_reference = not (lone or differing), bool(differing)
    masks.skips = True
    running.modes["train"] = running.mode("train")
    found = [_finding(running, path, words, worst) for path, words in said]
    if masks.off:  # where one side drops what the other does not, all differs
        del running.modes["train"]
    return found


def _lone_of_candidate(running: Running) -> Iterator[tuple[int, str]]:
    """The calls that the candidate alone makes, with the innermost block of both around each."""
    lone = running.masks.lone.get(CANDIDATE, ())
    drops = running.drops(CANDIDATE) if lone else []
    for at in lone:
        path = drops[at].path
        while path and running.correspondence.tap_of(path) is None:
            path = owner(path)
        yield at, running.correspondence.tap_of(path) or "" if path else ""


def _rate(running: Running, side: int, at: int) -> str:
    return f"{running.masks.drops[side][at].rate:g}"


def _finding(running: Running, path: str, words: str, worst: float) -> Finding:
    """A difference in dropout, which explains what differs where nothing does without it."""
    equal = running.modes["train"]
    why = Explanation(words, equal.worst) if equal.agrees else None
    said = () if why else (f"There is {words}.",)
    kind = block_kinds(running.reference.network).get(path, "")
    finding = Finding("L3", path, "output", worst, kind, "train", LIMIT, why, said)
    return replace(finding, effect=running.effect())


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")


def _of_rate(mine: Drop, its: Drop) -> str:
    """A rate that differs."""
    words = f"dropout p={its.rate:g} instead of {mine.rate:g}"
    if np.isclose(mine.rate + its.rate, 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    return words
