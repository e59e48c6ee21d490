"""The masks of the frameworks' own dropout, made equal on both sides of a comparison.

The first call of dropout in a run gets the first mask on either side, the second one the second. A
mask is drawn for the reference's shape, and turned for a candidate with its channels elsewhere.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from deliralike import random
from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Shape
from deliralike.network.base import AbstractNetwork
from deliralike.weights.matching.layouts import Transform

REFERENCE, CANDIDATE = 0, 1
_MOST_AXES = 5  # of which all orders are tried


@dataclass(frozen=True)
class Drop:
    """One call of dropout: the shape of its mask, its rate, and the path of the block that calls."""

    shape: Shape
    rate: float
    path: str = ""


@dataclass
class _Run:
    """A run in progress: its stream, its side if it is known, and its calls so far."""

    stream: Any = None
    side: int | None = None
    is_of_loss: bool = False
    calls: list[Drop] = field(default_factory=list)
    count: int = 0  # of all calls, those that one side alone makes as well


class Masks:
    """The masks of one comparison.

    Attributes:
        drops: The calls of each side in its first run with any.
        rate_of_reference: Whether a candidate drops as often as the reference, whatever it says.
        turned: How the features of a call's mask lie in the candidate, where it flattens pictures
            in another order.
        is_misfit: Whether a candidate made a call whose mask does not fit the reference's.
        lone: By side, the numbers of the calls that it alone makes.
        skips: Whether nothing is dropped in these.
    """

    def __init__(self) -> None:
        """No side has run yet."""
        self.drops: dict[int, list[Drop]] = {}
        self.rate_of_reference = False
        self.is_misfit = False
        self.turned: Mapping[
            int, Transform
        ] = {}  # the candidate's features by number of the call
        self.off = False  # whether nothing is dropped at all
        self.lone: dict[int, list[int]] = {}
        self.skips = True
        self._running = threading.local()
        self._path = ""
        self._part: list[Drop] = []  # the reference's calls in the block that ran last

    @contextmanager
    def forced(self, reference: Any, candidate: Any) -> Iterator[None]:
        """Let every dropout of these backends take its mask from here."""
        sides = (
            {reference: REFERENCE, candidate: CANDIDATE}
            if reference is not candidate
            else {}
        )
        with ExitStack() as stack:
            for backend in {reference, candidate}:
                side = sides.get(backend)
                stack.enter_context(backend.dropping_by(partial(self._factors, side)))
                stack.enter_context(self._own_dropped(backend, side))
            yield

    def loss(self, loss: Callable[..., Any], side: int) -> Callable[..., Any]:
        """A loss in which calls are counted from the first one on, as those of a side."""

        def counted(network: Any, *batch: Any) -> Any:
            run = self._running.value = _Run(random.current(), side, is_of_loss=True)
            result = loss(network, *batch)
            if run.calls:
                self.drops.setdefault(side, run.calls)
            self._running.value = _Run()
            return result

        return counted

    def _factors(
        self, side: int | None, shape: Shape, rate: float | None
    ) -> np.ndarray:
        """What the next call of dropout multiplies its input by: zero or ``1 / (1 - rate)``.

        Where the rate is not known, numbers from 0 to 1: those below the rate are dropped.
        """
        if rate is None:
            return self._numbers(side, shape)
        mask, rate = self._next(side, shape, rate)
        if mask is None:
            return np.ones(shape)
        return mask / (1.0 - rate) if rate < 1.0 else np.zeros(mask.shape)

    def _numbers(self, side: int | None, shape: Shape) -> np.ndarray:
        run = self._run(side)
        if self.off:
            return np.full(shape, 1.0 - 2.0**-16)
        run.count += 1
        run.calls.append(Drop(shape, math.nan, self._path))
        name = f"dropout {len(run.calls) - 1}"
        return (random.mask_numbers(0, name, 0, _first_sample(), shape) + 0.5) / 2**16

    def _next(
        self, side: int | None, shape: Shape, rate: float, is_fixed: bool = False
    ) -> tuple[np.ndarray | None, float]:
        """The mask of the next call and its rate; no mask where nothing is dropped."""
        run = self._run(side)
        if self.off or not rate:  # other code may leave out what never drops anything
            return None, rate
        run.count += 1
        if run.is_of_loss and run.count - 1 in self.lone.get(run.side or 0, ()):
            return None if self.skips else self._drawn(-run.count, shape, rate), rate
        wanted = self._wanted(run)
        if (
            self.rate_of_reference
            and run.side == CANDIDATE
            and wanted is not None
            and not is_fixed
        ):
            rate = wanted.rate
        return self._mask(run, shape, rate, wanted), rate

    def differing_rates(self) -> list[tuple[int, Drop, Drop]]:
        """The calls of both sides, by number, for which their rates differ."""
        pairs = zip(self.called(REFERENCE), self.called(CANDIDATE), strict=False)
        found = []
        for at, (one, two) in enumerate(pairs):
            is_known = not math.isnan(one.rate + two.rate)
            if is_known and not np.isclose(one.rate, two.rate, rtol=1e-6, atol=0):
                found.append((at, one, two))
        return found

    def called(self, side: int) -> list[Drop]:
        """The calls of a side in the loss, without those that it alone makes."""
        lone = self.lone.get(side, ())
        return [
            drop for at, drop in enumerate(self.drops.get(side, ())) if at not in lone
        ]

    @contextmanager
    def located(self, network: AbstractNetwork) -> Iterator[None]:
        """Note the path of the block that makes each call, from now on."""

        def around(
            path: str, block: Any, call: Callable[..., Any], args: Any, kwargs: Any
        ) -> Any:
            before, self._path = self._path, path
            try:
                return call(*args, **kwargs)
            finally:
                self._path = before

        with network.backend.called_through(network, around):
            yield

    def _run(self, side: int | None) -> _Run:
        """The run in progress; outside of a loss each stream of random numbers begins a new one."""
        run = getattr(self._running, "value", None)
        stream = random.current()
        if run is None or (not run.is_of_loss and run.stream is not stream):
            run = self._running.value = _Run(stream, side)
            if side == REFERENCE:
                self._part = run.calls
        return run

    def _wanted(self, run: _Run) -> Drop | None:
        """The reference's call for the next one of a candidate: in the loss, or in the same block."""
        drops = self.called(REFERENCE) if run.is_of_loss else self._part
        is_known = run.side == CANDIDATE and len(run.calls) < len(drops)
        return drops[len(run.calls)] if is_known else None

    def _mask(
        self, run: _Run, shape: Shape, rate: float, wanted: Drop | None
    ) -> np.ndarray:
        number = len(run.calls)
        run.calls.append(Drop(shape, rate, self._path))
        if wanted is None:
            return self._drawn(number, shape, rate)
        is_moved = sorted(shape) == sorted(wanted.shape)
        like = wanted.shape if is_moved else (shape[0], *wanted.shape[1:])
        mask = _fitted(self._drawn(number, like, rate), shape)
        if mask is not None and run.is_of_loss and number in self.turned:
            mask = _with_features(mask, self.turned[number])
        if mask is None:
            self.is_misfit = True
            return self._drawn(number, shape, rate)
        return mask

    def turns(self, flattened: Iterable[Transform]) -> Iterator[dict[int, Transform]]:
        """Yield ways to turn masks of features: all that fit, then those of single calls.

        Args:
            flattened: How the weights of layers behind a flattening are laid out in the candidate.
        """
        fitting = {}
        for number, drop in enumerate(self.drops.get(REFERENCE, ())):
            for transform in flattened:
                if drop.shape[1:] == transform.start[1:]:
                    fitting[number] = transform
        if fitting:
            yield fitting
        if len(fitting) > 1:
            for number, transform in fitting.items():
                yield {number: transform}

    def _drawn(self, number: int, shape: Shape, rate: float) -> np.ndarray:
        return random.keep_mask(0, f"dropout {number}", 0, _first_sample(), shape, rate)

    @contextmanager
    def _own_dropped(self, backend: Backend, side: int | None) -> Iterator[None]:
        """The same for the layers of `nn`, which would draw by their paths."""
        functions = type(backend.nn)
        before = vars(functions).get("keep_mask")

        def keep_mask(nn: Any, layer: Any, shape: Any, p: float, like: Any) -> Any:
            mask, _ = self._next(side, tuple(shape), p, is_fixed=True)
            kept = (
                np.full(tuple(shape), 1.0 - p) if mask is None else mask.astype(float)
            )
            return nn.constant(
                kept, like
            )  # truth values times a number are float32 on PyTorch

        functions.keep_mask = keep_mask  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            if before is None:
                del functions.keep_mask
            else:
                functions.keep_mask = before  # type: ignore[method-assign]


