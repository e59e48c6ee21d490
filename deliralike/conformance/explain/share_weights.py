"""Shares that are run or counted otherwise: alone, in another mode, with other weights, or rounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from deliralike.conformance.explain.shares import (
    Shares,
    Variant,
    combined,
    fitted,
    joined,
    numbers,
    same_shapes,
)
from deliralike.conformance.one_step import Step
from deliralike.errors import DeliralikeError

ALONE = "each share's batch statistics taken by itself, not synchronised"
ALIKE = "the same masks in every replica (dropout streams that all begin at sample 0)"


def weightings(shares: Shares) -> Iterator[tuple[str, np.ndarray]]:
    """What shares may count for, in words; the right weights first, without words."""
    count, right, sizes = shares.count, shares.weights, np.array(shares.sizes)
    each = np.eye(count)
    yield "", right
    yield "the mean of the shares' means", np.full(count, 1 / count)
    yield "the sum of the shares' means", np.ones(count)
    yield "each share weighted by its samples, not by its own denominator", sizes / shares.samples
    yield "shares weighted by their sizes in reversed order", sizes[::-1] / shares.samples
    yield "shares weighted by their denominators in reversed order", right[::-1]
    yield "shares weighted by the denominator of the next one", np.roll(right, -1)
    yield "sums of the shares' means times their samples, divided by nothing", sizes * 1.0
    yield (
        "each share's mean divided by the number of samples of the batch",
        np.full(count, 1 / shares.samples),
    )
    for r in range(count):
        yield f"only the share of replica {r} counts, as if it were the whole batch", each[r]
        yield f"only the share of replica {r} counts, by its part", right * each[r]
        yield f"the share of replica {r} does not count", right * (1 - each[r])
        rest = right * (1 - each[r])
        yield (
            f"the share of replica {r} does not count, the others are averaged",
            rest / (rest.sum() or 1.0),
        )
        yield f"the share of replica {r} counts twice", right * (1 + each[r])


def of_weights(shares: Shares) -> Iterator[Variant]:
    """Shares that count something else, with the statistics of the whole batch or their own."""
    for whose, parts in ways_to_run(shares):
        for words, weights in weightings(shares):
            cause = ", and ".join(text for text in (whose, words) if text)
            if cause:
                yield cause, combined(parts, weights)
        if whose:
            yield whose, {"output": joined(parts)}
            for words, buffers in _policies(shares, parts):
                yield f"{whose}; the running statistics are {words}", {"buffer": buffers}


def of_modes(shares: Shares) -> Iterator[Variant]:
    """Replicas that compute in evaluation mode."""
    evaluated = [
        shares.run(shares.chosen(rows), first_sample=int(rows[0]), training=False)
        for rows in shares.rows
    ]
    for words, parts in (
        ("all replicas in evaluation mode", evaluated),
        ("all replicas but the root in evaluation mode", [shares.alone[0], *evaluated[1:]]),
    ):
        yield (
            words,
            combined(parts, shares.weights)
            | {"output": joined(parts), "buffer": parts[0]["buffer"]},
        )


def of_rounding(shares: Shares) -> Iterator[Variant]:
    """Numbers that lost digits on their way between replicas."""
    for dtype in ("float32", "float16"):
        yield (
            f"numbers rounded to {dtype} on the way to the root",
            {
                kind: {
                    name: np.asarray(value, dtype).astype(np.float64)
                    if np.asarray(value).dtype.kind == "f"
                    else value
                    for name, value in tensors.items()
                }
                for kind, tensors in shares.wanted.items()
                if "update" not in kind
            },
        )


def of_update_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Yield updates times a number, as by a learning rate or a decay that grows with the replicas."""
    state = shares.reference.network.neutral_state()
    for kind in (kind for kind in shares.wanted if kind.startswith("update") and kind in came):
        wanted, found = shares.wanted[kind], came[kind]
        if not same_shapes(wanted, found):
            continue
        update, parameter = (
            {"gradient": wanted},
            {"gradient": {name: state[name] for name in wanted}},
        )
        factor = float(fitted([update], {"gradient": found})[0])
        yield (
            f"updates times {factor:.6g} (the learning rate)",
            {kind: combined([update], [factor])["gradient"]},
        )
        rest = {"gradient": {name: found[name] - value for name, value in wanted.items()}}
        decay = float(fitted([parameter], rest)[0])
        words = f"parameters that each update multiplies by {1 + decay:.6g} (a decay that replicas repeat)"
        yield words, {kind: combined([update, parameter], [1.0, decay])["gradient"]}


def ways_to_run(shares: Shares) -> Iterator[tuple[str, list[Step]]]:
    """Yield the runnable ways: shares within the whole batch, alone, and alone with equal masks."""
    for words, name in (("", "together"), (ALONE, "alone"), (f"{ALONE}, and {ALIKE}", "alike")):
        try:
            yield words, getattr(shares, name)
        except DeliralikeError:  # a share is too small for a layer
            continue


def of_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Loss or gradient times a number."""
    count, samples = shares.count, shares.samples
    named = {
        f"times {count}: summed over the replicas, not averaged": count,
        f"divided by {count}: by the number of replicas once more": 1 / count,
        f"times {count * count}: by the number of replicas twice": count * count,
        f"times {samples}: a sum over samples, not a mean": samples,
        f"divided by {samples}: by the number of samples once more": 1 / samples,
    }
    fitting = float(fitted([shares.wanted], came)[0])
    for words, factor in (*named.items(), (f"times {fitting:.6g}", fitting)):
        both = combined([shares.wanted], [factor])
        yield f"gradients {words}", {"gradient": both["gradient"]}
        yield f"loss {words}", {"loss": both["loss"]}


def of_fitted_weights(shares: Shares, came: Step) -> Iterator[Variant]:
    """Weights of shares that no convention names."""
    for whose, parts in ways_to_run(shares):
        weights = fitted(parts, came)
        words = f"shares that count {numbers(weights)} instead of {numbers(shares.weights)}"
        yield ", and ".join(text for text in (whose, words) if text), combined(parts, weights)


def _policies(shares: Shares, parts: Sequence[Step]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What may become of running statistics that each share moved by itself."""
    buffers = [part["buffer"] for part in parts]
    sizes = np.array(shares.sizes) / shares.samples
    yield "the root's", buffers[0]
    yield "averaged by the sizes of the shares", _averaged(buffers, sizes)
    yield "averaged evenly", _averaged(buffers, np.full(shares.count, 1 / shares.count))
    for r in range(1, shares.count):
        yield f"those of replica {r}", buffers[r]
    moved: dict[str, Any] | None = None
    for rows in shares.rows:
        moved = shares.run(shares.chosen(rows), first_sample=int(rows[0]), buffers=moved)["buffer"]
    yield "moved by one share after the other", moved or {}


def _averaged(buffers: Sequence[dict[str, Any]], weights: np.ndarray) -> dict[str, Any]:
    """Floating buffers averaged, others those of the root."""

    def average(name: str) -> Any:
        return sum(weight * each[name] for weight, each in zip(weights, buffers, strict=True))

    return {
        name: average(name) if value.dtype.kind == "f" else value
        for name, value in buffers[0].items()
    }
