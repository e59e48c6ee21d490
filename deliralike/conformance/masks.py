"""Dropout and noise in a comparison: one number in the place of each mask and each noise.

A mask of one value is the same in every layout, order and shape, so dropout scales by ``1 / (1 -
rate)`` on both sides, and noise is the same number everywhere. Where it stands shows in the numbers;
which rates and sizes the masks have is noted, and compared by itself.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from deliralike.backends.base import Backend
from deliralike.conformance.kinds import Function, Shape
from deliralike.network.base import AbstractNetwork

REFERENCE, CANDIDATE = 0, 1
_ALL_KEPT = 1.0 - 2.0**-16  # the largest of the numbers that a rate is compared with
_NOISE = {"normal": 0.625, "uniform": _ALL_KEPT}


@dataclass(frozen=True)
class Drop:
    """One call of dropout or noise: its shape and rate, and the path of the block that calls.

    The rate is None where the framework does not know it, and of noise.
    """

    shape: Shape
    rate: float | None
    path: str
    kind: str = "keep"  # or "normal", "uniform"


class Masks:
    """The calls of dropout of one comparison.

    Attributes:
        drops: The calls of each side in a mode, in its first run with any there.
        off: Whether nothing is scaled either.
    """

    def __init__(self) -> None:
        """No side has run yet."""
        self.drops: dict[tuple[int, bool], list[Drop]] = {}
        self.off = False
        self._running = threading.local()

    @contextmanager
    def forced(self, *backends: Backend) -> Iterator[None]:
        """Let every dropout of these backends take its factor from here."""
        with ExitStack() as stack:
            for backend in set(backends):
                stack.enter_context(backend.override_dropout_masks(self._factors))
                stack.enter_context(self._layers_forced(backend))
            yield

    def loss(self, loss: Function, side: int) -> Function:
        """A loss whose calls of dropout are noted as those of a side."""

        def noted(network: Any, *batch: Any) -> Any:
            calls: list[Drop] = []
            self._running.calls = calls
            with self._located(network):
                result = loss(network, *batch)
            if calls:
                self.drops.setdefault((side, network.training), calls)
            self._running.calls = []  # those that follow are of single layers
            return result

        return noted

    def called(self, side: int, training: bool) -> list[Drop]:
        """The calls of a side in its loss, in training or in evaluation."""
        return self.drops.get((side, training), [])

    def differences(
        self, training: bool, named: Callable[[Drop], str]
    ) -> Iterator[tuple[Drop | None, Drop | None]]:
        """Calls with masks of other sizes or other rates; None where a side makes none like it.

        Args:
            training: The mode.
            named: The block of the reference in which a call of the candidate's is.
        """
        expected, actual = (
            self.called(side, training) for side in (REFERENCE, CANDIDATE)
        )
        keys: Any = (sizes(expected), sizes(actual))
        paths = [one.path for one in expected], [named(one) for one in actual]
        counts = Counter(paths[0]), Counter(paths[1])
        if counts[0] <= counts[1] or counts[1] <= counts[0]:
            keys = [
                list(zip(*both, strict=True)) for both in zip(keys, paths, strict=True)
            ]
        pairs = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
        for kind, start, end, first, last in pairs.get_opcodes():
            reference_drops, candidate_drops = expected[start:end], actual[first:last]
            if kind != "equal" and len(reference_drops) != len(candidate_drops):
                yield from ((one, None) for one in reference_drops)
                yield from ((None, one) for one in candidate_drops)
                continue
            for one, other in zip(reference_drops, candidate_drops, strict=True):
                if kind != "equal" or not _have_one_rate(one, other):
                    yield one, other

    def _factors(
        self, shape: Shape, rate: float | None, kind: str = "keep"
    ) -> np.ndarray:
        """What a call of dropout multiplies its input by, what a rate is compared with, or noise."""
        self._note(shape, rate, kind)
        if rate is None:
            return np.full(shape, self._noise("uniform" if kind == "keep" else kind))
        if self.off:
            return np.ones(shape)
        return np.full(shape, 1.0 / (1.0 - rate) if rate < 1.0 else 0.0)

    def _noise(self, kind: str) -> float:
        return 0.0 if self.off and kind == "normal" else _NOISE[kind]

    def _note(self, shape: Shape, rate: float | None, kind: str) -> None:
        if hasattr(self._running, "calls"):
            path = getattr(self._running, "path", "")
            self._running.calls.append(Drop(tuple(shape), rate, path, kind))

    @contextmanager
    def _located(self, network: AbstractNetwork) -> Iterator[None]:
        """Know the path of the block that is being called."""

        def interceptor(
            path: str, block: Any, call: Function, args: Any, kwargs: Any
        ) -> Any:
            before = getattr(self._running, "path", "")
            self._running.path = path
            try:
                return call(*args, **kwargs)
            finally:
                self._running.path = before

        with network.backend.intercept_calls(network, interceptor):
            yield

    @contextmanager
    def _layers_forced(self, backend: Backend) -> Iterator[None]:
        """The same for the layers of `nn`, which would draw by their paths."""
        functions = type(backend.nn)
        before = vars(functions).get("draw")

        def draw(
            nn: Any, layer: Any, shape: Any, like: Any, kind: str, p: float = 0.0
        ) -> Any:
            if kind != "keep":
                self._note(shape, None, kind)
                return nn.constant(np.full(tuple(shape), self._noise(kind)), like)
            if p:
                self._note(shape, p, kind)
            factor = 1.0 - p if self.off else float(p < 1.0)
            return nn.constant(np.full(tuple(shape), factor), like)

        functions.draw = draw  # type: ignore[method-assign,assignment]
        try:
            yield
        finally:
            if before is None:
                del functions.draw
            else:
                functions.draw = before  # type: ignore[method-assign]


def sizes(drops: Sequence[Drop]) -> list[int]:
    """How many elements each mask has."""
    return [math.prod(drop.shape) for drop in drops]


def _have_one_rate(one: Drop, other: Drop) -> bool:
    """Whether two rates are equal, but for the rounding of one in float32."""
    if one.rate is None or other.rate is None:
        return True
    return math.isclose(one.rate, other.rate, rel_tol=1e-6)
