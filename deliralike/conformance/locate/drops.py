"""Dropout of the frameworks' own: other rates, other masks, and calls that one side alone makes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from deliralike.conformance.by_name import block_kinds, owner
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.levels import semantics
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop, sizes
from deliralike.conformance.running import Running


def of_drops(running: Running) -> Iterator[Finding]:
    """What differs in dropout, in modes that are then without any.

    It explains a difference where nothing differs in that.
    """
    kinds = block_kinds(running.reference.network)
    for name, training in semantics.MODES.items():
        before = running.modes.get(name)
        differing = list(_differing_calls(running, training))
        if before is None or before.agrees or not differing:
            continue
        running.masks.off = True
        effect = running.effect()
        equal = running.modes[name] = running.mode(name)
        for path, words in differing:
            why = Explanation(words, equal.worst) if equal.agrees else None
            yield Finding(
                "L3",
                path,
                "output",
                before.worst,
                kinds.get(path, ""),
                name,
                LIMIT,
                why,
                () if why else (f"There is {words}.",),
                effect=effect,
            )


def of_sizes(running: Running) -> Iterator[Finding]:
    """Masks of other sizes, as of channels for elements, where the numbers agree."""
    masks = running.masks
    sides = masks.called(REFERENCE, True), masks.called(CANDIDATE, True)
    if len(sides[0]) != len(sides[1]):
        return  # of a call that changes nothing, or in replicas
    if sorted(sizes(sides[0])) == sorted(sizes(sides[1])):
        return
    for path, words in _differing_calls(running, True):
        yield Finding(
            "L1", path, "mask of dropout", math.inf, mode="train", remarks=(words,)
        )


def _differing_calls(running: Running, training: bool) -> Iterator[tuple[str, str]]:
    """The block of the reference and what differs there, for each call of dropout that differs."""
    masks = running.masks
    counts = [len(masks.called(side, training)) for side in (REFERENCE, CANDIDATE)]
    times = f"called {_times(counts[1])} instead of {_times(counts[0])}"
    for expected, actual in masks.differences(training, partial(_path, running)):
        if expected is None or actual is None:
            words = f"{_in_words(expected, actual)}, {times}"
        else:
            words = _in_words(expected, actual)
        if expected is not None:
            yield expected.path, words
        elif actual is not None:
            yield _path(running, actual), words


def _in_words(expected: Drop | None, actual: Drop | None) -> str:
    """What the candidate has in the place of the reference's; None where a side makes no call."""
    drops = [drop for drop in (expected, actual) if drop is not None]
    if any(drop.kind != "keep" for drop in drops):
        return f"{_noise(actual)} instead of {_noise(expected)}"
    if len(drops) == 2 and drops[0].rate == drops[1].rate:
        return (
            f"dropout with masks of shape {drops[1].shape} instead of {drops[0].shape}"
        )
    words = f"dropout p={_rate(actual)} instead of {_rate(expected)}"
    if len(drops) == 2 and math.isclose(sum(drop.rate or 0.0 for drop in drops), 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    return words


def _noise(drop: Drop | None) -> str:
    if drop is None:
        return "none"
    kind = "a mask" if drop.kind == "keep" else f"{drop.kind} noise"
    return f"{kind} of shape {drop.shape}"


def _rate(drop: Drop | None) -> str:
    if drop is None:
        return "0"
    return "?" if drop.rate is None else f"{drop.rate:g}"


def _path(running: Running, drop: Drop) -> str:
    """The innermost block of both sides around a call of the candidate's."""
    path = drop.path
    while path and running.correspondence.tap_of(path) is None:
        path = owner(path)
    return (running.correspondence.tap_of(path) or "") if path else ""


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")
