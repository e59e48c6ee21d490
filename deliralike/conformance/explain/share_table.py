"""What goes wrong with shares of a batch, as tables: what they count, and which samples they hold.

Each way is executed by the reference, without any replica.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deliralike.conformance.by_name import only
from deliralike.conformance.explain.share_norms import LOCAL
from deliralike.conformance.explain.shares import (
    Shares,
    Variant,
    combined,
    fitted,
    joined,
    least_squares,
    same_shapes,
)
from deliralike.conformance.kinds import Tensors
from deliralike.conformance.one_step import Step
from deliralike.errors import DeliralikeError

# What shares count
# -----------------------------------------------------------------------------


def _weightings(shares: Shares) -> Tensors:
    """What shares may count for, in words; the right weights first, without words."""
    count, right, sizes = shares.count, shares.weights, np.array(shares.sizes)
    found = {
        "": right,
        "the mean of the shares' means": np.full(count, 1 / count),
        "the sum of the shares' means": np.ones(count),
        "each share weighted by its samples, not by its own denominator": sizes / shares.samples,
    }
    for r, own in enumerate(np.eye(count)):
        found[f"only the share of replica {r} counts, as if it were the whole batch"] = own
    return found


def of_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Loss or gradient times a number."""
    count = shares.count
    fitting = float(fitted([shares.wanted], came)[0])
    factors = {
        f"times {count}: summed over the replicas, not averaged": count,
        f"divided by {count}: by the number of replicas once more": 1 / count,
        f"times {fitting:.6g}": fitting,
    }
    for words, factor in factors.items():
        both = combined([shares.wanted], [factor])
        yield f"loss and gradients {words}", both
        yield f"gradients {words}", only(both, ["gradient"])
        yield f"loss {words}", only(both, ["loss"])


def of_weights(shares: Shares) -> Iterator[Variant]:
    """Shares that count something else, with the statistics of the whole batch or their own."""
    for whose, parts in _ways_to_run(shares):
        for words, weights in _weightings(shares).items():
            if whose or words:
                yield ", and ".join(filter(None, (whose, words))), combined(parts, weights)
        if whose:
            yield whose, {"output": joined(parts), "buffer": parts[0]["buffer"]}


def _ways_to_run(shares: Shares) -> Iterator[tuple[str, list[Step]]]:
    """Shares within the whole batch, and alone where they are not too small for a layer."""
    yield "", shares.together
    try:
        alone = shares.alone
    except DeliralikeError:
        return
    yield LOCAL, alone


# Which samples they hold
# -----------------------------------------------------------------------------


def _samples(shares: Shares) -> Tensors:
    """Samples lost or doubled, in words."""
    place, rows, count = np.arange(shares.samples), shares.rows, shares.count
    left, missing = len(place) % count, -len(place) % count
    smallest = shares.sizes[-1]
    equal = np.concatenate([own[:smallest] for own in rows])
    dealt = np.concatenate([place[replica::count] for replica in range(count)])
    found = {
        f"the remainder of {left} samples dropped": place[: len(place) - left],
        "the last samples of shares larger than the smallest dropped": equal,
        "the batch filled up with its last sample": np.append(place, place[-1:].repeat(missing)),
        "the batch filled up with its first samples": np.append(place, place[:missing]),
        f"the samples dealt out in turn (every {count}th to one replica)": dealt,
    }
    for r, own in enumerate(rows):
        found[f"every replica sees the share of replica {r}"] = np.tile(own, count)
    return {words: each for words, each in found.items() if len(each) > 1}


def of_samples(shares: Shares) -> Iterator[Variant]:
    """Samples lost, doubled, or in another order."""
    for words, rows in _samples(shares).items():
        if len(rows) < shares.samples:
            yield f"in the loss alone: {words}", shares.run(shares.batch, rows)
        yield words, shares.run(shares.chosen(rows))


# What becomes of it
# -----------------------------------------------------------------------------


def of_update_factors(shares: Shares, came: Step) -> Iterator[Variant]:
    """Updates times a number, as by a learning rate that grows with the replicas."""
    for kind, wanted in only(shares.wanted, came).items():
        found = came[kind]
        if not kind.startswith("update") or not same_shapes(wanted, found):
            continue
        factor = float(least_squares([wanted], found)[0])
        scaled = {name: factor * value for name, value in wanted.items()}
        yield f"updates times {factor:.6g} (the learning rate)", {kind: scaled}
