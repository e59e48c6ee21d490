"""What goes wrong with shares of a batch, as tables: what they count, and which samples they hold.

Each way is executed by the reference, without any replica.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain.share_norms import LOCAL
from deliralike.conformance.explain.shares import (
    Shares,
    Variant,
    combined,
    fitted,
    joined,
    least_squares,
    numbers,
    rounded,
    same_shapes,
    taken,
)
from deliralike.conformance.one_step import Step
from deliralike.errors import DeliralikeError

# What shares count
# -----------------------------------------------------------------------------


def _weightings(shares: Shares) -> dict[str, np.ndarray]:
    """What shares may count for, in words; the right weights first, without words."""
    count, right, sizes = shares.count, shares.weights, np.array(shares.sizes)
    found = {
        "": right,
        "the mean of the shares' means": np.full(count, 1 / count),
        "the sum of the shares' means": np.ones(count),
        "each share weighted by its samples, not by its own denominator": sizes / shares.samples,
        "shares weighted by their sizes in reversed order": sizes[::-1] / shares.samples,
    }
    for r, own in enumerate(np.eye(count)):
        rest = right * (1 - own)
        found |= {
            f"only the share of replica {r} counts, as if it were the whole batch": own,
            f"only the share of replica {r} counts, by its part": right * own,
            f"the share of replica {r} does not count": rest,
            f"the share of replica {r} does not count, the others are averaged": (
                rest / (rest.sum() or 1.0)
            ),
        }
    return found


def of_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Loss or gradient times a number."""
    count, samples = shares.count, shares.samples
    fitting = float(fitted([shares.wanted], came)[0])
    factors = {
        f"times {count}: summed over the replicas, not averaged": count,
        f"divided by {count}: by the number of replicas once more": 1 / count,
        f"times {samples}: a sum over samples, not a mean": samples,
        f"divided by {samples}: by the number of samples once more": 1 / samples,
        f"times {fitting:.6g}": fitting,
    }
    for words, factor in factors.items():
        both = combined([shares.wanted], [factor])
        yield f"loss and gradients {words}", both
        yield f"gradients {words}", {"gradient": both["gradient"]}
        yield f"loss {words}", {"loss": both["loss"]}


def of_weights(shares: Shares) -> Iterator[Variant]:
    """Shares that count something else, with the statistics of the whole batch or their own."""
    for whose, parts in _ways_to_run(shares):
        for words, weights in _weightings(shares).items():
            if whose or words:
                yield _and(whose, words), combined(parts, weights)
        if whose:
            yield whose, {"output": joined(parts), "buffer": parts[0]["buffer"]}


def of_fitted_weights(shares: Shares, came: Step) -> Iterator[Variant]:
    """Weights of shares that no convention names."""
    for whose, parts in _ways_to_run(shares):
        weights = fitted(parts, came)
        words = f"shares that count {numbers(weights)} instead of {numbers(shares.weights)}"
        yield _and(whose, words), combined(parts, weights)


def _ways_to_run(shares: Shares) -> Iterator[tuple[str, list[Step]]]:
    """Shares within the whole batch, and alone where they are not too small for a layer."""
    yield "", shares.together
    try:
        alone = shares.alone
    except DeliralikeError:
        return
    yield LOCAL, alone


def _and(*texts: str) -> str:
    return ", and ".join(text for text in texts if text)


# Which samples they hold
# -----------------------------------------------------------------------------


def _orders(shares: Shares) -> dict[str, np.ndarray]:
    """Orders of samples, in words."""
    place, rows, count = np.arange(shares.samples), shares.rows, shares.count
    dealt = np.concatenate([place[replica::count] for replica in range(count)])
    return {
        f"the samples dealt out in turn (every {count}th to one replica)": dealt,
        f"the samples interleaved from {count} shares": np.argsort(dealt),
        "the shares in reversed order": np.concatenate(rows[::-1]),
        "the samples in reversed order": place[::-1],
        "the samples one place early": np.roll(place, -1),
        "the samples one place late": np.roll(place, 1),
    }


def _samples(shares: Shares) -> dict[str, np.ndarray]:
    """Samples lost or doubled, in words."""
    place, rows, count = np.arange(shares.samples), shares.rows, shares.count
    left, missing = len(place) % count, -len(place) % count
    smallest = shares.sizes[-1]
    found = {
        f"the remainder of {left} samples dropped": place[: len(place) - left],
        "the last sample dropped": place[:-1],
        "the last samples of shares larger than the smallest dropped": np.concatenate(
            [own[:smallest] for own in rows]
        ),
        "the last sample of each share dropped": np.concatenate([own[:-1] for own in rows]),
        "the batch filled up with its last sample": np.append(place, place[-1:].repeat(missing)),
        "the batch filled up with its first samples": np.append(place, place[:missing]),
        "every replica sees the whole batch": np.tile(place, count),
    }
    for r, own in enumerate(rows):
        resized = [np.resize(own, size) for size in shares.sizes]
        found[f"every replica sees the share of replica {r}"] = np.concatenate(resized)
        found[f"every replica sees the whole share of replica {r}"] = np.tile(own, count)
        found[f"the samples of replica {r} are missing"] = np.delete(place, own)
    return {words: each for words, each in found.items() if len(each) > 1}


