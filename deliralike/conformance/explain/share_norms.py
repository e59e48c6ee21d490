"""Batch norms over shares as tables: what each share's sums count, and what is remembered of them.

The reference runs on the whole batch, and each of its batch norms is written out in `nn` with the
statistics of a convention. What a norm is (axis of channels, epsilon, learned tensors, rates of its
running statistics) is read off its own call, so that norms of any class have their place here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from types import SimpleNamespace
from typing import Any

import numpy as np

from deliralike.conformance.agreement import relative_difference
from deliralike.conformance.by_name import only, owner, without
from deliralike.conformance.explain.norms import eps_of
from deliralike.conformance.explain.shares import Shares, Variant, close, least_squares
from deliralike.conformance.kinds import Named
from deliralike.conformance.one_step import Step

LOCAL = "each share's batch statistics taken by itself, not synchronised"
_EXACT = 1e-9  # of what is read off
_SLOWEST = 1e-8  # rate of a running statistic
_USUAL = {"axes": (1,), "centred": True, "deviation": ""}  # of rows, one for each channel


@dataclass(frozen=True)
class _Convention:
    """The statistics by which shares are normalised.

    Attributes:
        weights: What the sum of a share (column) counts in the mean that another (row) takes.
        of_squares: The same for squares in the variance; `weights` where None.
        about_own: Whether the variance is taken about each share's own mean.
        forward_alone: Whether the sums of the other shares let no gradient pass.
    """

    weights: np.ndarray
    about_own: bool = False
    forward_alone: bool = False
    of_squares: np.ndarray | None = None


def _conventions(counts: np.ndarray) -> dict[str, _Convention]:
    """Known conventions by the numbers of values in the shares; the right one first."""
    shares = len(counts)
    every = np.ones((shares, shares))
    right, of_means = every / counts.sum(), every / counts / shares
    norm = "synchronised batch norm takes"
    alone = "batch norm synchronised forward alone: no gradient through the others' statistics"
    found = {
        "": _Convention(right),
        LOCAL: _Convention(np.diag(1.0 / counts)),
        f"{norm} the mean of the shares' statistics, however large they are": _Convention(of_means),
        f"{norm} the mean of the shares' means, however large they are": _Convention(
            of_means, of_squares=right
        ),
        f"{norm} the mean of the shares' variances": _Convention(right, about_own=True),
        f"{norm} the mean of the shares' means and variances, however large they are": _Convention(
            of_means, about_own=True
        ),
        alone: _Convention(right, forward_alone=True),
    }
    for r, own in enumerate(np.eye(shares)):
        words = f"batch statistics of the share of replica {r} taken for all"
        found[words] = _Convention(every * own / counts[r])
    return found


# In the place of `nn`, for arrays of the host.
_HOST = SimpleNamespace(
    matmul=np.matmul, constant=lambda value, like: value, stop_gradient=np.asarray
)


@dataclass(frozen=True)
class _Sums:
    """Counts of values, and their sums and sums of squares.

    Shapes:
        Counts are ``(shares, 1)``, sums and squares ``(shares, channels)``.
    """

    counts: np.ndarray
    sums: Any
    squares: Any

    def statistics(self, convention: _Convention, nn: Any = _HOST) -> tuple[Any, Any]:
        """The mean and the biased variance that each share takes."""

        def mixed(weights: np.ndarray, values: Any) -> Any:
            if not convention.forward_alone:
                return nn.matmul(nn.constant(weights, like=values), values)
            own = np.diag(np.diag(weights))
            others = nn.matmul(nn.constant(weights - own, like=values), values)
            return nn.matmul(nn.constant(own, like=values), values) + nn.stop_gradient(others)

        counts = nn.constant(self.counts, like=self.sums)
        mean = mixed(convention.weights, self.sums)
        about = self.sums / counts if convention.about_own else mean
        centred = self.squares - (self.sums * 2.0 - about * counts) * about
        weights = convention.weights if convention.of_squares is None else convention.of_squares
        return mean, mixed(weights, centred)

    def remembered(self, convention: _Convention) -> tuple[Any, Any]:
        """The mean and the unbiased variance that each share would remember."""
        mean, var = self.statistics(convention)
        totals = (convention.weights > 0.0) @ self.counts
        return mean, var * (totals / (totals - 1.0))


@dataclass(frozen=True)
class _Norm:
    """A batch norm.

    Attributes:
        axis: Of the channels.
        values: Those of one sample and channel.
        eps: What is added to the variance.
        weight, bias: Names of what is learned; empty where nothing is.
        rates: The rate of each running statistic by name, and whether it is a variance.
    """

    axis: int
    values: int
    eps: float
    weight: str
    bias: str
    rates: Mapping[str, tuple[float, bool]] = field(default_factory=dict)

    def counts(self, sizes: Sequence[int]) -> np.ndarray:
        """The values of each share and channel."""
        return np.array(sizes)[:, None] * float(self.values)

    def output(
        self, nn: Any, learned: Named, x: Any, sizes: Sequence[int], words: str
    ) -> tuple[Any, tuple[Any, Any]]:
        """What it gives by a convention, and the sums of the shares."""
        axes = tuple(axis for axis in range(x.ndim) if axis != self.axis)
        shape = tuple(-1 if axis == self.axis else 1 for axis in range(x.ndim))
        parts = [x[end - size : end] for size, end in zip(sizes, np.cumsum(sizes), strict=True)]
        sums = nn.stack([nn.sum(part, axes) for part in parts], 0)
        squares = nn.stack([nn.sum(part * part, axes) for part in parts], 0)
        counts = self.counts(sizes)
        convention = _conventions(counts[:, 0])[words]
        means, variances = _Sums(counts, sums, squares).statistics(convention, nn)
        outputs = []
        for share, part in enumerate(parts):
            deviation = nn.sqrt(variances[share].reshape(shape) + self.eps)
            outputs.append((part - means[share].reshape(shape)) / deviation)
        y = nn.concatenate(outputs, 0)
        if self.weight:
            y = y * learned[self.weight].reshape(shape)
        if self.bias:
            y = y + learned[self.bias].reshape(shape)
        return y, (sums, squares)


class Norms:
    """The batch norms of the reference by other conventions."""

    def __init__(self, shares: Shares) -> None:
        """Read off what they are; there may be none."""
        self.shares = shares
        self.before = shares.reference.network.neutral_state()
        self.norms: dict[str, _Norm] = {}
        for path, (x, y) in shares.followed(_listening)[1].items():
            norm = _read(path, x, y, self.before, shares.wanted["buffer"])
            if norm is not None:
                self.norms[path] = norm

    def of_statistics(self, came: Step) -> Iterator[Variant]:
        """Other statistics of the batch, and other ones that are remembered."""
        if not self.norms:
            return
        right, sums = self._run("")
        if not close(self.shares.wanted["gradient"], right["gradient"]):
            return
        yield from self._remembered(sums, "", came)
        for words in self._others():
            step, sums = self._run(words)
            yield words, step
            yield from self._remembered(sums, words, came)

    def _others(self) -> list[str]:
        """The conventions but the right one."""
        return list(_conventions(np.ones(self.shares.count)))[1:]

    def _run(self, words: str) -> tuple[Step, dict[str, _Sums]]:
        """Return a step in which every norm takes the statistics of a convention, and the sums."""

        def around(network: Any, kept: dict[str, Any]) -> Callable[..., Any]:
            learned = {name: slot.native for name, slot in network.neutral_slots().items()}

            def call(path: str, block: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
                norm = self.norms.get(path)
                if norm is None or path in kept:
                    return own(*args, **kwargs)
                given = network.backend.nn, learned, args[0], self.shares.sizes, words
                output, kept[path] = norm.output(*given)
                return output

            return call

        step, kept = self.shares.followed(around)
        sums = {}
        for path, both in kept.items():
            sums[path] = _Sums(self.norms[path].counts(self.shares.sizes), *both)
        step["buffer"] = self._buffers(sums, words, np.eye(self.shares.count)[0])
        return step, sums

    # Running statistics
    # -------------------------------------------------------------------------

    def _remembered(self, sums: Mapping[str, _Sums], words: str, came: Step) -> Iterator[Variant]:
        """Running statistics of other shares, or times a number."""
        begin = f"{words}; " if words else ""
        sizes, each = np.array(self.shares.sizes), np.eye(self.shares.count)
        whose = {
            "": each[0],
            "the running statistics are averaged by the sizes of the shares": sizes / sizes.sum(),
            "the running statistics are averaged evenly": each.mean(0),
        }
        for r, own in enumerate(each):
            whose[f"the running statistics are those of replica {r}"] = own
        chosen = {"": words}
        if not words:
            for other in self._others():
                chosen[f"running statistics alone: {other}"] = other
        for (first, convention), (second, part) in product(chosen.items(), whose.items()):
            said = "; ".join(filter(None, (first, second)))
            if said:
                yield begin + said, {"buffer": self._buffers(sums, convention, part)}
        yield from self._factors(self._buffers(sums, words, each[0]), begin, came)

    def _buffers(self, sums: Mapping[str, _Sums], words: str, part: np.ndarray) -> dict[str, Any]:
        """Running statistics after the step."""
        found = dict(self.shares.wanted["buffer"])
        for path, norm in self.norms.items():
            convention = _conventions(sums[path].counts[:, 0])[words]
            moved = sums[path].remembered(convention)
            for name, (rate, is_variance) in norm.rates.items():
                value = part @ moved[is_variance]
                found[name] = self.before[name] + rate * (value - self.before[name])
        return found

    def _factors(self, right: dict[str, Any], begin: str, came: Step) -> Iterator[Variant]:
        """The batch's own means or variances times a number that is fitted."""
        rates: dict[str, tuple[float, bool]] = {}
        for norm in self.norms.values():
            rates |= only(norm.rates, came["buffer"])
        for kind in ("mean", "variance"):
            kept = {}
            for name, (rate, is_variance) in rates.items():
                if is_variance == (kind == "variance"):
                    kept[name] = self.before[name] * (1.0 - rate)
            if not kept:
                continue
            own = {name: right[name] - value for name, value in kept.items()}
            its = {name: came["buffer"][name] - value for name, value in kept.items()}
            factor = float(least_squares([own], its)[0])
            made = {name: value + factor * own[name] for name, value in kept.items()}
            times = _named(factor, self.shares.count)
            words = f"the batch's {kind} counts {times} times in the running {kind}"
            yield begin + words, {"buffer": right | made}


