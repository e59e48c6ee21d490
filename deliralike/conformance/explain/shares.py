"""The reference on shares of a batch, one after the other: what each gives, and what they would give together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from deliralike import nest, random
from deliralike.accumulation import samples_of
from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.findings import MATCH
from deliralike.conformance.one_step import SEED, Step
from deliralike.conformance.replica_changes import of_share
from deliralike.conformance.subject import Subject
from deliralike.errors import DeliralikeError
from deliralike.parallel import partition

Variant = tuple[str, Step]  # a way of going wrong in words, and what it gives, of the kinds that it speaks of
Rows = slice | np.ndarray


class Shares:
    """The reference's network on parts of a batch, without any replica.

    Attributes:
        sizes: The samples of each share.
        rows: The samples of each share by number.
        weights: What each share's own mean counts in the loss of the whole batch: its part of the denominator.
    """

    def __init__(self, reference: Subject, batch: tuple[Any, ...], count: int, wanted: Step) -> None:
        """For one number of replicas, beside what the whole batch gives."""
        self.reference, self.batch, self.count, self.wanted = reference, batch, count, wanted
        self.samples = samples_of(batch)
        self.sizes = partition(self.samples, count)
        self.rows = [np.arange(stop - size, stop) for size, stop in zip(self.sizes, np.cumsum(self.sizes), strict=True)]

    # Runs ------------------------------------------------------------------------------------------------------------

    def run(self, batch: tuple[Any, ...], rows: Rows | None = None, first_sample: int = 0,
            buffers: dict[str, Any] | None = None) -> Step:  # fmt: skip
        """Loss, gradient, outputs and buffers of the reference on a batch.

        Args:
            rows: The loss is that of these samples alone, though the network sees all.
            first_sample: Where the batch begins in the stream of masks.
            buffers: What they are before; the network's own when None.
        """
        network = self.reference.network
        before = network.neutral_state()
        try:
            network.load_neutral_state(before | (buffers or {}))
            with network.training_mode(True), random.portable(SEED, 0, first_sample):
                found = network.backend.gradients(partial(_answered, self.reference.loss, rows), network, *batch)
            after = network.neutral_state()
        finally:
            network.load_neutral_state(before)
        return {
            "loss": {"loss": found.loss},
            "gradient": {name: _or_zeros(found.parameters.get(name), before[name]) for name in self.wanted["gradient"]},
            "output": dict(nest.leaves_with_paths(found.beside[0], "output")),
            "buffer": {name: after[name] for name in self.wanted["buffer"]},
        }

    def chosen(self, rows: Rows) -> tuple[Any, ...]:
        """Samples of the batch."""
        return taken(self.batch, rows, self.samples)

    @cached_property
    def together(self) -> list[Step]:
        """Each share's own mean, where the network sees the whole batch."""
        return [self.run(self.batch, slice(rows[0], rows[-1] + 1)) for rows in self.rows]

    @cached_property
    def alone(self) -> list[Step]:
        """Each share by itself."""
        return [self.run(self.chosen(rows), first_sample=int(rows[0])) for rows in self.rows]

    @cached_property
    def alike(self) -> list[Step]:
        """Each share by itself, all with the masks of the first samples."""
        return [self.run(self.chosen(rows)) for rows in self.rows]

    @cached_property
    def weights(self) -> np.ndarray:
        """See the class. Where the loss does not consist of its shares' means, what the sizes of the shares say."""
        weights = fitted(self.together, self.wanted)
        given = {"gradient": combined(self.together, weights)["gradient"]}
        if not close(given["gradient"], self.wanted["gradient"]):
            return np.array(self.sizes) / self.samples
        return weights


def _answered(loss: Any, rows: Any, network: Any, *batch: Any) -> tuple[Any, Any]:
    answering = _Answering(network, batch[:-1], rows)
    share = batch if rows is None else taken(batch, rows, None)
    value = of_share(loss)(answering, *share)
    return (value[0] if isinstance(value, tuple) else value), answering.outputs