def _first_sample() -> int:
    """The number of a shard's first sample."""
    stream = random.current()
    first = stream.first_sample if stream is not None else 0
    return first if isinstance(first, int) else 0


def find_lone(mine: Sequence[Any], its: Sequence[Any]) -> dict[int, list[int]]:
    """The calls by side that the other side has none like; none where one stands for another.

    Args:
        mine, its: What is alike in calls that both sides make, in the order of the calls.
    """
    found: dict[int, list[int]] = {REFERENCE: [], CANDIDATE: []}
    for kind, *places in SequenceMatcher(None, mine, its, autojunk=False).get_opcodes():
        if kind == "replace":
            return {}
        if kind != "equal":
            found[REFERENCE] += range(*places[:2])
            found[CANDIDATE] += range(*places[2:])
    return found


def _with_features(mask: np.ndarray, transform: Transform) -> np.ndarray:
    """A mask (samples, features) with its features in another order."""
    split = (len(mask), *transform.split[1:])
    return mask.reshape(split).transpose(transform.axes).reshape(mask.shape)


def _fitted(mask: np.ndarray, shape: Shape) -> np.ndarray | None:
    """A mask in another shape: as it is, with axes in another order, or flattened."""
    if mask.shape == shape:
        return mask
    if mask.ndim == len(shape) <= _MOST_AXES:
        channels_moved = [np.moveaxis(mask, 1, -1), np.moveaxis(mask, -1, 1)]
        others = (mask.transpose(axes) for axes in permutations(range(mask.ndim)))
        return next(
            (one for one in (*channels_moved, *others) if one.shape == shape), None
        )
    return mask.reshape(shape) if mask.size == math.prod(shape) else None