def _named(factor: float, count: int) -> str:
    """A factor, and what it has to do with the number of replicas."""
    words = f"{factor:.6g}"
    if abs(factor - 1.0 / count) < _EXACT:
        return f"{words} (divided by the number of replicas)"
    if abs(factor - count) < _EXACT:
        return f"{words} (added over the replicas)"
    return words


# What a norm is
# -----------------------------------------------------------------------------


def _listening(network: Any, kept: dict[str, Any]) -> Callable[..., Any]:
    """Keep what each block takes and gives, where these are two arrays of one shape."""

    def call(path: str, block: Any, own: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        output = own(*args, **kwargs)
        shapes = [getattr(value, "shape", ()) for value in (*args, output)]
        if len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) > 1:
            kept[path] = (args[0], output)
        return output

    return call


def _read(path: str, x: Any, y: Any, before: Named, after: Named) -> _Norm | None:
    """A block as a batch norm; None where it is none."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    own = [name for name in before if owner(name) == path]
    for axis in dict.fromkeys((1, x.ndim - 1)):
        channels, values = x.shape[axis], x[0].size // x.shape[axis]
        rows, outputs = (np.moveaxis(each, axis, 0).reshape(channels, -1) for each in (x, y))
        of_channels = {n: before[n] for n in own if before[n].shape == (channels,)}
        rates = _rates(rows, list(only(of_channels, after)), before, after)
        if not rates:
            continue
        learned = without(of_channels, after)
        for weight, bias in (*permutations(learned, 2), *product(learned, [""]), ("", "")):
            roles = {"weight": weight, "bias": bias}
            weights = {role: learned[own][:, None] for role, own in roles.items() if own}
            eps = eps_of(rows, outputs, weights, _USUAL)
            if eps is not None:
                return _Norm(axis, values, eps, weight, bias, rates)
    return None


def _rates(
    rows: np.ndarray, names: Sequence[str], before: Named, after: Named
) -> dict[str, tuple[float, bool]]:
    """How fast each running statistic follows the batch's, where it follows one."""
    statistics = {False: rows.mean(1), True: rows.var(1, ddof=1)}
    found = {}
    for name in names:
        went = after[name] - before[name]
        for is_variance, statistic in statistics.items():
            way = statistic - before[name]
            rate = float(way @ went / (way @ way or 1.0))
            if rate > _SLOWEST and relative_difference(rate * way, went) < _EXACT:
                found[name] = (rate, is_variance)
    return found
