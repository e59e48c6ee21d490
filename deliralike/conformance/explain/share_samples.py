"""Other samples than those of the batch: lost, doubled, filled up, or in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from deliralike import nest
from deliralike.conformance.explain.share_weights import ALONE
from deliralike.conformance.explain.shares import (
    Shares,
    Variant,
    combined,
    joined,
    numbers,
    same_shapes,
    taken,
)
from deliralike.conformance.one_step import Step
from deliralike.errors import DeliralikeError
from deliralike.parallel import partition


def of_samples(shares: Shares) -> Iterator[Variant]:
    """Samples lost, doubled or in another order."""
    for words, rows in {**_other_samples(shares), **orders(shares)}.items():
        batch = shares.chosen(rows)
        yield words, shares.run(batch)
        parts, sizes = [], partition(len(rows), shares.count)
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            parts.append(
                partial(
                    shares.run,
                    taken(batch, slice(stop - size, stop), len(rows)),
                    None,
                    int(stop - size),
                )
            )
        yield from _alone(words, parts, sizes)


def _alone(
    words: str, runs: Sequence[Callable[[], Step]], sizes: Sequence[int]
) -> Iterator[Variant]:
    try:
        parts = [run() for run in runs]
    except DeliralikeError:  # a share is too small for a layer
        return
    whose = f"{words}; {ALONE}"
    yield f"{whose}, and weighted by samples", combined(parts, np.array(sizes) / sum(sizes))
    yield (
        f"{whose}, and the mean of the shares' means",
        combined(parts, np.full(len(sizes), 1 / len(sizes))),
    )
    yield whose, {"output": joined(parts), "buffer": parts[0]["buffer"]}


def of_labels(shares: Shares) -> Iterator[Variant]:
    """Outputs or labels in another order, so that they do not belong together any more."""
    *inputs, target = shares.batch
    for words, rows in orders(shares).items():
        back = np.argsort(rows)
        found = shares.run((*inputs, taken(target, back, shares.samples)))
        found["output"] = taken(shares.wanted["output"], rows, shares.samples)
        yield f"outputs gathered with {words}", found
        yield (
            f"labels handed out with {words}",
            shares.run((*inputs, taken(target, rows, shares.samples))),
        )


def of_any_order(shares: Shares, came: Step) -> Iterator[Variant]:
    """Outputs matched one by one."""
    for name, wanted in shares.wanted["output"].items():
        if np.ndim(wanted) and same_shapes({name: wanted}, came["output"]):
            flat, other = (
                np.reshape(each, (len(wanted), -1)) for each in (wanted, came["output"][name])
            )
            rows = np.square(other[:, None] - flat[None]).sum(-1).argmin(1)
            words = f"outputs gathered in the order {numbers(rows)}"
            yield words, {"output": taken(shares.wanted["output"], rows, shares.samples)}


def orders(shares: Shares) -> dict[str, np.ndarray]:
    """Orders of samples, in words."""
    place, rows, count = np.arange(shares.samples), shares.rows, shares.count
    dealt = np.concatenate([place[replica::count] for replica in range(count)])
    return {
        f"the samples dealt out in turn (every {count}th to one replica)": dealt,
        f"the samples interleaved from {count} shares": np.argsort(dealt),
        "the shares in reversed order": np.concatenate(rows[::-1]),
        "the samples in reversed order": place[::-1],
        "the samples of each share in reversed order": np.concatenate(
            [each[::-1] for each in rows]
        ),
        "the first share last": np.concatenate([*rows[1:], rows[0]]),
        "the last share first": np.concatenate([rows[-1], *rows[:-1]]),
        "the samples one place early": np.roll(place, -1),
        "the samples one place late": np.roll(place, 1),
    }


def _other_samples(shares: Shares) -> dict[str, np.ndarray]:
    place, count, rows = np.arange(shares.samples), shares.count, shares.rows
    missing, ends = -len(place) % count, np.cumsum(shares.sizes)
    found = {
        f"the remainder of {len(place) % count} samples dropped": place[
            : len(place) - len(place) % count
        ],
        "the last sample dropped": place[:-1],
        "the first sample dropped": place[1:],
        "the batch filled up with its last sample": np.append(place, place[-1:].repeat(missing)),
        "the batch filled up with its first samples": np.append(place, place[:missing]),
        "the batch filled up with its last samples": np.append(
            place, place[len(place) - missing :]
        ),
        "the last sample of each share dropped": np.delete(place, ends - 1),
        "the last sample of each share but the last dropped": np.delete(place, ends[:-1] - 1),
        "the first sample of each share but the first dropped": np.delete(place, ends[:-1]),
        "shares cut to the size of the smallest": np.concatenate(
            [each[: shares.sizes[-1]] for each in rows]
        ),
        "shares filled up to the size of the largest with their last sample": np.concatenate(
            [np.append(each, each[-1:].repeat(shares.sizes[0] - len(each))) for each in rows]
        ),
        "shares that overlap by a sample": np.insert(place, ends[:-1], ends[:-1] - 1),
        "every replica sees the whole batch": np.tile(place, count),
        "every sample twice": place.repeat(2),
    }
    for r, own in enumerate(rows):
        found[f"every replica sees the share of replica {r}"] = np.concatenate(
            [np.resize(own, len(each)) for each in rows]
        )
        found[f"every replica sees the whole share of replica {r}"] = np.tile(own, count)
        if count > 1:
            found[f"the samples of replica {r} are missing"] = np.delete(place, own)
            found[f"the samples of replica {r} come twice"] = np.insert(place, own[-1] + 1, own)
    return {words: each for words, each in found.items() if len(each) > 1}


def of_zeros(shares: Shares) -> Iterator[Variant]:
    """Yield shares that are filled up with samples of zeros.

    These count in statistics, and in the loss or not.
    """
    short = [size < shares.sizes[0] for size in shares.sizes]
    at_end = [shares.samples] * (-shares.samples % shares.count)
    in_shares = [
        int(rows[-1]) + 1 for rows, is_short in zip(shares.rows, short, strict=True) if is_short
    ]
    for words, places in (("the batch", at_end), ("the shares", in_shares)):
        batch = tuple(
            nest.map(partial(_with_zeros, shares.samples, places), part) for part in shares.batch
        )
        real = np.delete(
            np.arange(shares.samples + len(places)), np.array(places) + np.arange(len(places))
        )
        yield (
            f"{words} filled up with zeros that count in the batch statistics",
            shares.run(batch, real),
        )
        yield f"{words} filled up with zeros that count in the loss as well", shares.run(batch)


def _with_zeros(samples: int, places: Sequence[int], value: Any) -> Any:
    is_split = isinstance(value, np.ndarray) and value.ndim and len(value) == samples
    return np.insert(value, list(places), 0, axis=0) if is_split else value