def of_samples(shares: Shares) -> Iterator[Variant]:
    """Samples lost, doubled, in another order, or filled up with zeros."""
    lost = _samples(shares)
    for words, rows in lost.items():
        if len(rows) < shares.samples:
            yield f"in the loss alone: {words}", shares.run(shares.batch, rows)
    for words, rows in {**lost, **_orders(shares)}.items():
        yield words, shares.run(shares.chosen(rows))
    missing, samples = -shares.samples % shares.count, shares.samples
    filled = tuple(nest.map(partial(_with_zeros, samples, missing), part) for part in shares.batch)
    words = "the batch filled up with zeros that count in the"
    yield f"{words} batch statistics", shares.run(filled, np.arange(samples))
    yield f"{words} loss as well", shares.run(filled)


def of_labels(shares: Shares) -> Iterator[Variant]:
    """Outputs or labels in another order, so that they do not belong together any more."""
    *inputs, target = shares.batch
    for words, rows in _orders(shares).items():
        back = np.argsort(rows)
        found = shares.run((*inputs, taken(target, back, shares.samples)))
        found["output"] = taken(shares.wanted["output"], rows, shares.samples)
        yield f"outputs gathered with {words}", found
        labels = taken(target, rows, shares.samples)
        yield f"labels handed out with {words}", shares.run((*inputs, labels))


def _with_zeros(samples: int, missing: int, value: Any) -> Any:
    is_split = isinstance(value, np.ndarray) and value.ndim and len(value) == samples
    return np.insert(value, [samples] * missing, 0, axis=0) if is_split else value


# How they are computed, and what becomes of it
# -----------------------------------------------------------------------------


def of_modes(shares: Shares) -> Iterator[Variant]:
    """Replicas that compute in evaluation mode."""
    evaluated = []
    for rows in shares.rows:
        first = int(rows[0])
        evaluated.append(shares.run(shares.chosen(rows), first_sample=first, training=False))
    modes = {"all replicas in evaluation mode": evaluated}
    for _, parts in list(_ways_to_run(shares))[1:]:
        modes["all replicas but the root in evaluation mode"] = [parts[0], *evaluated[1:]]
    for words, parts in modes.items():
        beside = {"output": joined(parts), "buffer": parts[0]["buffer"]}
        yield words, combined(parts, shares.weights) | beside


def of_rounding(shares: Shares) -> Iterator[Variant]:
    """Numbers that lost digits on their way between replicas."""
    for dtype in ("float32", "float16"):
        found = {kind: rounded(tensors, dtype) for kind, tensors in shares.wanted.items()}
        short = {kind: tensors for kind, tensors in found.items() if "update" not in kind}
        yield f"numbers rounded to {dtype} on the way to the root", short


def of_counters(shares: Shares, came: Step) -> Iterator[Variant]:
    """Batches that are counted another number of times."""
    before, after = shares.reference.network.neutral_state(), shares.wanted["buffer"]
    counters = [name for name, value in after.items() if value.dtype.kind != "f"]
    counters = [name for name in counters if name in came["buffer"]]
    if counters:
        times = int(np.max([np.max(came["buffer"][name] - before[name]) for name in counters]))
        counted = {name: before[name] + times * (after[name] - before[name]) for name in counters}
        yield f"batches counted {times} times", {"buffer": after | counted}


def of_update_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Updates times a number, as by a learning rate or a decay that grows with the replicas."""
    state = shares.reference.network.neutral_state()
    for kind in (kind for kind in shares.wanted if kind.startswith("update") and kind in came):
        wanted, found = shares.wanted[kind], came[kind]
        if not same_shapes(wanted, found):
            continue
        parameters = {name: state[name] for name in wanted}
        factor = float(least_squares([wanted], found)[0])
        scaled = {name: factor * value for name, value in wanted.items()}
        yield f"updates times {factor:.6g} (the learning rate)", {kind: scaled}
        rest = {name: found[name] - value for name, value in wanted.items()}
        decay = float(least_squares([parameters], rest)[0])
        words = f"parameters that each update multiplies by {1 + decay:.6g}"
        decayed = {name: value + decay * parameters[name] for name, value in wanted.items()}
        yield f"{words} (a decay that replicas repeat)", {kind: decayed}
