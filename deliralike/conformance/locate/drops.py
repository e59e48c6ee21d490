"""Dropout of the frameworks' own: other rates, other masks, and calls that one side alone makes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from deliralike.conformance.by_name import block_kinds, owner
from deliralike.conformance.findings import LIMIT, Explanation, Finding
from deliralike.conformance.masks import CANDIDATE, REFERENCE, Drop
from deliralike.conformance.running import Running


def of_drops(running: Running) -> list[Finding]:
    """What differs in dropout, in a training mode that is then without any.

    It explains a difference where nothing differs in that.
    """
    training = running.modes.get("train")
    differing = list(_differing_calls(running))
    if training is None or training.agrees or not differing:
        return []
    running.masks.off = True
    equal = running.modes["train"] = running.mode("train")
    kinds, found = block_kinds(running.reference.network), []
    for path, words in differing:
        why = Explanation(words, equal.worst) if equal.agrees else None
        remarks = () if why else (f"There is {words}.",)
        kind, effect = kinds.get(path, ""), running.effect()
        found.append(
            Finding(
                "L3",
                path,
                "output",
                training.worst,
                kind,
                "train",
                LIMIT,
                why,
                remarks,
                effect=effect,
            )
        )
    return found


def of_sizes(running: Running) -> Iterator[Finding]:
    """Masks of other sizes, as of channels for elements, where the numbers agree."""
    masks = running.masks
    sides = masks.called(REFERENCE), masks.called(CANDIDATE)
    if len(sides[0]) != len(sides[1]):
        return  # of a call that changes nothing, or in replicas
    sizes = []
    for side in sides:
        sizes.append(sorted(math.prod(drop.shape) for drop in side))
    if sizes[0] == sizes[1]:
        return
    for path, words in _differing_calls(running):
        yield Finding(
            "L1", path, "mask of dropout", math.inf, mode="train", remarks=(words,)
        )


def _differing_calls(running: Running) -> Iterator[tuple[str, str]]:
    """The block of the reference and what differs there, for each call of dropout that differs."""
    masks = running.masks
    counts = [len(masks.called(side)) for side in (REFERENCE, CANDIDATE)]
    times = f"called {_times(counts[1])} instead of {_times(counts[0])}"
    for mine, its in masks.differences():
        if mine is None and its is not None:
            yield _path(running, its), f"{_added(its)}, {times}"
        elif mine is not None and its is None:
            yield mine.path, f"{_missing(mine)}, {times}"
        elif mine is not None and its is not None:
            yield mine.path, _of_pair(mine, its)


def _added(its: Drop) -> str:
    if its.kind == "keep":
        return f"dropout p={_rate(its)} instead of 0"
    return f"{its.kind} noise of shape {its.shape} instead of none"


def _missing(mine: Drop) -> str:
    if mine.kind == "keep":
        return f"dropout p=0 instead of {_rate(mine)}"
    return f"no {mine.kind} noise instead of that of shape {mine.shape}"


def _of_pair(mine: Drop, its: Drop) -> str:
    kinds = {mine.kind, its.kind}
    if kinds == {"keep"} and mine.rate == its.rate:
        return f"dropout with masks of shape {its.shape} instead of {mine.shape}"
    if kinds != {"keep"}:
        return f"{_noun(its)} of shape {its.shape} instead of {_noun(mine)} of {mine.shape}"
    words = f"dropout p={_rate(its)} instead of {_rate(mine)}"
    if math.isclose((mine.rate or 0.0) + (its.rate or 0.0), 1.0):
        words += ", the fraction that is kept in the place of that which is dropped"
    return words


def _noun(drop: Drop) -> str:
    return "a mask" if drop.kind == "keep" else f"{drop.kind} noise"


def _rate(drop: Drop) -> str:
    return "?" if drop.rate is None else f"{drop.rate:g}"


def _path(running: Running, its: Drop) -> str:
    """The innermost block of both sides around a call of the candidate's."""
    path = its.path
    while path and running.correspondence.tap_of(path) is None:
        path = owner(path)
    return (running.correspondence.tap_of(path) or "") if path else ""


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count} times")