class _Answering:
    """A network that sees the whole batch whatever it is given, and answers for some samples of it."""

    def __init__(self, network: Any, inputs: tuple[Any, ...], rows: Any) -> None:
        self._network, self._inputs, self._rows, self.outputs = network, inputs, rows, None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.outputs = self._network(*self._inputs)
        return self.outputs if self._rows is None else taken(self.outputs, self._rows, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


def taken(values: Any, rows: Any, samples: int | None) -> Any:
    """Samples of every array of a nest; where a number of them is given, of arrays that have as many."""

    def leaf(value: Any) -> Any:
        shape = getattr(value, "shape", ())
        return value[rows] if shape and samples in (None, shape[0]) else value

    return nest.map(leaf, values)


def _or_zeros(gradient: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    return np.zeros_like(like) if gradient is None else gradient


# Combinations --------------------------------------------------------------------------------------------------------


def combined(parts: Sequence[Step], weights: Sequence[float] | np.ndarray) -> Step:
    """Loss and gradient of several parts, weighted."""
    return {
        kind: {name: sum(weight * part[kind][name] for weight, part in zip(weights, parts, strict=True))
               for name in parts[0][kind]}
        for kind in ("loss", "gradient") if kind in parts[0]
    }  # fmt: skip


def fitted(parts: Sequence[Step], to: Step) -> np.ndarray:
    """The weights with which the parts' gradients come nearest to a gradient."""
    columns = np.stack([_vector(part["gradient"]) for part in parts], axis=1)
    return np.linalg.lstsq(columns, _vector(to["gradient"]), rcond=None)[0]


def _vector(tensors: dict[str, Any]) -> np.ndarray:
    return np.concatenate([np.ravel(tensors[name]) for name in sorted(tensors)])


def close(wanted: dict[str, Any], came: dict[str, Any]) -> bool:
    """Whether two gradients are the same as a whole."""
    return relative_difference(_vector(wanted), _vector(came)) <= MATCH


def numbers(values: Sequence[float] | np.ndarray) -> str:
    """``"0.5, 0.25"``."""
    return ", ".join(f"{value:.6g}" for value in values)


# Ways of going wrong -------------------------------------------------------------------------------------------------

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
    yield "each share's mean divided by the number of samples of the batch", np.full(count, 1 / shares.samples)
    for r in range(count):
        yield f"only the share of replica {r} counts, as if it were the whole batch", each[r]
        yield f"only the share of replica {r} counts, by its part", right * each[r]
        yield f"the share of replica {r} does not count", right * (1 - each[r])
        rest = right * (1 - each[r])
        yield f"the share of replica {r} does not count, the others are averaged", rest / (rest.sum() or 1.0)
        yield f"the share of replica {r} counts twice", right * (1 + each[r])


def of_weights(shares: Shares) -> Iterator[Variant]:
    """Shares that count something else, with the statistics of the whole batch or their own."""
    for whose, parts in ways_to_run(shares):
        for words, weights in weightings(shares):
            cause = ", and ".join(text for text in (whose, words) if text)
            if cause:
                yield cause, combined(parts, weights)
        if whose:
            yield whose, {"output": _joined(parts)}
            for words, buffers in _policies(shares, parts):
                yield f"{whose}; the running statistics are {words}", {"buffer": buffers}


def ways_to_run(shares: Shares) -> Iterator[tuple[str, list[Step]]]:
    """Shares within the whole batch, by themselves, and by themselves with equal masks; those that can be run."""
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


def _joined(parts: Sequence[Step]) -> dict[str, Any]:
    return {
        name: np.concatenate([np.atleast_1d(part["output"][name]) for part in parts]) for name in parts[0]["output"]
    }


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
    return {name: value if value.dtype.kind != "f" else sum(w * each[name] for w, each in zip(weights, buffers, strict=True))
            for name, value in buffers[0].items()}  # fmt: skip


# Other samples -------------------------------------------------------------------------------------------------------


def of_samples(shares: Shares) -> Iterator[Variant]:
    """Samples lost, doubled or in another order."""
    for words, rows in {**_other_samples(shares), **orders(shares)}.items():
        batch = shares.chosen(rows)
        yield words, shares.run(batch)
        parts, sizes = [], partition(len(rows), shares.count)
        for stop, size in zip(np.cumsum(sizes), sizes, strict=True):
            parts.append(partial(shares.run, taken(batch, slice(stop - size, stop), len(rows)), None, int(stop - size)))
        yield from _alone(words, parts, sizes)


def _alone(words: str, runs: Sequence[Callable[[], Step]], sizes: Sequence[int]) -> Iterator[Variant]:
    try:
        parts = [run() for run in runs]
    except DeliralikeError:  # a share is too small for a layer
        return
    whose = f"{words}; {ALONE}"
    yield f"{whose}, and weighted by samples", combined(parts, np.array(sizes) / sum(sizes))
    yield f"{whose}, and the mean of the shares' means", combined(parts, np.full(len(sizes), 1 / len(sizes)))
    yield whose, {"output": _joined(parts), "buffer": parts[0]["buffer"]}


def of_labels(shares: Shares) -> Iterator[Variant]:
    """Outputs or labels in another order, so that they do not belong together any more."""
    *inputs, target = shares.batch
    for words, rows in orders(shares).items():
        back = np.argsort(rows)
        found = shares.run((*inputs, taken(target, back, shares.samples)))
        found["output"] = taken(shares.wanted["output"], rows, shares.samples)
        yield f"outputs gathered with {words}", found
        yield f"labels handed out with {words}", shares.run((*inputs, taken(target, rows, shares.samples)))


def of_any_order(shares: Shares, came: Step) -> Iterator[Variant]:
    """Outputs matched one by one."""
    for name, wanted in shares.wanted["output"].items():
        found = came["output"].get(name)
        if np.ndim(wanted) and np.shape(found) == np.shape(wanted):
            flat, other = np.reshape(wanted, (len(wanted), -1)), np.reshape(found, (len(wanted), -1))
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
        "the samples of each share in reversed order": np.concatenate([each[::-1] for each in rows]),
        "the first share last": np.concatenate([*rows[1:], rows[0]]),
        "the last share first": np.concatenate([rows[-1], *rows[:-1]]),
        "the samples one place early": np.roll(place, -1),
        "the samples one place late": np.roll(place, 1),
    }


def _other_samples(shares: Shares) -> dict[str, np.ndarray]:
    place, count, rows = np.arange(shares.samples), shares.count, shares.rows
    missing, ends = -len(place) % count, np.cumsum(shares.sizes)
    found = {
        f"the remainder of {len(place) % count} samples dropped": place[: len(place) - len(place) % count],
        "the last sample dropped": place[:-1],
        "the first sample dropped": place[1:],
        "the batch filled up with its last sample": np.append(place, place[-1:].repeat(missing)),
        "the batch filled up with its first samples": np.append(place, place[:missing]),
        "the batch filled up with its last samples": np.append(place, place[len(place) - missing :]),
        "the last sample of each share dropped": np.delete(place, ends - 1),
        "the last sample of each share but the last dropped": np.delete(place, ends[:-1] - 1),
        "the first sample of each share but the first dropped": np.delete(place, ends[:-1]),
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
